import numpy as np
import pytest
import torch

from usd3.metrics import melody_structure
from usd3.metrics.melodies import on_beat, repeated_bars, rests

REST = 128


def melody(*bars):
    """Bars of 8 steps in one melody, (1, L)."""
    return np.concatenate([np.asarray(bar) for bar in bars])[None]


A = [60, 60, 60, 60, 62, 62, 64, 64]  # begins at 0, 4 and 6
B = [REST, 60, 60, 60, REST, REST, 60, 60]  # begins at 1 and 6: after a rest the same pitch begins anew
SILENT = [REST] * 8


def none(x):
    return np.zeros(x.shape, dtype=bool)


def test_a_note_begins_where_another_pitch_sounds():
    x = melody(A, B)
    assert on_beat(x, none(x), beat=4) == 2 / 5
    assert on_beat(x, none(x), beat=2) == 4 / 5
    held = melody([60] * 8, [60] * 8)
    assert on_beat(held, none(held)) == 1  # once, at the start


def test_rests_are_counted_by_steps():
    x = melody(A, B, SILENT)
    assert rests(x, none(x)) == 11 / 24


def test_a_bar_is_repeated_if_an_earlier_one_is_the_same():
    x = melody(A, B, SILENT, A, SILENT, A)
    assert repeated_bars(x, none(x), bar=8) == 2 / 4  # silent bars do not count
    apart = np.concatenate([melody(A), melody(A)])
    assert repeated_bars(apart, none(apart), bar=8) == 0  # another melody is no repetition


def test_padding_does_not_count():
    x = melody(A, B, A)
    pad = none(x)
    pad[:, 12:] = True
    assert rests(x, pad) == 1 / 12
    assert on_beat(x, pad) == 2 / 4
    assert repeated_bars(x, pad, bar=8) == 0  # the second bar is cut short


def test_a_bar_that_is_cut_short_by_the_end_does_not_count():
    x = melody(A, A)[:, :15]
    assert repeated_bars(x, none(x), bar=8) == 0


def test_what_is_not_there_has_no_share():
    x = melody(SILENT)
    assert rests(x, none(x)) == 1
    assert np.isnan(on_beat(x, none(x)))
    assert np.isnan(repeated_bars(x, none(x), bar=8))


def test_means_and_spread_are_over_the_sets():
    sets = torch.as_tensor(np.stack([melody(A, B, A), melody(A, SILENT, SILENT)]))
    structure = melody_structure(sets, bar=8)
    assert list(structure) == ["on_beat", "rests", "repeated_bars"]
    assert structure["rests"].mean == pytest.approx((3 / 24 + 16 / 24) / 2)
    assert structure["rests"].std == pytest.approx((13 / 24) / 2**0.5)
    assert structure["repeated_bars"].mean == pytest.approx((1 / 3 + 0) / 2)
    single = melody_structure(sets[0], bar=8)
    assert single["repeated_bars"] == (pytest.approx(1 / 3), 0)
    padded = melody_structure(sets, pad=torch.arange(24)[None] >= 8, bar=8)
    assert padded["rests"] == (0, 0)


def test_other_things_than_melodies_are_refused():
    with pytest.raises(TypeError, match="melodies has dtype float64: expected"):
        melody_structure(np.zeros((2, 3, 16)))
    with pytest.raises(ValueError, match=r"pad.shape = \(3, 2\)"):
        melody_structure(np.zeros((2, 3, 16), dtype=int), pad=np.zeros((3, 2), dtype=bool))
