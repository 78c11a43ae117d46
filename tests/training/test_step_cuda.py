"""Steps as CUDA graphs do what plain steps do. Skipped where there is no GPU."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from support.cuda import synchronisations
from support.runs import tiny_recipe, weights_of
from usd3._internal.compile import compiled
from usd3._internal.random import seed_draws
from usd3.core.options import DiffusionConfig
from usd3.kinds.dataset import Dataset, Sequences
from usd3.kinds.melody.transpose import transposer
from usd3.kinds.scramble import scramble
from usd3.nets.options import ModelConfig
from usd3.training.batches import Batches, storage_device
from usd3.training.checkpoints import find_checkpoints
from usd3.training.clock import Clock
from usd3.training.ema import Ema
from usd3.training.run import fit
from usd3.training.step import WholeStep

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")


def tokens(step: int) -> torch.Tensor:
    return torch.randint(5, (16, 8), generator=torch.Generator().manual_seed(step), dtype=torch.uint8)


class Run:
    """A network in training; `run(n)` trains n steps and gives the losses."""

    def __init__(self, graph, net="transformer", bf16=False, compile=False, before=lambda x: None, show=None):
        torch.manual_seed(0)
        diffusion = DiffusionConfig().build(5)
        diffusion.validate = False
        config = ModelConfig(net, dim=16, depth=2, heads=2, mlp=32, time_dim=8, dropout=0.1)
        self.model, self.ema, self.done = config.build(diffusion).cuda(), Ema(0.9), 0
        self.ema.on_fit_start(None, self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2, fused=True)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1 / (1 + step))

        def loss(batch):
            before(batch["tokens"])
            out = diffusion.loss(self.model, batch["tokens"].long(), stratified=True)
            return out.loss, out.vlb if show is None else show()

        loss = compiled(loss) if compile else loss
        average = self.ema.hand_over(self.model)
        self.loss = loss
        self.step = WholeStep(loss, self.model.parameters(), self.optimizer, 1.0, bf16, average, graph)

    def __call__(self, steps, seed=None):
        shown = []
        for _ in range(steps):
            seed_draws(self.done if seed is None else seed, CUDA)
            found = self.step({"tokens": tokens(self.done).cuda()}, self.ema.rate(self.done + 1))
            self.scheduler.step()
            self.done += 1
            shown.append([value.clone() for value in found])
        return shown

    def state(self):
        return [*(p.detach() for p in self.model.parameters()), *self.ema.averages]


def assert_same(first, second):
    torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize("net", ["transformer", "film"])
@pytest.mark.parametrize("bf16", [False, True])
def test_a_graph_trains_as_plain_steps_do(net, bf16):
    plain, graph = Run("never", net, bf16), Run("always", net, bf16)
    assert_same(graph(10), plain(10))
    assert_same(graph.state(), plain.state())
    assert graph.step.captured
    assert not plain.step.captured
    assert all(isinstance(group["lr"], float) for group in graph.optimizer.param_groups)
    assert not any(group["capturable"] for group in graph.optimizer.param_groups)


def test_a_compiled_loss_can_be_captured():
    plain, graph = Run("never", bf16=True, compile=True), Run("always", bf16=True, compile=True)
    torch.testing.assert_close(graph(8), plain(8), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(graph.state(), plain.state(), rtol=1e-3, atol=1e-4)
    assert graph.step.captured


def test_a_graph_follows_the_learning_rate_and_the_average_of_a_loop_by_hand():
    graph, other = Run("always"), Run("never")
    graph(10)
    averages = [p.detach().clone() for p in other.model.parameters()]
    for step in range(10):
        seed_draws(step, CUDA)
        other.optimizer.zero_grad()
        other.loss({"tokens": tokens(step).cuda()})[0].backward()
        torch.nn.utils.clip_grad_norm_(other.model.parameters(), 1.0)
        other.optimizer.step()
        other.scheduler.step()
        decay = min(0.9, (2 + step) / (11 + step))
        torch._foreach_lerp_(averages, [p.detach() for p in other.model.parameters()], 1 - decay)
    torch.testing.assert_close(graph.state()[: len(averages)], other.state()[: len(averages)], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(graph.ema.averages, averages, rtol=1e-4, atol=1e-5)
    rates = [group["lr"] for group in graph.optimizer.param_groups]
    assert rates == pytest.approx([1e-2 / 11] * len(rates))


def test_every_replay_draws_anew_and_as_its_seed_says():
    show = lambda: F.dropout(torch.rand(64, device="cuda"))
    graph = Run("always", show=show)
    graph(5)
    assert graph.step.captured
    found = {seed: graph(1, seed)[0][1] for seed in (1, 2)}
    assert not torch.equal(found[1], found[2])
    assert torch.equal(graph(1, 1)[0][1], found[1])
    before = [p.detach().clone() for p in graph.model.parameters()]
    graph(1, 1)
    assert not all(torch.equal(a, b) for a, b in zip(before, graph.model.parameters()))


def test_other_work_between_replays_changes_nothing():
    quiet, disturbed = Run("always"), Run("always")
    for _ in range(8):
        quiet(1)
        disturbed(1)
        with torch.no_grad(), disturbed.ema.averaged(disturbed.model):
            disturbed.model(tokens(0).long().cuda(), torch.rand(16, device="cuda"))
        torch.randn(1 << 20, device="cuda").sort()
    assert_same(quiet.state(), disturbed.state())


def test_a_step_and_its_batch_do_not_wait_for_the_gpu():
    rows = torch.randint(129, (64, 8), dtype=torch.uint8)
    dataset = scramble(Dataset("x", 129, Sequences(rows, rows == 3), Sequences(rows)), 1)
    batches = Batches(dataset.train, 16, 0, lambda: 0, 1, 0, 1, transposer(2, dataset.decode, CUDA), CUDA)
    graph = Run("always")
    graph(5)
    with synchronisations() as seen:
        for step in range(8):  # two passes
            batch = batches.batch(step, 0)
            seed_draws(step, CUDA)
            graph.step({"tokens": batch["tokens"].clamp(max=4).byte()}, 0.1)
    assert not seen, [str(warning.message) for warning in seen]


@pytest.mark.parametrize("scrambled", [False, True])
def test_batches_on_the_gpu_are_those_of_the_cpu(scrambled):
    rows = torch.randint(129, (50, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    padded = Sequences(rows, torch.arange(8).expand(50, 8) > 5)
    dataset = Dataset("x", 129, padded, padded)
    dataset = scramble(dataset, 1) if scrambled else dataset
    assert storage_device(dataset.train, CUDA) == CUDA
    cpu, gpu = (
        Batches(dataset.train, 16, 0, lambda: 0, 1, 0, 1, transposer(3, dataset.decode, device), device)
        for device in ("cpu", CUDA)
    )
    for step in range(9):
        a, b = cpu.batch(step, 0), gpu.batch(step, 0)
        assert torch.equal(a["tokens"], b["tokens"].cpu())
        assert torch.equal(a["pad"], b["pad"].cpu())
        assert b["tokens"].is_cuda


def wait(x):
    """A network that asks for a value, which no graph can hold."""
    x.sum().item()


def test_a_step_that_cannot_be_captured_goes_on_without_a_graph():
    plain, other = Run("never", before=wait), Run("auto", before=wait)
    first = other(3)
    with pytest.warns(UserWarning, match="goes on without a CUDA graph"):
        first += other(1)
    assert_same(first + other(4), plain(8))
    assert_same(other.state(), plain.state())
    assert not other.step.captured
    again = Run("always")  # what the failed capture left behind does not disturb another
    again(6)
    assert again.step.captured


def test_always_says_why_there_is_no_graph():
    run = Run("always", before=wait)
    run(3)
    with pytest.raises(RuntimeError, match="cuda_graph = always: expected a step that can be captured"):
        run(1)
    assert torch.rand(3, device="cuda").shape == (3,)


def test_batches_of_another_shape_are_refused():
    run = Run("always")
    run(5)
    with pytest.raises(ValueError, match=r"batch = .*: expected the shapes of the first one"):
        run.step({"tokens": tokens(0)[:8].cuda()})


# ---- whole runs ------------------------------------------------------------------------------------------------------


def gpu_recipe(folder, **change):
    return tiny_recipe(folder, **{"accelerator": "gpu", "devices": 1, "steps": 12} | change)


@pytest.mark.parametrize("change", [{}, {"precision": "bf16"}, {"ema": 0.0, "clip": None, "optimizer": "adam"}])
def test_a_run_with_graphs_is_a_run_without(tmp_path, change, monkeypatch):
    monkeypatch.setattr(Clock, "now", staticmethod(lambda: 0.0))  # the log has the minutes
    found = {
        mode: fit(gpu_recipe(tmp_path, cuda_graph=mode, **change), tmp_path / mode, progress=False)
        for mode in ("never", "auto", "always")
    }
    assert_same(weights_of(found["always"]), weights_of(found["never"]))
    assert_same(weights_of(found["auto"]), weights_of(found["never"]))
    logs = [(tmp_path / name / "logs/version_0/metrics.csv").read_text() for name in found]
    assert logs[0] == logs[1] == logs[2]


@pytest.mark.parametrize(("first", "then"), [("always", "always"), ("always", "never"), ("never", "always")])
def test_a_run_resumes_with_and_without_graphs(tmp_path, first, then):
    recipe = gpu_recipe(tmp_path, cuda_graph=first)
    whole = fit(recipe, tmp_path / "run", progress=False)
    newest = find_checkpoints(tmp_path / "run" / "checkpoints")[0]
    for group in torch.load(newest)["optimizer_states"][0]["param_groups"]:
        assert isinstance(group["lr"], float)
        assert not group["capturable"]
    newest.unlink()
    changed = replace(recipe, training=replace(recipe.training, cuda_graph=then))
    resumed = fit(changed, tmp_path / "run", resume=True, progress=False)
    assert_same(weights_of(resumed), weights_of(whole))


def test_a_run_can_move_between_the_gpu_and_the_cpu(tmp_path):
    recipe = gpu_recipe(tmp_path, cuda_graph="auto", steps=4)
    fit(recipe, tmp_path / "run", progress=False)
    for steps, accelerator in ((8, "cpu"), (12, "gpu")):
        devices = {"accelerator": accelerator, "steps": steps}
        recipe = replace(recipe, training=replace(recipe.training, **devices))
        fit(recipe, tmp_path / "run", resume=True, progress=False)
    assert find_checkpoints(tmp_path / "run" / "checkpoints")[0].name == "step-00000012.ckpt"


def test_validation_does_not_disturb_a_graph(tmp_path):
    often = fit(gpu_recipe(tmp_path, validate_every=1), tmp_path / "often", progress=False)
    never = fit(gpu_recipe(tmp_path, validate_every=0), tmp_path / "never", progress=False)
    assert_same(weights_of(often), weights_of(never))
