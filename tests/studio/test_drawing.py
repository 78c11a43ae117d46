"""Draws as a page asks for them: the same objects as without the studio, with steps on the way."""

import dataclasses

import pytest
import torch

from support.studio import small_kinds, small_model
from usd3._internal.random import seed_of
from usd3.core.options import DiffusionConfig
from usd3.methods.options import MethodConfig
from usd3.nets.options import ModelConfig
from usd3.studio.drawing import draw, read_wish
from usd3.studio.jobs import Cancelled
from usd3.studio.models import Shelf

KINDS = ("array", "melody", "chorale", "board", "text", "sequence", "table", "image_tokens")


class Listening:
    def __init__(self, most=10**6):
        self.events, self.checks, self.most = [], 0, most

    def check(self):
        self.checks += 1
        if self.checks > self.most:
            raise Cancelled

    def tell(self, name, data):
        self.events.append((name, data))

    def named(self, name):
        return [data for seen, data in self.events if seen == name]


@pytest.fixture(scope="module")
def shelf(folder):
    return Shelf((folder,), device="cpu")


def drawn(shelf, folder, kind, listener=None, **fields):
    model = shelf.open(str(folder / kind))
    wish = read_wish({"model": model.name, "object": model.page.empty(), "seed": 3, "steps": 6, **fields}, model)
    return model, draw(model, wish, listener or Listening())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_draws_from_nothing(kind, shelf, folder):
    listener = Listening()
    model, done = drawn(shelf, folder, kind, listener, num=3, frames=4)
    assert len(done["objects"]) == 3
    assert done["seed"] == 3
    assert done["calls"] > 0
    frames = listener.named("frame")
    times = max(1, sum(frame["step"] == 0 for frame in frames))  # boards that break the rules are drawn again
    assert times == 1 or kind == "board"
    assert times <= len(frames) <= 4 * times
    whole = model.page.from_page(done["objects"])
    assert whole.tokens.shape == (3, *model.kind.shape)


@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
def test_a_draw_is_that_of_the_pipeline_whether_it_is_watched_or_not(noise, tmp_path):
    kind = small_kinds(tmp_path)["array"]
    pipeline = small_model(tmp_path / "model", kind, noise)
    model = Shelf((tmp_path,), device="cpu").open(str(tmp_path / "model"))
    prompt = [[0, 1, 2, 3], [-1] * 4, [4, -1, -1, 4]]
    base = {"model": model.name, "object": prompt, "seed": 3, "steps": 7, "temperature": 0.8, "guidance": 2.0}
    tokens, given = torch.tensor([prompt]).clamp(min=0), torch.tensor([prompt]) >= 0
    how = {"num_steps": 7, "temperature": 0.8, "guidance_scale": 2.0}
    first = pipeline.sample(tokens=tokens, given=given, seed=3, **how)
    rows = (part.expand(2, 3, 4) for part in (tokens, given))
    others = pipeline.sample(**dict(zip(("tokens", "given"), rows)), seed=seed_of(3, 1), **how)
    for frames in (0, 5):
        done = draw(model, read_wish({**base, "num": 3, "frames": frames}, model), Listening())
        assert done["objects"] == torch.cat([first, others]).tolist()


def test_the_first_object_comes_early_and_does_not_depend_on_the_others(shelf, folder):
    listener = Listening()
    _, many = drawn(shelf, folder, "melody", listener, num=4)
    _, one = drawn(shelf, folder, "melody", num=1)
    assert many["objects"][0] == one["objects"][0] == listener.named("first")[0]["object"]
    names = [name for name, _ in listener.events]
    last = max(i for i, name in enumerate(names) if name == "frame")
    assert last < names.index("first")


def test_frames_keep_what_is_given_and_end_closed(shelf, folder):
    listener = Listening()
    prompt = [[1, 2, -1, -1], *[[-1] * 4] * 3]
    _, done = drawn(shelf, folder, "board", listener, object=prompt, num=1, steps=16, sampler="confidence", frames=16)
    frames = listener.named("frame")
    begins = [i for i, frame in enumerate(frames) if frame["step"] == 0]  # a board that breaks the rules is drawn again
    assert len(begins) > 1
    frames = frames[begins[-1] :]
    numbers = [sum(map(sum, frame["open"])) for frame in frames]
    assert numbers[0] == 14
    assert numbers == sorted(numbers, reverse=True)
    assert [frame["step"] for frame in frames] == sorted({frame["step"] for frame in frames})
    for frame in frames:
        assert frame["object"][0][:2] == [1, 2]
        assert frame["sure"][0][:2] == [1.0, 1.0]
        assert frame["open"][0][:2] == [0, 0]
        assert all(0 <= sure <= 1 for row in frame["sure"] for sure in row)
        closed = [(i, j) for i in range(4) for j in range(4) if not frame["open"][i][j]]
        assert all(frame["object"][i][j] == done["objects"][0][i][j] for i, j in closed)


