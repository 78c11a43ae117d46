"""The sampling loop prepares, remembers and replays; what it draws is what a plain loop draws."""

import itertools
import json

import pytest
import torch

import usd3
from support.problems import NOISES, D, K
from support.runs import tiny_recipe
from usd3._internal.checks import Checks, LoopChecks
from usd3._internal.random import uniform
from usd3.core import fused
from usd3.core import model as _model
from usd3.core.coefficients import column, constant, flat
from usd3.core.converters import hollow_shift
from usd3.core.mixture import Jumps
from usd3.core.model import Denoiser, ignores_time
from usd3.core.options import DiffusionConfig
from usd3.core.samplers import SAMPLERS
from usd3.nets import FilmTransformer, Hollow, Transformer
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline
from usd3.training.run import fit

DRAW_ONCE = ("first_hitting", "confidence", "margin", "entropy")  # and take no corrector
TABLE = torch.randn(D, K, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def model(x, t):
    """Looks at the element, its neighbour and the time."""
    near = torch.nn.functional.one_hot(x.roll(1, -1), K)
    return TABLE + 1.5 * torch.nn.functional.one_hot(x, K) + near * (1 + t.double()[:, None, None])


# ---- a plain loop -----------------------------------------------------------------------------------------------


def plain_loop(d, size, steps, sampler, corrector, fixed, tokens, generator):
    """Every coefficient where it is needed, for every object, as the formulas have them."""
    free = ~fixed.expand(size)
    x = torch.where(free, d.noise.sample(tokens.expand(size).clamp(min=0), generator), tokens)

    def draw(x, time, jumps, free=free):
        u = uniform((2, *x.shape), x.device, generator)
        logits = model(x, time.to(torch.get_default_dtype()))
        return fused.draw(logits, x, d.noise, d.level(time, x), jumps, u, free, "auto", Checks(True))

    def exact(x, t, s):
        to = d.step(constant(t, x), constant(s, x), x)
        return draw(x, constant(t, x), Jumps(to.to_data, to.to_noise))

    def thinned(x, t, s):
        place, end = (torch.logit(d.level(constant(v, x), x[:, 0]).alpha_bar.clamp(min=1e-6)) for v in (t, s))
        while True:
            u = uniform((2, len(x)), x.device, generator)
            place = place - torch.log1p(-u[0]) / free.sum(1)
            if not (place < end).any():
                return x
            time = d.schedule.time(torch.sigmoid(torch.minimum(place, end))).clamp(0, 1)
            chosen = torch.zeros_like(free)
            for row, where in enumerate(free):
                if place[row] < end[row]:
                    chosen[row, where.nonzero()[int(u[1, row] * where.sum())]] = True
            level = d.level(time, x)
            x = draw(x, time, Jumps(level.alpha_bar, level.lost), chosen)

    grid = d.grid(steps)
    for i, (t, s) in enumerate(itertools.pairwise(grid)):
        rate = d.rate_weights(constant(t, x), x)
        if sampler == "gillespie":
            until = max(s, d.t_min)
            x = thinned(x, t, until) if until < t else x
            x = exact(x, min(t, until), s) if s == 0 else x
        elif sampler == "exact" or s == 0:
            x = exact(x, t, s)
        else:
            damped = sampler == "tau_leaping"
            x = draw(x, constant(t, x), Jumps(rate.to_data * (t - s), rate.to_noise * (t - s), damped=damped))
        if corrector is None or s == 0 or i < len(grid) - 2 - (corrector.last or len(grid)):
            continue
        time = constant(s, x)
        rate = d.rate_weights(time, x)
        for _ in range(corrector.num_steps):
            moves = Jumps(rate.to_data, rate.to_noise, forward=rate.to_noise).scaled(corrector.step_size)
            mass = fused.jump_mass(model(x, time), x, d.noise, d.level(time, x), moves, None, "auto", Checks(True))
            largest = flat(torch.where(free, mass, 0.0)).amax(1)
            x = draw(x, time, moves.scaled(column(torch.where(largest > 0.8, 0.8 / largest, 1.0), x)))
    return x


CORRECTORS = {"none": None, "short": usd3.Corrector(2, 0.02, last=3), "long": usd3.Corrector(2, 0.5, last=None)}


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("num_steps", [None, 12])
@pytest.mark.parametrize("sampler", ["exact", "euler", "tau_leaping", "gillespie"])
@pytest.mark.parametrize("corrector", CORRECTORS)
def test_the_draws_are_those_of_a_plain_loop(name, num_steps, sampler, corrector):
    d = usd3.Diffusion(NOISES[name][0](), usd3.Cosine(), num_steps)
    fixed, tokens = torch.tensor([True, False, False]), torch.tensor([2, 0, 0])
    arguments = (16, D), 7, sampler, CORRECTORS[corrector]
    expected = plain_loop(d, *arguments, fixed, tokens, torch.Generator().manual_seed(3))
    found = d.sample(
        model, (16, D), 7, CORRECTORS[corrector], given=fixed, given_tokens=tokens, sampler=sampler,
        generator=torch.Generator().manual_seed(3),
    )  # fmt: skip
    assert torch.equal(found, expected)


def test_the_schedule_is_asked_once_and_not_at_every_step(monkeypatch):
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
    calls = []
    assert not d.schedule_learns(torch.device("cpu"))  # a diffusion asks for this once
    kept = d.schedule.kept
    monkeypatch.setattr(d.schedule, "kept", lambda *times: calls.append(1) or kept(*times))
    d.sample(model, (4, D), 5, usd3.Corrector(2, 0.01))
    few = len(calls)
    d.sample(model, (4, D), 50, usd3.Corrector(2, 0.01))
    assert len(calls) == 2 * few


# ---- remembered logits ------------------------------------------------------------------------------------------


class Counting:
    """A network without time that counts the objects it is called for."""

    ignores_time = True

    def __init__(self, num_classes):
        self.num_classes, self.rows, self.calls = num_classes, 0, 0

    def __call__(self, x, t, given, pad=None):
        self.rows, self.calls = self.rows + len(x), self.calls + 1
        assert given.shape == x.shape
        assert pad is None or pad.shape == x.shape
        near = torch.nn.functional.one_hot(x.roll(1, -1), self.num_classes).double()
        context = (
            x.double().sum(-1, keepdim=True)[..., None] * torch.arange(self.num_classes) + given.double()[..., None]
        )
        return torch.cos(context) + 2 * near + (0 if pad is None else pad.double()[..., None])


def test_absorbing_noise_needs_a_call_per_change_and_not_per_step():
    d = usd3.Diffusion(usd3.Absorbing(9), usd3.Linear())
    found = {}
    for remember in (False, True):
        net = Counting(9)
        net.ignores_time = remember
        found[remember] = d.sample(net, (5, 64), 1000, generator=torch.Generator().manual_seed(0)), net.rows
    assert torch.equal(found[True][0], found[False][0])
    assert found[False][1] == 5 * 1000
    assert found[True][1] <= 5 * 65


@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name not in DRAW_ONCE])
@pytest.mark.parametrize("kind", [usd3.Uniform, usd3.Absorbing])
@pytest.mark.parametrize("step_size", [0.01, 0.5])
def test_remembered_logits_change_no_sample(sampler, kind, step_size):
    d = usd3.Diffusion(kind(6), usd3.Cosine())
    g = torch.Generator().manual_seed(5)
    tokens, given = torch.randint(5, (8, 6), generator=g), torch.rand(8, 6, generator=g) < 0.3
    pad, found, rows = torch.arange(6) == 5, [], []
    for remember in (False, True):
        net = Counting(6)
        net.ignores_time = remember
        x = d.sample(
            net, (8, 6), 40, usd3.Corrector(1, step_size, None), given=given, given_tokens=tokens, pad=pad,
            generator=torch.Generator().manual_seed(0), sampler=sampler,
        )  # fmt: skip
        found.append(x)
        rows.append(net.rows)
    assert torch.equal(*found)
    assert rows[1] < rows[0]


