import numpy as np
import pytest
import torch

from usd3.metrics import chorale_structure
from usd3.metrics.chorales import CHORALE_COLUMNS, crossings, outside, parallels, wide_spacing

REST = 128
RANGES = ((60, 81), (53, 74), (48, 69), (36, 64))
C = [72, 64, 55, 48]  # C major: c'' e' g c


def chorale(*chords):
    """Chords as one chorale (1, T, V)."""
    return np.array(chords)[None]


def none(x):
    return np.zeros(x.shape, dtype=bool)


def fifths(x, pad=None):
    return parallels(x, none(x) if pad is None else pad, 7)


def octaves(x, pad=None):
    return parallels(x, none(x) if pad is None else pad, 0)


def test_fifths_that_move_together_are_parallel():
    x = chorale([67, 60], [69, 62])  # g over c, then a over d
    assert fifths(x) == 1
    assert octaves(x) == 0


def test_a_fifth_up_to_octaves_is_a_fifth():
    assert fifths(chorale([79, 60], [81, 62])) == 1


def test_octaves_and_unisons_that_move_together_are_parallel():
    assert octaves(chorale([72, 60], [74, 62])) == 1
    assert octaves(chorale([60, 60], [62, 62])) == 1
    assert fifths(chorale([72, 60], [74, 62])) == 0


def test_a_fifth_that_stays_or_is_left_is_not_parallel():
    assert fifths(chorale([67, 60], [67, 60], [67, 59])) == 0  # held, then one voice moves
    assert fifths(chorale([67, 60], [69, 60])) == 0
    assert fifths(chorale([67, 60], [60, 53 - 12])) == 0  # a fifth, then another one an octave wider: contrary motion
    assert fifths(chorale([67, 59], [69, 62])) == 0  # only the second is a fifth


def test_parallels_are_counted_for_each_chord_that_changes_and_each_pair():
    x = chorale([67, 60], [67, 60], [69, 62], [69, 60], [69, 60])  # two changes, the first is parallel
    assert fifths(x) == 1 / 2
    three = chorale([72, 67, 60], [74, 69, 62])  # an octave outside, a fifth below, a fourth above
    assert octaves(three) == 1
    assert fifths(three) == 1
    two = chorale([79, 67, 60], [81, 69, 62])  # two fifths over the bass, an octave above
    assert fifths(two) == 2


def test_silence_and_padding_are_not_parallel():
    x = chorale([67, 60], [REST, 62], [69, 62])
    assert fifths(x) == 0
    x = chorale([67, 60], [69, 62], [71, 64])
    pad = none(x)
    pad[:, 2] = True
    assert fifths(x) == 1
    assert fifths(x, pad) == 1  # one change, one pair
    assert np.isnan(fifths(chorale([67, 60])))  # nothing changes


def test_voices_cross_where_a_lower_one_is_higher():
    x = chorale(C, [72, 76, 55, 48], [72, 72, 55, 48], [REST, 76, 55, 60])  # alto above, unison, bass above tenor
    assert crossings(x, none(x)) == 2 / 4
    x = chorale([64, REST], [60, 62])  # the first step has one voice alone
    assert crossings(x, none(x)) == 1


def test_upper_voices_are_far_apart_beyond_an_octave():
    x = chorale(C, [76, 64, 55, 36], [77, 64, 55, 48], [72, 64, 51, 48])  # soprano 12, then 13 above; alto 13 above
    assert wide_spacing(x, none(x)) == 2 / 4  # the distance of tenor and bass is free


def test_notes_are_counted_where_their_voice_cannot_sing():
    x = chorale(C, [82, 52, 55, 35])
    assert outside(x, none(x), RANGES) == 3 / 8
    x = chorale([REST, 52, 55, 48])
    assert outside(x, none(x), RANGES) == 1 / 3
    pad = none(x)
    pad[..., 1] = True
    assert outside(x, pad, RANGES) == 0


def test_structure_of_sets():
    held = chorale(*[C] * 32)
    found = chorale_structure(torch.from_numpy(np.stack([held, held])), RANGES)
    assert list(found) == list(CHORALE_COLUMNS)
    assert found["on_beat"].mean == 1
    assert found["repeated_bars"].mean == 1 / 2  # the second bar
    assert found["rests"].mean == 0
    assert found["range"].mean == 0
    moved = held.copy()
    moved[:, 17:] += 2  # a bar later, off the beat: bass and soprano are octaves, bass and tenor fifths
    one = chorale_structure(moved, RANGES)
    assert one["on_beat"].mean == 1 / 2
    assert one["parallel_octaves"].mean == 100
    assert one["parallel_fifths"].mean == 100
    assert one["repeated_bars"].mean == 0
    both = chorale_structure(np.stack([moved, moved]), RANGES)
    assert both["on_beat"] == one["on_beat"]
    silent = np.where(np.arange(32)[:, None] < 8, held, REST)
    assert chorale_structure(silent, RANGES)["rests"].mean == 3 / 4
    pad = np.broadcast_to(np.arange(32)[:, None] >= 8, held.shape)
    assert chorale_structure(silent, RANGES, pad)["rests"].mean == 0


def test_structure_needs_sets_of_chorales():
    with pytest.raises(ValueError, match=r"chorales\.shape"):
        chorale_structure(np.zeros((2, 8), dtype=int), RANGES)