def test_frames_are_even_and_no_more_than_asked_for(shelf, folder):
    for frames in (0, 1, 3, 100):
        listener = Listening()
        drawn(shelf, folder, "array", listener, steps=12, num=1, frames=frames, sampler="exact")
        steps = [frame["step"] for frame in listener.named("frame")]
        assert steps == {0: [], 1: [0], 3: [0, 4, 8], 100: list(range(12))}[frames]


def test_what_is_noise_is_open_where_no_mask_says_so(tmp_path):
    """At the beginning everything is open, and at the end little is."""
    kind = small_kinds(tmp_path)["array"]
    small_model(tmp_path / "model", kind, "uniform")
    model = Shelf((tmp_path,), device="cpu").open(str(tmp_path / "model"))
    listener = Listening()
    wish = read_wish({"model": "", "object": model.page.empty(), "steps": 50, "num": 1, "frames": 50, "seed": 1}, model)
    draw(model, wish, listener)
    shares = [sum(map(sum, frame["open"])) / 12 for frame in listener.named("frame")]
    assert shares[0] == 1
    assert shares[-1] < 0.2


def test_progress_counts_up_to_all_steps(shelf, folder):
    for num, steps in ((1, 6), (3, 12)):
        listener = Listening()
        drawn(shelf, folder, "array", listener, num=num, sampler="exact")
        progress = listener.named("progress")
        assert progress[-1]["step"] == progress[-1]["steps"] == steps
        assert [part["step"] for part in progress] == sorted({part["step"] for part in progress})


@pytest.mark.parametrize("most", [0, 1, 5])
def test_a_draw_that_nobody_wants_ends_at_the_next_call(most, shelf, folder):
    listener = Listening(most)
    with pytest.raises(Cancelled):
        drawn(shelf, folder, "array", listener, steps=500)
    assert listener.checks == most + 1
    model = shelf.open(str(folder / "array"))
    assert not model.pipeline.model._forward_pre_hooks


def test_conditions_hold_and_what_was_typed_stays(shelf, folder):
    row = {"age": "30", "sex": None}
    model, done = drawn(shelf, folder, "table", object=row, where="sex=F", num=20, sampler=None)
    assert {found["sex"] for found in done["objects"]} == {"F"}
    assert {found["age"] for found in done["objects"]} == {"30"}
    assert set(done["shares"]) == {"sex", "job", "born"}
    for shares in done["shares"].values():
        assert sum(share for _, share in shares) == pytest.approx(1, abs=0.01)
    with pytest.raises(ValueError, match="sex"):
        read_wish({"model": "", "object": model.page.empty(), "where": {"sex": "X"}}, model)


def test_labels_are_conditions_too(tmp_path):
    kind = small_kinds(tmp_path)["array"]
    small_model(tmp_path / "model", kind, labels={"label": ["cat", "dog"]})
    model = Shelf((tmp_path,), device="cpu").open(str(tmp_path / "model"))
    assert model.about()["labels"] == {"label": ["cat", "dog"]}
    fields = {"model": "", "object": model.page.empty(), "num": 1, "seed": 1, "steps": 8}
    wishes = [read_wish({**fields, "where": where}, model) for where in (None, {"label": "cat"}, "label=dog")]
    assert len({str(draw(model, wish, Listening())["objects"]) for wish in wishes}) > 1
    with pytest.raises(ValueError, match="cow"):
        read_wish({**fields, "where": {"label": "cow"}}, model)


WRONG = [
    ({"num": 0}, "num = 0"),
    ({"num": 10**9}, "num"),
    ({"num": True}, "num"),
    ({"num": 1.5}, "num"),
    ({"num": "4"}, "num"),
    ({"steps": 0}, "steps = 0"),
    ({"steps": -3}, "steps = -3"),
    ({"steps": 10**6}, "steps"),
    ({"sampler": "quick"}, "sampler = quick"),
    ({"sampler": ["exact"]}, "sampler"),
    ({"sampler": "revision:eta=0.1"}, "sampler"),
    ({"temperature": 0}, "temperature"),
    ({"temperature": -1.0}, "temperature"),
    ({"temperature": 1e9}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.2}, "top_p"),
    ({"guidance": -1}, "guidance"),
    ({"guidance": 1e30}, "guidance"),
    ({"seed": -1}, "seed"),
    ({"seed": 2**60}, "seed"),
    ({"seed": 0.5}, "seed"),
    ({"frames": 10**5}, "frames"),
    ({"where": 3}, "where"),
    ({"where": "x" * 3000}, "where"),
    ({"where": {"a": {"b": 1}}}, "where"),
    ({"where": {"a": ["x"] * 1000}}, "where"),
    ({"where": {str(i): 1 for i in range(200)}}, "where"),
    ({"where": "colour=red"}, "where"),
    ({"object": None}, "object"),
    ({"object": 3}, "object"),
    ({"object": "abc"}, "object"),
    ({"object": [[0] * 4] * 3}, "nothing is open"),
    ({"object": [[0] * 4] * 2}, "list of 3"),
    ({"object": [[0] * 5] * 3}, "list of 4"),
    ({"object": [[[0] * 4]] * 3}, "list of 4"),
    ({"object": [[0.5] * 4] * 3}, "integer"),
    ({"object": [[True] * 4] * 3}, "integer"),
    ({"object": [[-2] * 4] * 3}, "-2"),
    ({"object": [[5] * 4] * 3}, "5"),
    ({"object": [[10**400] * 4] * 3}, "integer"),
    ({"object": [["1"] * 4] * 3}, "integer"),
    ({"object": {"a": 1}}, "object"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG)
