"""What every method must do: train on Bach, keep what is given, say what it cannot, go through the command line."""

import functools

import pytest
import torch
import yaml

import usd3
from support.runs import tiny_recipe
from usd3.cli.main import main
from usd3.core.options import DiffusionConfig
from usd3.kinds.options import DataConfig
from usd3.methods import METHODS
from usd3.methods.options import MethodConfig
from usd3.nets.options import ModelConfig
from usd3.pipeline.pipeline import Pipeline
from usd3.recipes import find_recipe
from usd3.training.run import fit, pipeline_for

SMALL = {"dim": 32, "depth": 1, "heads": 2, "mlp": 64, "time_dim": 16}


def recipe_of(name, folder, **training):
    """The method's own recipe with a tiny network, on sequences that count up."""
    recipe = tiny_recipe(folder, **training)
    own = yaml.safe_load(find_recipe(name).read_text())
    recipe.method = MethodConfig(**own.get("method", {}))
    recipe.diffusion = DiffusionConfig(**own.get("diffusion", {}))
    recipe.model = ModelConfig(**{**own.get("model", {}), **SMALL})
    return recipe


def test_every_method_has_a_recipe():
    for name, kind in METHODS.items():
        recipe = yaml.safe_load(find_recipe(name).read_text())
        assert recipe.get("method", {"name": "usd3"})["name"] == name
        assert kind.__doc__


BACH = DataConfig(source="bach", length=32)


@functools.cache
def bach():
    return BACH.load()


@pytest.mark.parametrize("name", METHODS)
def test_the_loss_falls_on_bach(name, tmp_path, monkeypatch):
    dataset = bach()
    monkeypatch.setattr(DataConfig, "load", lambda *_, **__: dataset)
    short = {"steps": 60, "checkpoint_every": 60, "validate_every": 0}
    recipe = recipe_of(name, tmp_path, **short, batch_size=16, lr=5e-3, prefix=8, ema=0.5)
    recipe.data = BACH
    trained = fit(recipe, tmp_path / "run", progress=False)
    untrained = pipeline_for(recipe, dataset)
    x_0, before_and_after = dataset.train.tokens[:64].long(), []
    for pipeline in (untrained, trained):  # with the same draws
        early = 0.05 if pipeline.diffusion.continuous else pipeline.diffusion.num_steps // 20  # where data can be seen
        with torch.no_grad():
            out = pipeline.method.loss(pipeline.model.eval(), x_0, early, generator=torch.Generator().manual_seed(0))
        before_and_after.append(float(out.loss))
    before, after = before_and_after
    assert after < 0.95 * before, before_and_after


@pytest.mark.filterwarnings("ignore")  # of torch.compile's own
@pytest.mark.parametrize("name", ["usd3", "rdm"])  # all of them where there is a GPU: it takes a while
def test_the_compiled_loss_takes_batches_of_several_sizes(name, tmp_path):
    recipe = recipe_of(name, tmp_path)
    pipeline = pipeline_for(recipe, recipe.data.load())
    model = pipeline.model.eval()  # without dropout, whose draws a graph makes in another way

    def loss(x_0):
        return pipeline.method.loss(model, x_0).loss

    compiled = torch.compile(loss, backend="eager")
    for batch in (6, 5):  # the second one makes the size a symbol
        x_0 = torch.arange(8 * batch).reshape(batch, 8) % 5
        values = []
        for function in (loss, compiled):
            torch.manual_seed(0)
            values.append(function(x_0))
        torch.testing.assert_close(*values)


@pytest.mark.parametrize("name", METHODS)
def test_it_goes_all_the_way(name, tmp_path, capsys):
    recipe = recipe_of(name, tmp_path, steps=4, validate_every=2, given="prefix", prefix=3)
    run = tmp_path / "run"
    fit(recipe, run, progress=False)
    pipeline = Pipeline.from_pretrained(run, device="cpu")
    assert type(pipeline.method) is METHODS[name]
    tokens = torch.arange(8).expand(3, 8) % 5
    given = torch.tensor([True, False, True, False, False, True, False, False])
    for sampler in pipeline.method.samplers:
        drawn = pipeline.sample(num_steps=6, tokens=tokens, given=given, sampler=sampler)
        assert torch.equal(drawn[:, given], tokens[:, given])
        assert drawn.min() >= 0
        assert drawn.max() < 5
        again = pipeline.sample(num_steps=6, tokens=tokens, given=given, sampler=sampler)
        assert torch.equal(drawn, again)
    nats = pipeline.bound(tokens, given, num_samples=8)
    assert torch.isfinite(nats).all()
    assert main(["evaluate", str(run), "--runs", "2", "--steps", "4", "--bound_samples", "4", "--device", "cpu"]) == 0
    assert "model" in capsys.readouterr().out
    assert main(["sample", str(run), "--num", "2", "--steps", "4", "--device", "cpu"]) == 0


@pytest.mark.parametrize("name", METHODS)
def test_pad_and_shapes(name, tmp_path):
    recipe = recipe_of(name, tmp_path)
    diffusion = recipe.diffusion.build(5)
    method = recipe.method.build(diffusion)
    K = diffusion.noise.num_classes

    def model(x, t, pad=None, given=None, at=None):
        return torch.zeros(*x.shape, K) + torch.arange(K) * 0.1 + t.reshape(-1, *[1] * x.dim()) * 0.2

    x_0 = torch.randint(5, (4, 2, 3), generator=torch.Generator().manual_seed(0))
    pad = torch.zeros(2, 3, dtype=torch.bool)
    pad[1, 2] = True
    outcomes = []
    for other in (0, 4):  # what stands in the padding does not matter
        x = x_0.masked_fill(pad, other)
        out = method.loss(model, x, pad=pad.expand(4, 2, 3), generator=torch.Generator().manual_seed(1))
        outcomes.append(out.loss)
        assert torch.isfinite(out.loss)
        assert torch.isfinite(out.vlb)
    torch.testing.assert_close(*outcomes)
    drawn = method.sample(model, (4, 2, 3), 5, pad=pad, generator=torch.Generator().manual_seed(1))
    assert drawn.shape == (4, 2, 3)
    assert drawn.max() < 5


@pytest.mark.parametrize("name", METHODS)
def test_nan_logits_are_refused(name, tmp_path):
    recipe = recipe_of(name, tmp_path)
    diffusion = recipe.diffusion.build(5)
    method = recipe.method.build(diffusion)
    K = diffusion.noise.num_classes

    def broken(x, t):
        return torch.full((*x.shape, K), torch.nan)

    with pytest.raises(ValueError, match="contains nan"):
        method.loss(broken, torch.zeros(64, 4, dtype=torch.long))  # so many that some elements are noise
    with pytest.raises(ValueError, match="contains nan"):
        method.sample(broken, (3, 4), 5)
    assert isinstance(method.diffusion, usd3.Diffusion)
