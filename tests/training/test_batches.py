"""Batches: every object once in a pass, the same for any number of processes, and transposed."""

from types import SimpleNamespace

import pytest
import torch

from usd3._internal.random import seed_of
from usd3.kinds.dataset import Dataset, Sequences, Windows
from usd3.kinds.melody.kind import Melody
from usd3.kinds.melody.transpose import transposer
from usd3.kinds.options import DataConfig
from usd3.kinds.scramble import scramble
from usd3.training.batches import Batches, storage_device
from usd3.training.data import SequenceData
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


@pytest.mark.parametrize("scrambled", [False, True])
def test_transposition_moves_melodies_and_keeps_rests(scrambled):
    tokens = torch.tensor([[60, 128, 64, 67], [0, 1, 128, 5], [127, 120, 128, 128]] * 100)
    dataset = Dataset("x", 129, Sequences(tokens), Sequences(tokens[:1]), kind=Melody(129, (4,)))
    dataset = scramble(dataset, 3) if scrambled else dataset
    data = SequenceData(dataset, TrainingConfig(batch_size=300), data=DataConfig(transpose=2))
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
    dataset = Dataset("x", 129, padded, padded, kind=Melody(129, (4,)))
    data = SequenceData(dataset, TrainingConfig(batch_size=200), data=DataConfig(transpose=2))
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
    dataset = Dataset("x", 129, rows, rows)
    dataset = scramble(dataset, 3) if scrambled else dataset
    made = Batches(dataset.train, 20, 5, lambda: 0, 2, 0, 1, transposer(4, dataset.decode), device="cpu")
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


def test_the_order_of_very_many_objects_is_computed(monkeypatch):
    """Each object once in a pass, another order in the next, the same for any number of processes; nothing is kept."""
    monkeypatch.setattr("usd3.training.batches._MOST_IN_A_TABLE", 9)
    found = torch.cat([batches().batch(step, 0)["tokens"][:, 0] for step in range(5)])
    assert sorted(found[:10].tolist()) == sorted(found[10:].tolist()) == list(range(10))
    assert found[:10].tolist() != found[10:].tolist()
    halves = [batches(parts=2).batch(2, part)["tokens"][:, 0] for part in range(2)]
    assert torch.equal(torch.cat(halves), found[8:12])


def test_a_stream_of_billions_gives_batches_without_memory():
    stream = torch.zeros(1, dtype=torch.uint8).expand(10**13)  # in one byte; neither it nor an order could be stored
    made = Batches(Windows(stream, 16), 4, 0, lambda: 0, 1, 0, 1)
    assert made.batch(10**6, 0)["tokens"].shape == (4, 16)
