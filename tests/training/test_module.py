"""The training pieces by themselves; whole runs are in test_experiment.py."""

import math
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import usd3
from usd3._internal.compile import compiled
from usd3._internal.random import seed_of
from usd3.core.given import box_given, draw_given, named_elements, prefix_given, region_given
from usd3.kinds.dataset import Dataset, Sequences
from usd3.kinds.scramble import scramble
from usd3.methods import USD3
from usd3.training.batches import Batches, storage_device, transposer
from usd3.training.data import SequenceData
from usd3.training.diffusion import DiffusionTraining
from usd3.training.ema import Ema
from usd3.training.options import TrainingConfig


def rows(count: int = 10) -> Sequences:
    return Sequences(torch.arange(count)[:, None].expand(-1, 3))


def batches(first_step: int = 0, batch_size: int = 4, parts: int = 1, rank: int = 0, world: int = 1, seed: int = 0):
    return Batches(rows(), batch_size, seed, lambda: first_step, parts, rank, world)


def cpu_trainer():
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    return SimpleNamespace(global_step=0, world_size=1, global_rank=0, strategy=strategy)


def test_every_pass_takes_each_object_once_in_another_order():
    found = torch.cat([batches().batch(step, 0)["tokens"][:, 0] for step in range(5)])
    assert sorted(found[:10].tolist()) == sorted(found[10:].tolist()) == list(range(10))
    assert found[:10].tolist() != found[10:].tolist()
    assert found.tolist() != torch.cat([batches(seed=1).batch(s, 0)["tokens"][:, 0] for s in range(5)]).tolist()


def test_batches_go_on_where_the_run_was():
    from_start, later = iter(batches()), iter(batches(first_step=3))
    for _ in range(3):
        next(from_start)
    for _ in range(4):
        a, b = next(from_start), next(later)
        assert torch.equal(a["tokens"], b["tokens"])
        assert a["step"] == b["step"]


def test_processes_and_parts_share_the_same_batch():
    whole = batches().batch(2, 0)["tokens"]
    accumulated = iter(batches(first_step=2, parts=2))
    processes = [iter(batches(first_step=2, parts=2, rank=rank, world=2)) for rank in range(2)]
    for made in ([next(accumulated), next(accumulated)], [next(p) for p in processes]):
        assert torch.equal(torch.cat([part["tokens"] for part in made]), whole)
        assert [part["part"] for part in made] == [0, 1]


def test_a_batch_that_cannot_be_divided_is_refused():
    with pytest.raises(ValueError, match=r"training\.batch_size = 4: expected a multiple of 3"):
        batches(parts=3)


def test_seeds_differ_in_every_number():
    made = {seed_of(a, b, c) for a in range(5) for b in range(5) for c in range(5)}
    assert len(made) == 125
    assert all(0 <= seed < 2**63 for seed in made)


@pytest.mark.parametrize("scrambled", [False, True])
def test_transposition_moves_melodies_and_keeps_rests(scrambled):
    tokens = torch.tensor([[60, 128, 64, 67], [0, 1, 128, 5], [127, 120, 128, 128]] * 100)
    dataset = Dataset("x", 129, Sequences(tokens), Sequences(tokens[:1]), music=True)
    dataset = scramble(dataset, 3) if scrambled else dataset
    data = SequenceData(dataset, TrainingConfig(batch_size=300), transpose=2)
    data.trainer = cpu_trainer()
    order = data.train_dataloader()._rows(0, 300)
    moved = dataset.decoded(next(iter(data.train_dataloader()))["tokens"])
    before = tokens[order]
    assert torch.equal(moved == 128, before == 128)
    shift = torch.where(before == 128, 0, moved - before)
    sounding = before != 128
    found = {(int(b[0]), int(s[m].unique().item())) for b, s, m in zip(before, shift, sounding)}
    assert found == {(60, i) for i in range(-2, 3)} | {(0, i) for i in range(3)} | {(127, i) for i in range(-2, 1)}


def test_padding_does_not_limit_transposition():
    tokens = torch.tensor([[60, 64, 0, 0]] * 200)
    padded = Sequences(tokens, torch.tensor([[False, False, True, True]] * 200))
    data = SequenceData(Dataset("x", 129, padded, padded, music=True), TrainingConfig(batch_size=200), transpose=2)
    data.trainer = cpu_trainer()
    moved = next(iter(data.train_dataloader()))["tokens"]
    assert set(moved[:, 0].tolist()) == {58, 59, 60, 61, 62}
    assert not moved[:, 2:].any()


