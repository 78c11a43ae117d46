"""A compiled network draws what the plain one draws, and is compiled as seldom as it can be.

The compiler's back end runs what it was given as it is, and counts.
"""

import copy
import pickle
from dataclasses import replace

import pytest
import torch
from torch._dynamo.exc import InternalTorchDynamoError
from torch._dynamo.testing import CompileCounter

from support.runs import tiny_recipe
from usd3._internal.graphs import as_captured
from usd3.cli import compare_jobs
from usd3.cli.main import main
from usd3.core import samplers
from usd3.core.options import DiffusionConfig
from usd3.methods.options import MethodConfig
from usd3.nets import _linear
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline
from usd3.training.run import fit

K, L = 5, 6
MODEL = ModelConfig(dim=16, depth=1, heads=2, mlp=16, time_dim=8)
BARE = replace(MODEL, hollow=False)
ABSORBING = DiffusionConfig("absorbing", "linear")
DISCRETE = DiffusionConfig(num_steps=40)
CASES = {
    "discrete": ("usd3", DISCRETE, MODEL),
    "continuous": ("usd3", DiffusionConfig("marginal"), MODEL),
    "absorbing": ("usd3", ABSORBING, MODEL),
    "self-conditioned": ("usd3", DISCRETE, replace(MODEL, self_conditioning=True)),
    "projection": ("usd3", DISCRETE, replace(MODEL, projection=True)),
    "timeless": ("mdlm", ABSORBING, replace(BARE, timeless=True)),
    "mdlm": ("mdlm", ABSORBING, BARE),
    "sedd": ("sedd", DiffusionConfig(schedule="loglinear"), BARE),
    "d3pm": ("d3pm", DISCRETE, MODEL),
    "tauldr": ("tauldr", DiffusionConfig(), BARE),
}


@pytest.fixture
def counter(monkeypatch):
    """How often something was compiled, `frame_count`."""
    torch.compiler.reset()
    counting, compile = CompileCounter(), torch.compile
    monkeypatch.setattr(torch, "compile", lambda fn, mode, dynamic: compile(fn, backend=counting, dynamic=dynamic))
    yield counting
    torch.compiler.reset()


def pipeline(case: str, compile: bool = True, **model) -> Pipeline:
    torch.manual_seed(0)
    method, diffusion, net = CASES[case]
    marginal = [0.1, 0.2, 0.4, 0.2, 0.1] if diffusion.noise == "marginal" else None
    net = replace(net, **model)
    made = Pipeline(PipelineConfig(K, [L], diffusion, MethodConfig(method), net, marginal=marginal))
    for weight in made.model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    made.compile = compile
    return made


@pytest.mark.parametrize("case", CASES)
def test_draws_and_bounds_are_those_of_the_plain_network(case, counter, monkeypatch):
    monkeypatch.setattr(_linear, "_RUNS_WELL", False)  # only the plain network calls oneDNN, which rounds differently
    compiled, plain = pipeline(case), pipeline(case, compile=False)
    drawn = compiled.sample(8, 20, batch_size=4, seed=1)
    assert counter.frame_count == 1
    bound = compiled.bound(drawn, num_samples=3, batch_size=4)
    assert counter.frame_count == (2 if case == "self-conditioned" else 1)  # a bound has no estimate
    assert torch.equal(drawn, plain.sample(8, 20, batch_size=4, seed=1))
    assert torch.equal(bound, plain.bound(drawn, num_samples=3, batch_size=4))
    assert counter.frame_count <= 2


@pytest.mark.parametrize("case", ["continuous", "self-conditioned"])
def test_the_capture_of_a_step_compiles_nothing(case, counter, monkeypatch):
    """Also where the caller is in inference mode, and its tensors are of that mode."""
    steps = []

    class Recorded:
        def __init__(self, fn):
            self.fn = fn
            steps.append(self)

        def __call__(self, *inputs):
            self.inputs = inputs
            return self.fn(*inputs)

    monkeypatch.setattr(samplers.Run, "replayed", lambda run, move: Recorded(move))
    with torch.inference_mode():
        masks = {"given": torch.arange(L) < 2, "pad": torch.arange(L) > 4}
        tokens = torch.arange(4 * L).reshape(4, L) % K
        pipeline(case).sample(num_steps=5, tokens=tokens, **masks)
        assert counter.frame_count == 1
        with as_captured():
            steps[0].fn(*(value.clone() for value in steps[0].inputs))
    assert counter.frame_count == 1


