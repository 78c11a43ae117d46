"""The whole step is what a loop written by hand does. Graphs on a GPU are in test_step_cuda.py."""

import gc
import weakref

import pytest
import torch
from torch import nn

from support.fake_cuda import FakeCuda
from usd3._internal.random import seed_draws
from usd3.training import step as step_module
from usd3.training.ema import Ema
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
