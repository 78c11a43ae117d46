import numpy as np
import pytest
import torch

from usd3.kinds.chorale.kind import Chorale
from usd3.kinds.chorale.windows import Piece, as_sequences, chorale_dataset

REST = 128


def piece(name, steps, lowest=40):
    """A chorale whose step t is lowest + t % 40 in all voices."""
    return Piece(name, np.repeat(lowest + np.arange(steps)[:, None] % 40, 4, axis=1).astype(np.uint8))


def test_training_windows_begin_at_every_bar():
    data = chorale_dataset("x", [piece("a", 80)], [piece("b", 80)], 32, from_files=True)
    starts = [int(name.partition(" | ")[2]) for name in data.train.names]
    assert starts == [0, 0, 16, 32, 48, 64]  # the first begins before the chorale, the last ends after it
    lengths = (~data.train.pad[..., 0]).sum(1).tolist()
    assert lengths == [16, 32, 32, 32, 32, 16]
    for tokens, pad, start in zip(data.train.tokens, data.train.pad, starts):
        real = int((~pad[:, 0]).sum())
        np.testing.assert_array_equal(tokens[:real], piece("a", 80).steps[start : start + real])
        assert (pad == pad[:, :1]).all()


def test_held_out_windows_have_each_step_once():
    data = chorale_dataset("x", [piece("a", 80)], [piece("b", 80), piece("c", 20)], 32, from_files=True)
    assert data.test.names == ("b | 0", "b | 32", "b | 64", "c | 0")
    assert int((~data.test.pad).sum()) == 4 * (80 + 20)


def test_held_out_windows_of_a_chorale_are_a_group():
    held_out = [piece("b", 80), piece("c", 20), piece("d", 40)]
    data = chorale_dataset("x", [piece("a", 80)], held_out, 32, from_files=True)
    assert data.test.groups.tolist() == [0, 0, 0, 1, 2, 2]
    related = chorale_dataset("x", [piece("a", 80)], held_out, 32, from_files=True, groups={"b": 7, "c": 3, "d": 7})
    assert related.test.groups.tolist() == [7, 7, 7, 3, 7, 7]


def test_a_chorale_shorter_than_a_window_is_seen_whole_and_in_halves():
    data = chorale_dataset("x", [piece("a", 24)], [piece("b", 8)], 64, from_files=True)
    lengths = (~data.train.pad[..., 0]).sum(1).tolist()
    assert max(lengths) == 24
    assert min(lengths) >= 12
    assert int((~data.test.pad).sum()) == 4 * 8


def test_windows_without_a_note_are_left_out():
    steps = piece("a", 64).steps.copy()
    steps[32:] = REST
    data = chorale_dataset("x", [Piece("a", steps)], [Piece("b", steps)], 16, from_files=False)
    assert data.test.names == ("b | 0", "b | 16")
    assert not data.kind.from_files
    with pytest.raises(ValueError, match="chorales of test = 0"):
        chorale_dataset("x", [piece("a", 16)], [Piece("b", np.full((16, 4), REST, np.uint8))], 16, from_files=True)


def test_the_kind_has_the_shape_of_a_window():
    data = chorale_dataset("x", [piece("a", 32)], [piece("b", 32)], 32, from_files=True)
    assert data.kind == Chorale(129, (32, 4), True)
    assert data.shape == (32, 4)


def test_chorales_of_one_length_have_no_padding():
    rows = as_sequences([piece("a", 16), piece("b", 16)], 16)
    assert rows.pad is None
    assert rows.tokens.dtype == torch.uint8
