"""The whole step is what a loop written by hand does. Graphs on a GPU are in test_step_cuda.py."""

import gc
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import yaml
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import nn

from support.fake_cuda import FakeCuda
from support.runs import tiny_recipe, weights_of
from usd3._internal.random import seed_draws
from usd3.core.options import DiffusionConfig
from usd3.methods import USD3
from usd3.nets import Hollow
from usd3.nets.options import ModelConfig
from usd3.training import step as step_module
from usd3.training.checkpoints import find_checkpoints
from usd3.training.clock import Clock
from usd3.training.diffusion import DiffusionTraining
from usd3.training.ema import Ema
from usd3.training.options import TrainingConfig
from usd3.training.run import fit
from usd3.training.step import WholeStep

CPU = torch.device("cpu")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.GELU(), nn.Linear(8, 1))


def batch(step: int) -> torch.Tensor:
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(step))


def adamw(model: nn.Module):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.3)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))


@pytest.mark.parametrize("clip", [None, 0.01])
@pytest.mark.parametrize("bf16", [False, True])
def test_a_step_is_what_a_loop_by_hand_does(clip, bf16):
    by_hand = network()
    optimizer, scheduler = adamw(by_hand)
    averages = [p.detach().clone() for p in by_hand.parameters()]
    losses = []
    for step in range(6):
        torch.manual_seed(step)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = by_hand(batch(step)).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(by_hand.parameters(), clip)
        optimizer.step()
        scheduler.step()
        for average, weight in zip(averages, by_hand.parameters()):
            average.lerp_(weight.detach(), 1 - min(0.9, (2 + step) / (11 + step)))
        losses.append(loss.item())

    model, ema, found = network(), Ema(0.9), []
    optimizer, scheduler = adamw(model)
    ema.on_fit_start(None, model)

    def loss_of(batch):
        loss = model(batch["x"]).float().square().mean()
        return loss, loss + 1

    step_of = WholeStep(loss_of, model.parameters(), optimizer, clip, bf16, ema.hand_over(model), "auto")
    for step in range(6):
        seed_draws(step, CPU)
        loss, shown = step_of({"x": batch(step)}, ema.rate(step + 1))
        scheduler.step()
        assert not loss.requires_grad
        assert shown == loss + 1
        found.append(loss.item())
    assert found == losses
    assert not step_of.captured
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), by_hand.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(ema.averages, averages))


def test_the_surroundings_do_not_change_the_precision():
    model = nn.Linear(2, 2)
    seen = []

    def loss_of(batch):
        loss = model(batch["x"]).sum()
        seen.append(loss.dtype)
        return loss, loss

    optimizer = torch.optim.AdamW(model.parameters())
    with torch.autocast("cpu", torch.bfloat16):
        WholeStep(loss_of, model.parameters(), optimizer)({"x": torch.ones(1, 2)})
    assert seen == [torch.float32]


@pytest.fixture
def graphs(monkeypatch):
    """Graphs on the CPU."""
    monkeypatch.setattr(step_module, "_is_gpu", lambda device: True)
    return FakeCuda(monkeypatch)


