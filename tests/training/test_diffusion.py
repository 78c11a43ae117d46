"""The module that trains a diffusion model: who makes its steps, and what it notices."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import yaml
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import nn

import usd3
from support.runs import tiny_recipe, weights_of
from usd3.core.options import DiffusionConfig
from usd3.methods import USD3
from usd3.nets import Hollow
from usd3.nets.options import ModelConfig
from usd3.training.checkpoints import find_checkpoints
from usd3.training.clock import Clock
from usd3.training.diffusion import DiffusionTraining
from usd3.training.options import TrainingConfig
from usd3.training.run import fit


def test_a_loss_that_is_no_number_is_noticed():
    d = usd3.Diffusion(usd3.Uniform(3), usd3.Cosine(), validate=False)
    module = DiffusionTraining(torch.nn.Embedding(3, 3), USD3(d), TrainingConfig())
    module._recent = [torch.tensor([math.nan, 1.0])]
    with pytest.raises(ArithmeticError, match="the loss is nan at step 0"):
        module.log_recent()


@pytest.mark.parametrize("change", [{}, {"precision": "bf16"}, {"clip": None, "ema": 0.0, "optimizer": "adam"}])
def test_lightning_doing_the_step_itself_gives_the_same_run(tmp_path, change, monkeypatch):
    recipe = tiny_recipe(tmp_path, **change)
    monkeypatch.setattr(Clock, "now", staticmethod(lambda: 0.0))  # the log has the minutes
    ours = fit(recipe, tmp_path / "ours", progress=False)
    monkeypatch.setattr(DiffusionTraining, "_take_over_step", lambda self, optimizer: None)
    theirs = fit(recipe, tmp_path / "theirs", progress=False)
    assert torch.equal(weights_of(ours), weights_of(theirs))
    logs = [(tmp_path / name / "logs/version_0/metrics.csv").read_text() for name in ("ours", "theirs")]
    assert logs[0] == logs[1]
    states = [torch.load(find_checkpoints(tmp_path / name / "checkpoints")[0]) for name in ("ours", "theirs")]
    assert states[0]["global_step"] == states[1]["global_step"] == 8
    assert states[0]["lr_schedulers"][0]["_last_lr"] == states[1]["lr_schedulers"][0]["_last_lr"]


def test_a_run_may_change_how_its_steps_are_made_when_it_is_resumed(tmp_path):
    recipe = tiny_recipe(tmp_path, cuda_graph="never")
    whole = fit(recipe, tmp_path / "run", progress=False)
    newest, older = find_checkpoints(tmp_path / "run" / "checkpoints")
    newest.unlink()
    state = torch.load(older)
    for group in state["optimizer_states"][0]["param_groups"]:  # as a GPU writes them
        group |= {"fused": True, "capturable": True}
    torch.save(state, older)
    changed = replace(recipe, training=replace(recipe.training, cuda_graph="auto"))
    resumed = fit(changed, tmp_path / "run", resume=True, progress=False)
    assert torch.equal(weights_of(whole), weights_of(resumed))
    assert yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())["training"]["cuda_graph"] == "auto"
    for group in torch.load(newest)["optimizer_states"][0]["param_groups"]:
        assert (group["fused"], group["capturable"]) == (None, False)
        assert isinstance(group["lr"], float)


@pytest.mark.parametrize(("noise", "mode"), [("absorbing", "never"), ("uniform", "auto")])
def test_a_projection_of_masked_elements_alone_does_less_than_a_graph_could(noise, mode, monkeypatch):
    diffusion = DiffusionConfig(noise).build(5)
    model = ModelConfig("transformer", dim=16, depth=1, heads=2, projection=True).build(diffusion)
    module = DiffusionTraining(model, USD3(diffusion), TrainingConfig())
    trainer = SimpleNamespace(strategy=SingleDeviceStrategy("cpu"), world_size=1)
    monkeypatch.setattr(DiffusionTraining, "trainer", trainer)
    monkeypatch.setattr(DiffusionTraining, "device", torch.device("cuda"))
    assert module.graph_mode() == mode


@pytest.mark.parametrize(
    ("net", "change", "mode"),
    [
        ("transformer", {}, "auto"),
        ("film", {"compile": True, "precision": "bf16"}, "auto"),
        ("transformer", {"cuda_graph": "never"}, "never"),
        ("transformer", {"accumulate": 2}, "never"),
        ("transformer", {"compile": True, "compile_mode": "max-autotune"}, "never"),
        ("torch.nn.Embedding", {}, "never"),
        ("torch.nn.Embedding", {"cuda_graph": "always"}, "always"),
    ],
)
@pytest.mark.parametrize("hollow", [False, True])
def test_which_runs_get_a_graph_on_one_gpu(net, change, mode, hollow, monkeypatch):
    monkeypatch.setattr("usd3.training.module.compiled", lambda function, mode: function)
    diffusion = DiffusionConfig().build(5)
    model = (
        nn.Embedding(5, 5) if "." in net else ModelConfig(net, dim=16, depth=1, heads=2, hollow=False).build(diffusion)
    )
    module = DiffusionTraining(Hollow(model, diffusion) if hollow else model, USD3(diffusion), TrainingConfig(**change))
    trainer = SimpleNamespace(strategy=SingleDeviceStrategy("cpu"), world_size=1)
    monkeypatch.setattr(DiffusionTraining, "trainer", trainer)
    monkeypatch.setattr(DiffusionTraining, "device", torch.device("cuda"))
    assert module.graph_mode() == mode
    trainer.strategy = None
    if mode == "always":
        with pytest.raises(ValueError, match=r"training\.cuda_graph = always: expected one process on a GPU"):
            module.graph_mode()
    else:
        assert module.graph_mode() == "never"


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_graph_needs_a_gpu(tmp_path):
    recipe = tiny_recipe(tmp_path, accelerator="auto", cuda_graph="always")
    with pytest.raises(
        ValueError, match=r"training\.cuda_graph = always: expected one process on a GPU, found 1 on cpu"
    ):
        fit(recipe, tmp_path / "run", progress=False)
