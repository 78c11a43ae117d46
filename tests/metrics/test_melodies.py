import numpy as np
import pytest
import torch

from usd3.metrics import melody_structure
from usd3.metrics.melodies import in_key, on_beat, onsets, pitch_range, repeated_bars, rests

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


def test_notes_that_begin_are_counted_by_bars():
    x = melody(A, B, SILENT, SILENT)
    assert onsets(x, none(x), bar=8) == 5 / 4
    assert onsets(x, none(x), bar=16) == 5 / 2


C_MAJOR = [60, 62, 64, 65, 67, 69, 71, 72]


@pytest.mark.parametrize("semitones", [0, 1, 6, -11])
def test_the_key_is_the_scale_with_most_notes(semitones):
    x = melody(C_MAJOR) + semitones
    assert in_key(x, none(x)) == 1
    chromatic = melody(range(48, 60)) + semitones
    assert in_key(chromatic, none(chromatic)) == 7 / 12
    minor = melody([69, 71, 72, 74, 76, 77, 80, 81]) + semitones  # harmonic: its seventh is raised
    assert in_key(minor, none(minor)) == 7 / 8


def test_each_melody_has_a_key_of_its_own_and_long_notes_count_once():
    x = np.concatenate([melody(C_MAJOR), melody(C_MAJOR) + 1, melody([60] * 8)])
    assert in_key(x, none(x)) == 1
    x[0, 1] = 61  # C sharp, for D: one of 8 + 8 + 1 notes
    assert in_key(x, none(x)) == 16 / 17
    held = melody([60, 60, 60, 62, 64, 65, 67, 61])
    assert in_key(held, none(held)) == 5 / 6


def test_the_range_is_the_mean_over_melodies_with_a_note():
    x = np.concatenate([melody(A), melody([REST, 50] * 4), melody([0, 127] * 4), melody(SILENT)])
    assert pitch_range(x, none(x)) == pytest.approx((4 + 0 + 127) / 3)


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
    assert onsets(x, pad, bar=8) == 4 / 12 * 8
    assert in_key(np.where(pad, np.arange(24) + 60, x), pad) == 1
    assert pitch_range(np.where(pad, 0, x), pad) == 4
    assert repeated_bars(x, pad, bar=8) == 0  # the second bar is cut short


def test_a_bar_that_is_cut_short_by_the_end_does_not_count():
    x = melody(A, A)[:, :15]
    assert repeated_bars(x, none(x), bar=8) == 0


def test_what_is_not_there_has_no_share():
    x = melody(SILENT)
    assert rests(x, none(x)) == 1
    assert np.isnan(on_beat(x, none(x)))
    assert np.isnan(repeated_bars(x, none(x), bar=8))
    assert onsets(x, none(x)) == 0
    assert np.isnan(in_key(x, none(x)))
    assert np.isnan(pitch_range(x, none(x)))


def test_means_and_spread_are_over_the_sets():
    sets = torch.as_tensor(np.stack([melody(A, B, A), melody(A, SILENT, SILENT)]))
    structure = melody_structure(sets, bar=8)
    assert list(structure) == ["on_beat", "onsets", "rests", "repeated_bars", "in_key", "pitch_range"]
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
