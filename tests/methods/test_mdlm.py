"""Masked diffusion: its loss is the exact bound, its sampler calls a network without time rarely; and its page."""

import math
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import usd3
from support import oracle
from support.places import ROOT
from support.problems import D, K
from support.runs import tiny_recipe
from support.toys import exact_model, known_joint
from usd3.cli import main as cli
from usd3.methods import MDLM, METHODS, SEDD, USD3
from usd3.nets.options import ModelConfig
from usd3.recipes import find_recipe

PAGE = (ROOT / "docs" / "adding-a-method.md").read_text()
MASK = K - 1


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(params=["linear", "cosine"])
def d(request):
    schedule = {"linear": usd3.Linear(), "cosine": usd3.Cosine()}[request.param]
    return usd3.Diffusion(usd3.Absorbing(K), schedule, impl="eager")


def at(model_output):
    return lambda x, t, **masks: model_output


# ---- the loss ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [1e-3, 0.3, 0.9, 1.0])
def test_it_is_the_vlb_of_usd3_and_the_score_entropy_of_sedd(d, t):
    """One object at a time, each pair of x_0 and x_t that its draws meet: -abar' / (1 - abar) CE [x_t = mask]."""
    logits = torch.randn(1, D, K, generator=seeded(), dtype=torch.float64)
    log_f = logits.masked_fill(torch.arange(K) == MASK, -torch.inf).log_softmax(-1)
    seen = set()
    for seed in range(8):
        x_0 = torch.randint(K - 1, (1, D), generator=seeded(seed))
        ours = MDLM(d).loss(at(logits), x_0, t, generator=seeded(seed))
        vlb = USD3(d, "vlb").loss(at(logits), x_0, t, generator=seeded(seed))
        score = SEDD(d).loss(at(log_f + math.log(K - 1)), x_0, t, generator=seeded(seed))
        for other in (vlb, score):
            torch.testing.assert_close(ours.loss, other.loss, rtol=1e-10, atol=1e-10)
            torch.testing.assert_close(ours.vlb, other.vlb, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(ours.ce, vlb.ce)
        x_t = d.q_sample(x_0, t, generator=seeded(seed))
        time = torch.tensor(t, dtype=torch.float64)
        weight = float(d.schedule.decay(time) / d.schedule.lost(time))
        ce = -log_f.gather(-1, x_0[..., None])[..., 0]
        torch.testing.assert_close(ours.loss, weight * ce[x_t == MASK].sum(), rtol=1e-10, atol=1e-10)
        seen.add(int((x_t == MASK).sum()))
    assert seen == {D} if t == 1 else t == 1e-3 or len(seen) > 1


def test_masks_shapes_and_precision():
    d = usd3.Diffusion(usd3.Absorbing(K), usd3.Linear())
    given, pad = torch.tensor([True, False, False]), torch.tensor([False, True, False])
    x_0 = torch.zeros(32, D, dtype=torch.long)
    x_0[:, 1] = MASK  # what padding holds does not matter
    for dtype in (torch.float32, torch.bfloat16):
        logits = torch.zeros(32, D, K, dtype=dtype, requires_grad=True)
        out = MDLM(d).loss(at(logits), x_0, given=given, pad=pad, generator=seeded(), stratified=True)
        out.loss.backward()
        assert out.loss.dtype == torch.float32
        assert (logits.grad.abs().sum((0, 2)) > 0).tolist() == [False, False, True]
        assert logits.grad.isfinite().all()
        assert (logits.grad[..., MASK] == 0).all()
    for shape in ((6,), (6, 2, 3)):
        x_0 = torch.randint(K - 1, shape, generator=seeded())
        wanted = d.loss(lambda x, t: torch.zeros(*x.shape, K), x_0, "vlb", generator=seeded()).loss
        found = MDLM(d).loss(lambda x, t: torch.zeros(*x.shape, K), x_0, generator=seeded()).loss
        torch.testing.assert_close(found, wanted)


def test_it_learns(d):
    table = torch.zeros(K**2, 2, K, requires_grad=True)
    model = lambda x, t: table[x[:, 0] * K + x[:, 1]]
    x_0 = torch.tensor([[0, 0], [0, 0], [0, 0], [1, 1]]).repeat(16, 1)
    optimizer, generator, method = torch.optim.Adam([table], 0.1), seeded(), MDLM(d)
    for _ in range(80):
        loss = method.loss(model, x_0, generator=generator, stratified=True).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    bound = float(method.bound(model, x_0.repeat(10, 1), 64, generator=seeded()).mean())
    assert entropy - 0.1 < bound < entropy + 0.25
    pairs = method.sample(model, (400, 2), 32, generator=seeded())
    assert (pairs[:, 0] == pairs[:, 1]).float().mean() > 0.9


def test_only_absorbing_noise_in_continuous_time():
    with pytest.raises(ValueError, match=r"diffusion.noise = Uniform\(4\): expected absorbing noise for MDLM"):
        MDLM(usd3.Diffusion(usd3.Uniform(K), usd3.Linear()))
    with pytest.raises(ValueError, match=r"diffusion.num_steps = 10: expected continuous time for MDLM"):
        MDLM(usd3.Diffusion(usd3.Absorbing(K), usd3.Linear(), num_steps=10))


# ---- sampling ---------------------------------------------------------------------------------------------------


class Timeless:
    """Exact for its distribution: with masks, p(x_0 | x_t) does not depend on the time."""

    def __init__(self, joint, says_so):
        self.table, self.ignores_time, self.rows = exact_model(joint, usd3.Linear()), says_so, 0

    def __call__(self, x, t):
        self.rows += len(x)
        return self.table(x, torch.full_like(t, 0.5))


def test_a_network_without_time_is_called_only_for_objects_that_changed():
    """With 3 elements an object changes in at most 3 of 200 steps, and is asked for once at the start."""
    noise = usd3.Absorbing(K)
    joint = known_joint(noise, np.tile(noise.probs.numpy(), (D, 1)))
    method, steps, objects = MDLM(usd3.Diffusion(noise, usd3.Linear())), 200, 500
    drawn, models = {}, {says_so: Timeless(joint, says_so) for says_so in (True, False)}
    for says_so, model in models.items():
        drawn[says_so] = method.sample(model, (objects, D), steps, generator=seeded())
    assert torch.equal(drawn[True], drawn[False])
    assert models[False].rows == steps * objects
    assert models[True].rows <= (1 + D) * objects
    seen = torch.bincount(drawn[True] @ torch.tensor([K * K, K, 1]), minlength=K**D) / objects
    assert oracle.total_variation(seen.numpy(), joint.w.reshape(-1)) < 0.12  # noise of 500 draws over 27 objects
    assert not (drawn[True] == MASK).any()


def test_our_networks_are_called_rarely_too():
    d = usd3.Diffusion(usd3.Absorbing(K), usd3.Linear())
    small = {"dim": 16, "depth": 1, "heads": 2, "time_dim": 8, "hollow": False}
    torch.manual_seed(0)
    net = ModelConfig(**small, timeless=True).build(d).eval()
    rows, plain = [], lambda x, t, given=None: net(x, t, given=given)
    net.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    kept = MDLM(d).sample(net, (20, D), 100, generator=seeded())
    remembered = sum(rows)
    rows.clear()
    torch.testing.assert_close(MDLM(d).sample(plain, (20, D), 100, generator=seeded()), kept)
    assert sum(rows) == 100 * 20
    assert remembered <= 20 * (1 + D)


# ---- the page ---------------------------------------------------------------------------------------------------


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_shows_the_file_and_its_recipe():
    assert (ROOT / "src" / "usd3" / "methods" / "mdlm.py").read_text() in blocks("python")
    assert find_recipe("mdlm").read_text() in blocks("yaml")
    assert METHODS["mdlm"] is MDLM


def test_the_page_names_every_part_of_the_interface():
    for name in ("reads", "time", "samplers", "corrects", "loss", "loss_of", "denoiser", "grid", "predictor", "bound"):
        assert hasattr(usd3.methods.Method, name)
        assert f"`{name}" in PAGE or f".{name}" in PAGE, name
    fields = re.findall(r"`batch\.(\w+)", PAGE)
    assert len(set(fields)) >= 6
    for field in fields:
        assert field in usd3.methods.base.NoisyBatch.__dataclass_fields__, field


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The current folder, with the method and the recipe of the page, and data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mypackage.py").write_text(next(block for block in blocks("python") if "class Even" in block))
    (tmp_path / "mine.yaml").write_text(next(block for block in blocks("yaml") if "mypackage" in block))
    tiny_recipe(tmp_path)
    yield tmp_path
    sys.modules.pop("mypackage", None)


def test_the_test_of_the_page_passes(package):
    exec(compile(next(b for b in blocks("python") if "import Even" in b), "docs/adding-a-method.md", "exec"), {})


def test_the_commands_of_the_page_work_for_a_method_of_ones_own(package, capsys):
    """Trained for two steps, drawn from and measured, as the page says."""
    net = "--model.dim 16 --model.depth 1 --model.heads 2 --model.time_dim 8"
    short = "--training.steps 2 --training.validate_every 2 --training.batch_size 4 --training.accelerator cpu"
    extra = {
        "train": f"{net} {short} --training.prefix 2 --progress false",
        "sample": "--steps 3",
        "evaluate": "--steps 3 --limit 2 --runs 1 --baselines false",
    }
    commands = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]
    assert [words[:2] for words in commands] == [["PYTHONPATH=.", "usd3"]] * 3
    for words in commands:
        assert cli.main([*words[2:], *extra[words[2]].split()]) == 0, capsys.readouterr().err
    assert "usd3 sample runs/array-small-mine --trust_code true" in capsys.readouterr().out  # what to do after training
    assert yaml.safe_load(Path("runs/array-small-mine/recipe.yaml").read_text())["method"]["options"] == {"power": 1.0}
    assert cli.main(["sample", "runs/array-small-mine", "--num", "1"]) != 0
    assert "method.name = mypackage.Even" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["mdlm", "sedd"])
def test_the_recipes_train_sample_and_measure(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny_recipe(tmp_path)
    net = "--model.dim 16 --model.depth 1 --model.heads 2 --model.time_dim 8"
    short = "--training.steps 2 --training.validate_every 2 --training.batch_size 4 --training.accelerator cpu"
    train = f"train array {name} --data.path data.npz {net} {short} --training.prefix 2 --progress false"
    for command in (
        train,
        f"sample runs/array-{name} --num 3 --steps 4 --prompt test --prefix 2 --animate true",
        f"evaluate runs/array-{name} --steps 3 --limit 2 --runs 1 --baselines false",
    ):
        assert cli.main(command.split()) == 0, capsys.readouterr().err
    drawn = np.load(next(Path(f"runs/array-{name}").glob("samples*/samples.npz")))["tokens"]
    assert drawn.max() < 5
    assert usd3.Pipeline.from_pretrained(f"runs/array-{name}").method.__class__ is METHODS[name]
