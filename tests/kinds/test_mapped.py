"""Arrays that stay on the disk: the same splits, tokens and padding as in memory, and next to no memory."""

import numpy as np
import pytest
import torch

from support.runs import memory_below
from usd3.kinds.array import load_arrays
from usd3.kinds.dataset import Sequences
from usd3.kinds.fingerprints import fingerprint, fingerprint_of_rows
from usd3.kinds.mapped import MappedRows
from usd3.kinds.scramble import scramble
from usd3.kinds.splits import is_test_group, is_test_row, split_rows
from usd3.training.batches import Batches

ROWS = np.random.default_rng(0).integers(0, 7, (200, 3, 5))


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """A function that loads an array twice: into memory, and memory-mapped."""

    def load(array, **options):
        np.save(tmp_path / "data.npy", array)
        in_memory = load_arrays(tmp_path / "data.npy", **options)
        monkeypatch.setattr("usd3.kinds.numpy_files._MOST_IN_MEMORY", 100)
        monkeypatch.setattr("usd3.kinds.mapped.PIECE", 64)
        return in_memory, load_arrays(tmp_path / "data.npy", **options)

    return load


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">i4", "<u2", "<u8", "<i8"])
@pytest.mark.parametrize("largest", [6, 100, 1000])
def test_mapped_splits_are_those_of_memory(loaded, dtype, largest):
    if largest > np.iinfo(dtype).max:
        return
    array = ROWS.astype(dtype)
    array[0, 0, 0] = largest
    memory, mapped = loaded(array, test_fraction=0.3, seed=5)
    assert mapped.num_classes == memory.num_classes == largest + 1
    for here, there in ((memory.train, mapped.train), (memory.test, mapped.test)):
        assert isinstance(here, Sequences)
        assert isinstance(there, MappedRows)
        assert (len(here), here.shape, here.nbytes) == (len(there), there.shape, there.nbytes)
        assert torch.equal(here.tokens, there.tokens)
        assert here.tokens.dtype == there.tokens.dtype
        assert there.pad is None
        assert fingerprint_of_rows(there) == fingerprint(here.tokens, here.pad)
        assert torch.equal(torch.cat([tokens for tokens, _ in there.pieces()]), here.tokens)
        assert torch.equal(here.spread(60).tokens, there.spread(60).tokens)


def test_padding_and_other_names_are_those_of_memory(loaded):
    array = np.where(ROWS == 3, -1, ROWS)
    memory, mapped = (scramble(dataset, 1) for dataset in loaded(array, pad_value=-1, num_classes=9))
    for here, there in ((memory.train, mapped.train), (memory.test, mapped.test)):
        assert torch.equal(here.pad, there.pad)
        assert torch.equal(here.tokens[~here.pad], there.tokens[~there.pad])
        assert fingerprint_of_rows(here) == fingerprint_of_rows(there)
        moved = there.in_memory(torch.device("cpu"))
        assert torch.equal(moved.tokens, there.tokens)
        assert torch.equal(moved.pad, here.pad)
        assert there.to(torch.device("cpu")) is there
    batches = [Batches(dataset.train, 16, 0, lambda: 0, 1, 0, 1).batch(3, 0) for dataset in (memory, mapped)]
    assert torch.equal(batches[0]["tokens"], batches[1]["tokens"])
    assert torch.equal(batches[0]["pad"], batches[1]["pad"])


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (ROWS - 1, {}, r"= -1: expected categories"),
        (ROWS, {"num_classes": 6}, r"token of train = 6: expected categories 0\.\.5"),
        (ROWS.astype(float), {}, "dtype = float64: expected integers"),
        (np.full((200, 2), -1), {"pad_value": -1}, "nothing but -1"),
        (np.where(np.arange(200)[:, None] == 150, -1, ROWS[:, 0]), {"pad_value": -1}, "True everywhere in row 150"),
        (np.where(np.arange(200)[:, None] == 150, 10**6, ROWS[:, 0]), {}, "num_classes = None"),
    ],
)
def test_unfit_arrays_are_refused_on_the_disk_too(tmp_path, monkeypatch, array, options, message):
    np.save(tmp_path / "data.npy", array)
    monkeypatch.setattr("usd3.kinds.numpy_files._MOST_IN_MEMORY", 100)
    monkeypatch.setattr("usd3.kinds.mapped.PIECE", 64)
    with pytest.raises(ValueError, match=message):
        load_arrays(tmp_path / "data.npy", **options)


def test_an_array_that_says_to_be_larger_than_its_file_is_not_mapped(tmp_path, monkeypatch):
    monkeypatch.setattr("usd3.kinds.numpy_files._MOST_IN_MEMORY", 100)
    np.save(tmp_path / "data.npy", ROWS)
    content = (tmp_path / "data.npy").read_bytes()
    (tmp_path / "data.npy").write_bytes(content[:-8])
    with pytest.raises(ValueError, match=r"expected a \.npy or \.npz file of plain numbers"):
        load_arrays(tmp_path / "data.npy")


@pytest.mark.parametrize("fraction", [0.001, 0.1, 0.37])
def test_rows_are_split_as_groups_of_one_are(fraction):
    for seed in range(3):
        assert is_test_row(500, fraction, seed).tolist() == is_test_group([1] * 500, fraction, seed)


def test_a_computed_split_has_every_row_once(monkeypatch):
    monkeypatch.setattr("usd3.kinds.splits._MOST_LISTED", 10)
    for seed in (0, 1):
        train, test = split_rows(1000, 0.1, seed)
        assert (len(train), len(test)) == (900, 100)
        rows = [part.rows(torch.arange(len(part))) for part in (train, test)]
        assert torch.cat(rows).sort().values.tolist() == list(range(1000))
        for part, expected in zip((train, test), rows):
            chunks = list(part.chunks(64))
            assert len(chunks) == 16
            assert torch.equal(torch.cat(chunks), expected.sort().values)
    assert not torch.equal(rows[1], split_rows(1000, 0.1, 0)[1].rows(torch.arange(100)))


def test_a_large_file_takes_little_memory(tmp_path):
    """Half a gigabyte that a sparse file stores as nothing: loaded, split and taken from."""
    path = tmp_path / "data.npy"
    np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(2**22, 128)).flush()
    with memory_below(2**26):
        dataset = load_arrays(path, num_classes=5)
        assert (len(dataset.train), len(dataset.test)) == (2**22 - 2**22 // 10, 2**22 // 10)
        assert dataset.train.take(torch.tensor([0, len(dataset.train) - 1]))[0].shape == (2, 128)
        assert len(dataset.train.spread(2**14)) == 2**7