@pytest.mark.parametrize("scrambled", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_batches_are_those_of_a_plain_index(scrambled, padded):
    """Tables and objects that lie on a device give what the dataset itself says."""
    tokens = torch.randint(129, (50, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    rows = Sequences(tokens, torch.arange(6).expand(50, 6) > 3 if padded else None)
    dataset = Dataset("x", 129, rows, rows, music=True)
    dataset = scramble(dataset, 3) if scrambled else dataset
    made = Batches(dataset.train, 20, 5, lambda: 0, 2, 0, 1, transposer(dataset, 4, "cpu"), device="cpu")
    order = torch.cat(
        [torch.randperm(50, generator=torch.Generator().manual_seed(seed_of(5, number))) for number in range(4)]
    )
    for step, part in [(0, 0), (2, 0), (2, 1), (4, 1), (9, 1), (7, 0)]:
        chosen = order[20 * step + 10 * part :][:10]
        found = made.batch(step, part)
        original = dataset.decoded(dataset.train.tokens[chosen].long())
        sounding = original < 128
        if padded:
            assert torch.equal(found["pad"], rows.pad[chosen])
            sounding &= ~rows.pad[chosen]
        generator = torch.Generator().manual_seed(seed_of(5, step, part, 1))
        shift = torch.randint(-4, 5, (10,), generator=generator)
        low, high = torch.where(sounding, original, 127).amin(1), torch.where(sounding, original, 0).amax(1)
        moved = original + shift.maximum(-low).minimum(127 - high)[:, None]
        assert torch.equal(found["tokens"], dataset.encoded(torch.where(sounding, moved, original)))
        assert ("pad" in found) == padded


def test_objects_stay_on_the_cpu_where_there_is_no_gpu():
    assert storage_device(rows(), torch.device("cpu")) == torch.device("cpu")


def test_masks_of_training_are_of_every_kind():
    torch.manual_seed(0)
    given = draw_given("random", torch.zeros(4000, 8, dtype=torch.long))
    changes = (given[:, 1:] != given[:, :-1]).sum(1)
    nothing = ~given.any(1)
    prefix = given[:, 0] & ~given[:, -1] & (changes == 1)
    gap = given[:, 0] & given[:, -1] & (changes == 2)
    assert 0.25 < nothing.float().mean() < 0.45
    assert prefix.float().mean() > 0.2
    assert gap.float().mean() > 0.05
    assert (changes > 2).float().mean() > 0.05
    assert draw_given("none", given.long()) is None
    fixed = draw_given("prefix", torch.zeros(2, 8, dtype=torch.long), 3)
    assert fixed is not None
    assert fixed.tolist() == [[True] * 3 + [False] * 5] * 2
    shaped = draw_given("random", torch.zeros(4, 2, 4, dtype=torch.long))
    assert shaped is not None
    assert shaped.shape == (4, 2, 4)


def test_gaps_of_objects_with_several_dimensions_are_boxes():
    torch.manual_seed(0)
    x = torch.zeros(3000, 4, 6, dtype=torch.long)
    given = draw_given("random", x)
    assert given is not None
    free = ~given
    rows, columns = free.any(2), free.any(1)
    spans = [
        (line[:, 1:] != line[:, :-1]).sum(1) + line[:, 0].long() + line[:, -1].long() == 2 for line in (rows, columns)
    ]
    area = rows.sum(1) * columns.sum(1)
    box = spans[0] & spans[1] & (free.flatten(1).sum(1) == area)
    inner = box & given[:, 0].any(1) & given[:, -1].any(1) & ~given.flatten(1).all(1)
    assert 0.2 < inner.float().mean() < 0.5  # a quarter, and a few of the other kinds that happen to be boxes
    assert len(area[inner].unique()) > 8
    assert len({(int(r.long().argmax()), int(c.long().argmax())) for r, c in zip(rows[inner], columns[inner])}) == 24
    torch.manual_seed(0)
    flat = draw_given("random", x.flatten(1))
    same = (flat == given.flatten(1)).all(1)
    assert 0.7 < same.float().mean() < 0.85  # all kinds but the gap are as for flat objects


@pytest.mark.parametrize("shape", [(6,), (3, 5), (2, 3, 4)])
def test_no_mask_waits_for_the_device(shape):
    with FakeTensorMode():  # has no values, so whoever asks for one fails
        given = draw_given("random", torch.zeros(4, *shape, dtype=torch.long))
    assert given is not None
    assert given.shape == (4, *shape)


def test_flat_masks_stay_as_they_were():
    torch.manual_seed(5)
    given = draw_given("random", torch.zeros(4, 6, dtype=torch.long))
    assert given is not None
    assert ["".join("-x"[int(g)] for g in row) for row in given] == ["xxxx-x", "------", "-x----", "xxxx--"]


def test_masks_of_generation():
    box = box_given((3, 4), [(1, 3), (0, 2)])
    assert box.tolist() == [[True] * 4, [False, False, True, True], [False, False, True, True]]
    assert torch.equal(box_given((4,), [(1, 3)]), region_given(4, 1, 3))
    for ranges in ([(1, 3)], [(1, 3), (2, 2)], [(1, 3), (0, 5)]):
        with pytest.raises(ValueError, match="expected"):
            box_given((3, 4), ranges)
    assert prefix_given(4, 2).tolist() == [True, True, False, False]
    assert region_given(4, 1, 3).tolist() == [True, False, False, True]
    assert named_elements((8,), "0:2;4:5; 4:6").nonzero().flatten().tolist() == [0, 1, 4, 5]
    assert torch.equal(
        named_elements((3, 4), "1:3,0:2;0:1,3:4;11:12").nonzero(),
        torch.tensor([[0, 3], [1, 0], [1, 1], [2, 0], [2, 1], [2, 3]]),
    )
    for call in (lambda: prefix_given(4, 5), lambda: region_given(4, 3, 3), lambda: region_given(4, 0, 5)):
        with pytest.raises(ValueError, match="expected"):
            call()
    with pytest.raises(ValueError, match="prefix = 8"):
        draw_given("prefix", torch.zeros(2, 8, dtype=torch.long), 8)


def test_learning_rates():
    def rates(*steps, **config):
        made = TrainingConfig(**{"steps": 100, "warmup": 10} | config)
        return [made.learning_rate(step) for step in steps]

    assert rates(0, 4, 9, 10, decay="constant") == pytest.approx([0.1, 0.5, 1, 1])
    assert rates(10, 55, 100, 120, decay="cosine") == pytest.approx([1, 0.5, 0, 0])
    assert rates(10, 55, 100, decay="linear") == pytest.approx([1, 0.5, 0])
    assert rates(19, 20, 45, decay="halve", halve_every=20) == pytest.approx([1, 0.5, 0.25])
    assert rates(0, decay="constant", warmup=0) == [1]
    assert rates(9, 24, decay="constant", warmup=50) == pytest.approx([0.4, 1])  # at most a quarter of the steps
    assert rates(9, 24, decay="halve", warmup=50) == pytest.approx([0.2, 0.5])  # counted in steps, like the halving


def test_learning_rates_follow_the_clock_where_it_is_ahead_of_the_steps():
    config = TrainingConfig(steps=1000, warmup=100, decay="linear")
    assert config.learning_rate(9, 0.5) == pytest.approx(0.5)  # the rise takes a quarter of the time at most
    assert config.learning_rate(9, 0.05) == pytest.approx(0.2 * 0.95)
    assert config.learning_rate(39, 0.05) == pytest.approx(0.4 * 0.95)
    assert config.learning_rate(550, 0.1) == config.learning_rate(550)
    assert [config.learning_rate(300, spent) for spent in (1.0, 1.2)] == [0, 0]
    halving = TrainingConfig(steps=1000, warmup=100, decay="halve")
    assert halving.learning_rate(9, 0.5) == pytest.approx(0.1)


def test_the_average_follows_the_ramp():
    module = torch.nn.Linear(1, 1, bias=False)
    ema, trainer = Ema(0.5), SimpleNamespace(global_step=0)
    torch.nn.init.zeros_(module.weight)
    ema.on_fit_start(trainer, module)
    ema.on_train_start(trainer, module)
    expected = 0.0
    for step in range(1, 30):
        trainer.global_step = step
        torch.nn.init.constant_(module.weight, float(step))
        for _ in range(2):  # the second part of an accumulated batch moves nothing
            ema.on_train_batch_end(trainer, module, None, None, 0)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    assert ema.averages[0].item() == pytest.approx(expected)
    with ema.averaged(module):
        assert module.weight.item() == pytest.approx(expected)
    assert module.weight.item() == 29


def test_a_loss_that_is_no_number_is_noticed():
    d = usd3.Diffusion(usd3.Uniform(3), usd3.Cosine(), validate=False)
    module = DiffusionTraining(torch.nn.Embedding(3, 3), USD3(d), TrainingConfig())
    module._recent = [torch.tensor([math.nan, 1.0])]
    with pytest.raises(ArithmeticError, match="the loss is nan at step 0"):
        module.log_recent()


def test_compiling_does_not_advise_less_exact_products(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    advice = "TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled. Consider it"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(torch.sin)
        warnings.warn(advice, stacklevel=1)
        with pytest.raises(UserWarning, match="another"):
            warnings.warn("another", stacklevel=1)