def test_what_the_model_keeps_is_not_written_to():
    logits = torch.zeros(4, 6, 5)

    def net(x, t):
        return logits[: len(x)]

    net.ignores_time = True
    usd3.Diffusion(usd3.Uniform(5), usd3.Linear()).sample(net, (4, 6), 20)
    assert not logits.any()


def test_ignoring_time_is_seen_through_torchs_wrappers_alone():
    net = Transformer(5, dim=16, depth=1, heads=2, mlp=16, timeless=True)
    average = torch.optim.swa_utils.AveragedModel(net)
    assert ignores_time(net)
    assert ignores_time(torch.compile(net, backend="eager"))
    assert ignores_time(average)
    assert ignores_time(torch.compile(average, backend="eager"))

    class Head(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = net

        def forward(self, x_t, t):
            return self.module(x_t, t) * t[:, None, None]

    assert not ignores_time(Head())
    assert not ignores_time(model)
    assert not ignores_time(Transformer(5, dim=16, depth=1, heads=2, mlp=16))


# ---- networks without time --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Transformer, FilmTransformer])
@pytest.mark.parametrize("timeless", [True, False])
def test_a_timeless_network_ignores_the_time(kind, timeless):
    torch.manual_seed(0)
    net = kind(7, dim=16, depth=1, heads=2, mlp=16, time_dim=8, timeless=timeless).eval()
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.3)
    x, t = torch.randint(7, (3, 6)), torch.rand(3, requires_grad=True)
    assert net.ignores_time is timeless
    assert torch.equal(net(x, t), net(x, t / 2)) is timeless
    grad = torch.autograd.grad(net(x, t).square().sum(), t, allow_unused=True)[0]
    assert (grad is None) is timeless
    net(x, t).square().sum().backward()
    assert all(p.grad is not None for name, p in net.named_parameters() if name != "given")