def train(graphs, mode, steps, around=lambda loss, batch: loss(batch)):
    """Weights after some steps, the losses, and the step."""
    model, losses = network(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    def plain(batch):
        loss = model(batch["x"]).square().mean()
        return loss, loss

    step_of = WholeStep(lambda batch: around(plain, batch), model.parameters(), optimizer, 0.1, graph=mode)
    states = lambda: [value for state in optimizer.state.values() for value in state.values()]
    graphs.follow(step_of._step, lambda: [p.data for p in model.parameters()] + states())
    for step in range(steps):
        seed_draws(step, CPU)
        losses.append(step_of({"x": batch(step)})[0].item())
        scheduler.step()
        assert all(isinstance(group["lr"], float) and not group["capturable"] for group in optimizer.param_groups)
    return [p.detach() for p in model.parameters()], losses, step_of


def test_a_graph_is_captured_once_and_no_step_is_done_twice(graphs):
    plain, losses, _ = train(graphs, "never", 7)
    found, replayed, step_of = train(graphs, "always", 7)
    assert replayed == losses
    assert all(torch.equal(a, b) for a, b in zip(plain, found))
    assert step_of.captured
    assert graphs.captures == 1
    with pytest.raises(ValueError, match=r"batch = .* expected the shapes of the first one"):
        step_of({"x": batch(0)[:2]})


def test_a_capture_that_fails_leaves_all_as_it_was(graphs):
    calls = []

    def refusing(plain, batch):
        calls.append(1)
        torch.rand(3)
        if graphs.captures and len(calls) == 4:
            raise RuntimeError("operation not permitted when stream is capturing\nand more")
        return plain(batch)

    def drawing(plain, batch):
        torch.rand(3)
        return plain(batch)

    plain, losses, _ = train(graphs, "never", 6, drawing)
    with pytest.warns(UserWarning, match="capture failed: operation not permitted when stream is capturing$"):
        found, others, step_of = train(graphs, "auto", 6, refusing)
    assert others == losses
    assert all(torch.equal(a, b) for a, b in zip(plain, found))
    assert not step_of.captured
    assert len(calls) == 7
    calls.clear()
    with pytest.raises(
        RuntimeError, match=r"cuda_graph = always: expected a step that can be captured .*not permitted"
    ):
        train(graphs, "always", 4, refusing)


def test_a_step_that_is_dropped_takes_its_graph_with_it(graphs):
    """No cycle of references keeps the memory of the graph."""
    step_of = train(graphs, "always", 5)[2]
    graphs.follow(None)
    graph = weakref.ref(step_of._step._graph)
    gc.disable()
    try:
        del step_of
        assert graph() is None
    finally:
        gc.enable()


def test_tensors_of_a_batch_may_come_in_any_order(graphs):
    """A graph tells them by name, not by place."""
    model = nn.Linear(1, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, fused=True)
    loss = lambda batch: (model(batch["x"]).sum() - batch["y"].sum(), batch["x"].sum() - batch["y"].sum())
    step_of = WholeStep(loss, model.parameters(), optimizer, graph="always")
    graphs.follow(step_of._step)
    for step in range(7):
        x, y = torch.full((2, 1), 3.0), torch.ones(2, 1)
        assert step_of({"x": x, "y": y} if step % 2 else {"y": y, "x": x})[1] == 4
    assert step_of.captured


def test_an_optimiser_on_a_gpu_must_be_fused(graphs):
    model = network()
    with pytest.raises(ValueError, match="optimizer = AdamW: expected a fused one"):
        WholeStep(lambda b: None, model.parameters(), torch.optim.AdamW(model.parameters()))


@pytest.mark.parametrize("decay", [0.0, 0.1, 0.99])
def test_a_rate_on_the_device_moves_the_averages_as_a_number_does(decay):
    found = []
    for as_tensor in (False, True):
        model, ema = network(), Ema(decay)
        ema.on_fit_start(None, model)
        move = ema.hand_over(model)
        for step in range(1, 20):
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(step / 7)
            move(torch.tensor(ema.rate(step)) if as_tensor else ema.rate(step))
        found.append(ema.averages)
    torch.testing.assert_close(*found)
    if decay == 0:
        assert all(torch.equal(a, p) for a, p in zip(ema.averages, model.parameters()))


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


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"accumulate": 2}, "training.accumulate 2"),
        ({"strategy": "ddp"}, "training.strategy ddp"),
        ({"devices": 2}, "training.devices 2"),
        ({"nodes": 2}, "training.nodes 2"),
        ({"accelerator": "cpu"}, "training.accelerator cpu"),
        ({"compile": True, "compile_mode": "reduce-overhead"}, "training.compile_mode reduce-overhead"),
    ],
)
def test_settings_that_allow_no_graph_are_refused_with_always(change, setting):
    with pytest.raises(ValueError, match=rf"training\.cuda_graph = always: expected auto or never with {setting}"):
        TrainingConfig(cuda_graph="always", **change)
    for mode in ("auto", "never"):
        assert TrainingConfig(cuda_graph=mode, **change).graph_hindrances == [setting]


def test_an_unknown_choice_is_refused():
    with pytest.raises(ValueError, match=r"training\.cuda_graph = yes: expected one of auto, always, never"):
        TrainingConfig(cuda_graph="yes")


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