def test_a_pipeline_compiles_once_and_follows_its_switch(counter, tmp_path):
    pipeline("discrete").save_pretrained(tmp_path)
    loaded = Pipeline.from_pretrained(tmp_path, device="cpu", compile=True)
    first = loaded.sample(4, 3)
    assert torch.equal(first, loaded.sample(4, 3))
    assert counter.frame_count == 1
    loaded.compile = False
    loaded.sample(3, 3)
    assert counter.frame_count == 1
    other = pipeline("discrete", compile=False)
    for weight in other.model.parameters():
        weight.data.neg_()
    loaded.compile, loaded.model = True, other.model
    assert torch.equal(loaded.sample(4, 3), other.sample(4, 3))
    assert not torch.equal(loaded.sample(4, 3), first)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))], ids=["copy", "deep", "pickle"]
)
def test_a_copy_of_a_pipeline_that_compiled_uses_its_own_network(copied, counter):
    made = pipeline("discrete")
    first = made.sample(4, 3)
    other = copied(made)
    other.model = copy.deepcopy(other.model)
    for weight in other.model.parameters():
        weight.data.neg_()
    drawn = other.sample(4, 3)
    other.compile = False
    assert torch.equal(drawn, other.sample(4, 3))
    assert torch.equal(first, made.sample(4, 3))
    assert not torch.equal(first, drawn)


def test_where_the_compiler_fails_the_network_is_used_as_it_is(monkeypatch):
    def failing(*args, **masks):
        raise InternalTorchDynamoError("no such luck\nand more")

    monkeypatch.setattr(torch, "compile", lambda fn, mode, dynamic: failing)
    broken = pipeline("discrete")
    with pytest.warns(UserWarning, match="could not be compiled and is used as it is: no such luck$"):
        drawn = broken.sample(4, 3)
    assert torch.equal(drawn, pipeline("discrete", compile=False).sample(4, 3))
    monkeypatch.setattr(torch, "compile", lambda fn, mode, dynamic: lambda *args, **masks: fn(*args, wrong=1, **masks))
    with pytest.raises(TypeError, match="wrong"):
        pipeline("discrete").sample(4, 3)


def test_the_masked_network_is_used_as_it_is(counter):
    pipeline("tauldr", net="masked_transformer").sample(2, 3)
    assert counter.frame_count == 0


def test_the_commands_compile_where_they_are_asked_to(counter, tmp_path, capsys, monkeypatch):
    fit(tiny_recipe(tmp_path, steps=2), tmp_path / "run", progress=False)
    run = str(tmp_path / "run")
    main(["sample", run, "--steps", "3", "--out", str(tmp_path / "plain.npz"), "--device", "cpu"])
    assert counter.frame_count == 0
    main(["sample", run, "--steps", "3", "--out", str(tmp_path / "x.npz"), "--device", "cpu", "--compile", "true"])
    assert counter.frame_count == 1
    few = ["--steps", "3", "--runs", "1", "--limit", "3", "--device", "cpu", "--compile", "true"]
    main(["evaluate", run, *few, "--out", str(tmp_path / "found.json")])
    assert counter.frame_count == 2  # another number of objects: one compilation for the draws and the bound
    asked = []

    def not_run(title, jobs, at_once):
        asked.extend(jobs)
        return {job.label: "not run" for job in jobs}

    monkeypatch.setattr(compare_jobs, "run_jobs", not_run)
    main(["compare", "--methods", run, "--compile", "true", "--device", "cpu", "--out", str(tmp_path / "compared")])
    (job,) = asked
    assert "--compile=true" in job.arguments