def test_the_head_ignores_time_with_absorbing_noise_alone():
    torch.manual_seed(0)
    net = Transformer(5, dim=16, depth=1, heads=2, mlp=16, timeless=True)
    heads = [Hollow(net, usd3.Diffusion(noise, usd3.Cosine())) for noise in (usd3.Absorbing(5), usd3.Uniform(5))]
    assert [ignores_time(head) for head in heads] == [True, False]
    assert not ignores_time(Hollow(Transformer(5, dim=16, depth=1, heads=2, mlp=16), heads[0].diffusion))
    x, t = torch.randint(5, (3, 6)), torch.rand(3)
    assert torch.equal(heads[0](x, t), heads[0](x, t / 2))
    assert not torch.equal(heads[1](x, t), heads[1](x, t / 2))


def test_with_absorbing_noise_what_the_head_adds_would_not_matter():
    d = usd3.Diffusion(usd3.Absorbing(5), usd3.Cosine())
    g = torch.Generator().manual_seed(0)
    logits, x, t = torch.randn(4, 6, 5, generator=g), torch.randint(5, (4, 6), generator=g), torch.rand(4, generator=g)
    head = Hollow(torch.nn.Identity(), d)
    moved = logits.scatter_add(-1, x[..., None], hollow_shift(head.diffusion, x, t).float()[..., None])
    assert not torch.equal(moved, logits)
    assert torch.equal(d.backward(moved, x, t, t / 2).probs(), d.backward(logits, x, t, t / 2).probs())


def test_a_timeless_recipe_trains_saves_and_calls_its_network_less(tmp_path, monkeypatch):
    recipe = tiny_recipe(tmp_path, steps=4)
    recipe.diffusion = DiffusionConfig(noise="absorbing", schedule="linear")
    recipe.model.timeless = True
    fit(recipe, tmp_path / "run", progress=False)
    loaded = Pipeline.from_pretrained(tmp_path / "run", device="cpu")
    assert ignores_time(loaded.denoiser())
    rows = []
    loaded.model.register_forward_pre_hook(lambda _, args: rows.append(len(args[0])))
    x = loaded.sample(6, 200)
    assert sum(rows) <= 6 * 9  # 8 elements
    rows.clear()
    monkeypatch.setattr("usd3.core.samplers.loop.remembered", lambda model, num_classes: model)
    assert torch.equal(x, loaded.sample(6, 200))
    assert sum(rows) == 6 * 200