def test_a_wrong_wish_names_what_is_wrong(fields, message, shelf, folder):
    model = shelf.open(str(folder / "array"))
    with pytest.raises((ValueError, TypeError), match=message) as raised:
        read_wish({"model": model.name, "object": model.page.empty(), **fields}, model)
    assert len(str(raised.value)) < 400


def test_a_wish_without_settings_has_the_usual_ones_and_a_seed_of_its_own(shelf, folder):
    model = shelf.open(str(folder / "melody"))
    wishes = [read_wish({"model": model.name, "object": model.page.empty(), "where": {}}, model) for _ in range(2)]
    assert wishes[0].seed != wishes[1].seed
    usual = dataclasses.replace(wishes[0], seed=0, prompt=None)
    assert (usual.num, usual.steps, usual.temperature, usual.guidance, usual.where) == (4, 32, 1.0, 1.0, None)


def test_an_error_of_the_draw_speaks_of_the_fields_of_the_page(shelf, folder):
    with pytest.raises(ValueError, match=r"^guidance = 3\.0"):
        drawn(shelf, folder, "array", guidance=3.0)


@pytest.mark.parametrize(
    ("method", "net"), [("d3pm", "transformer"), ("sedd", "transformer"), ("sddm", "hollow_transformer")]
)
def test_other_methods_are_watched_too(method, net, tmp_path):
    kind = small_kinds(tmp_path)["array"]
    steps = 20 if method == "d3pm" else None
    diffusion = DiffusionConfig(noise="uniform", num_steps=steps)
    network = ModelConfig(net=net, hollow=False, dim=8, depth=1, heads=2, mlp=8, time_dim=8)
    small_model(tmp_path / "model", kind, method=MethodConfig(method), diffusion=diffusion, model=network)
    model = Shelf((tmp_path,), device="cpu").open(str(tmp_path / "model"))
    listener = Listening()
    fields = {"model": "", "object": [[1, 2, -1, -1], *[[-1] * 4] * 2], "steps": 6, "num": 2, "seed": 1, "frames": 3}
    done = draw(model, read_wish(fields, model), listener)
    assert len(done["objects"]) == 2
    frames = listener.named("frame")
    assert len(frames) == 3
    assert all(frame["object"][0][:2] == [1, 2] for frame in frames)
    assert listener.named("first")[0]["object"] == done["objects"][0]
    assert model.about()["tempered"] is (method != "sedd")
    if method == "sedd":
        with pytest.raises(ValueError, match=r"temperature = 0\.5"):
            draw(model, read_wish({**fields, "temperature": 0.5}, model), listener)


def test_what_follows_the_end_of_a_chorale_stays_silent_and_unseen(shelf, folder, monkeypatch):
    model, seen = shelf.open(str(folder / "chorale")), []
    tune, silent = [[72, -1, -1, -1]] * 16, [[128] * 4] * 16

    def fill(tokens, given, pad=None, **how):
        seen.append(pad)
        return type(model.pipeline).fill(model.pipeline, tokens, given, pad=pad, **how)

    monkeypatch.setattr(model.pipeline, "fill", fill)
    _, done = drawn(shelf, folder, "chorale", object=tune + silent, num=3)
    assert [pad.shape for pad in seen] == [(1, 32, 4), (2, 32, 4)]
    assert all(pad[:, 16:].all() and not pad[:, :16].any() for pad in seen)
    for chorale in done["objects"]:
        assert chorale[16:] == silent
        assert [row[0] for row in chorale[:16]] == [72] * 16
    drawn(shelf, folder, "chorale", object=tune + [[-1] * 4] * 16, num=1)
    assert seen[-1] is None