def test_a_config_from_before_still_loads(tmp_path):
    torch.manual_seed(0)
    config = PipelineConfig(num_classes=5, shape=[6], model=ModelConfig(dim=16, depth=1, heads=2, mlp=16))
    pipeline = Pipeline(config)
    pipeline.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    del saved["model"]["timeless"]
    (tmp_path / "config.json").write_text(json.dumps(saved))
    assert torch.equal(Pipeline.from_pretrained(tmp_path, device="cpu").sample(2, 3), pipeline.sample(2, 3))
    with pytest.raises(ValueError, match=r"model\.timeless = True: expected false"):
        ModelConfig(net="torch.nn.Identity", timeless=True).build(pipeline.diffusion)


# ---- calls and checks -------------------------------------------------------------------------------------------


def test_a_signature_is_inspected_once_per_call(monkeypatch):
    seen, keywords = [], _model.keywords_of
    monkeypatch.setattr(_model, "keywords_of", lambda model: seen.append(model) or keywords(model))
    pipeline = Pipeline(
        PipelineConfig(num_classes=5, shape=[6], model=ModelConfig(dim=16, depth=1, heads=2, mlp=16, time_dim=8))
    )
    counts = []
    for steps in (3, 30):
        seen.clear()
        pipeline.sample(4, steps)
        counts.append(len(seen))
    assert counts[0] == counts[1]


def test_the_mask_of_nothing_given_is_made_once():
    masks = []

    def net(x, t, given):
        masks.append(given)
        return torch.zeros(*x.shape, K)

    denoise, x = Denoiser(net, K, None, None), torch.zeros(3, D, dtype=torch.long)
    for _ in range(3):
        denoise(x, torch.ones(3))
    assert masks[0] is masks[2]
    assert not masks[0].any()


def test_checks_begun_in_inference_mode_go_on_outside_of_it():
    checks, values = LoopChecks(True), torch.ones(3)
    with torch.inference_mode():
        checks.refuse("logits", values * 1, torch.isnan, "numbers")
    checks.refuse("logits", values * torch.nan, torch.isnan, "numbers")  # as a CUDA graph's capture does
    with torch.inference_mode(), pytest.raises(ValueError, match="logits contains nan: expected numbers"):
        checks.raise_first()


def test_what_was_bad_in_an_early_round_is_still_refused():
    checks = LoopChecks(True)
    for value in (1.0, float("nan"), 2.0):
        checks.refuse("logits", torch.tensor(value), torch.isnan, "numbers")
    with pytest.raises(ValueError, match="logits contains nan: expected numbers"):
        checks.raise_first()
    fine, off = LoopChecks(True), LoopChecks(False)
    for _ in range(2):
        fine.refuse("logits", torch.tensor(1.0), torch.isnan, "numbers")
        off.refuse("logits", torch.tensor(float("nan")), torch.isnan, "numbers")
    fine.raise_first()
    off.raise_first()


@pytest.mark.parametrize("graph", [False, True])
def test_a_graph_changes_nothing_without_a_gpu(graph):
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
    found = d.sample(model, (4, D), 12, generator=torch.Generator().manual_seed(0), graph=graph)
    assert torch.equal(found, d.sample(model, (4, D), 12, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    ("noise", "category"), [(usd3.Uniform(K), 0), (usd3.Absorbing(K), 0), (usd3.Absorbing(K, mask=0), 1)], ids=str
)
def test_padding_without_tokens_is_the_first_data_category(noise, category):
    pad = torch.tensor([False, False, True])
    found = usd3.Diffusion(noise, usd3.Cosine()).sample(lambda x, t, pad: model(x, t), (2, D), 2, pad=pad)
    assert found[:, 2].tolist() == [category] * 2


def test_a_shape_without_a_batch_is_refused():
    with pytest.raises(ValueError, match=r"shape.*\(B, N1, ..., Nk\)"):
        usd3.Diffusion(usd3.Uniform(K), usd3.Cosine()).sample(model, (), 2)
