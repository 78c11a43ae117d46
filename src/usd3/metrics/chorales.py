"""Rules of voice leading in numbers: parallels, crossings, spacing and ranges of music in several voices.

All functions take voices (N, T, V) from high to low, with the MIDI pitch of each voice at each step, and padding of the
same shape. Neither higher nor lower is better: compare with the values of true music.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from usd3.metrics._arrays import Bools, Ints, as_array, as_pad, as_sequences
from usd3.metrics.melodies import on_beat, repeated_bars, rests
from usd3.metrics.summary import Summary, summarise

__all__ = ["CHORALE_COLUMNS", "chorale_structure", "crossings", "outside", "parallels", "wide_spacing"]

CHORALE_COLUMNS = {
    "parallel_fifths": "parallel fifths / 100 chords",
    "parallel_octaves": "parallel octaves / 100 chords",
    "crossings": "voices crossed",
    "spacing": "voices far apart",
    "range": "notes out of range",
    "on_beat": "notes on the beat",
    "rests": "silence",
    "repeated_bars": "bars repeated",
}
"""The titles of what `chorale_structure` measures, by key."""

_FIFTH, _OCTAVE = 7, 12


def chorale_structure(
    chorales: Any,
    ranges: Sequence[tuple[int, int]],
    pad: Any = None,
    rest: int = 128,
    beat: int = 4,
    bar: int = 16,
) -> dict[str, Summary]:
    """What `CHORALE_COLUMNS` names of R sets of chorales: means and standard deviations over the sets.

    Args:
        chorales: Pitches, integers (R, N, T, V), or (N, T, V) for one set.
        ranges: The lowest and the highest pitch of each voice.
        pad: Booleans (N, T, V), True = padding.
        rest: The category of silence.
        beat: Steps of a beat; chorales begin on a beat.
        bar: Steps of a bar; bars are counted from the beginning.

    Returns:
        A `Summary` for each key of `CHORALE_COLUMNS`.
    """
    sets = as_array(chorales)[None] if getattr(chorales, "ndim", 4) == 3 else chorales
    sets = as_sequences(sets, "chorales", "(R, N, T, V)")
    padding = as_pad(pad, sets.shape[1:])
    padding = np.zeros(sets.shape[1:], dtype=bool) if padding is None else padding
    measured = [_measured(x, padding, ranges, rest, beat, bar) for x in sets]
    return {key: summarise(np.array([row[key] for row in measured])) for key in CHORALE_COLUMNS}


def _measured(
    x: Ints, pad: Bools, ranges: Sequence[tuple[int, int]], rest: int, beat: int, bar: int
) -> dict[str, float]:
    voices, voices_pad = x.transpose(0, 2, 1).reshape(-1, x.shape[1]), pad.transpose(0, 2, 1).reshape(-1, x.shape[1])
    steps, steps_pad = x.reshape(len(x), -1), pad.reshape(len(x), -1)  # one step after the other
    return {
        "parallel_fifths": 100 * parallels(x, pad, _FIFTH, rest),
        "parallel_octaves": 100 * parallels(x, pad, 0, rest),
        "crossings": crossings(x, pad, rest),
        "spacing": wide_spacing(x, pad, rest),
        "range": outside(x, pad, ranges, rest),
        "on_beat": on_beat(voices, voices_pad, rest, beat),
        "rests": rests(steps, steps_pad, rest),
        "repeated_bars": repeated_bars(steps, steps_pad, rest, bar * x.shape[2]),
    }


def parallels(voices: Ints, pad: Bools, interval: int, rest: int = 128) -> float:
    """Parallel intervals for each change of chord.

    Two voices are parallel where both move, by equally many semitones, and are `interval` semitones apart, up to
    octaves: 7 for fifths, 0 for octaves and unisons. Each pair of voices counts. A change of chord is a step at which
    any voice changes. Fifths and octaves that are hidden, or with a note between them, do not count.
    """
    sounds = (voices != rest) & ~pad
    before, after = voices[:, :-1], voices[:, 1:]
    changes = ((before != after) & ~pad[:, 1:]).any(2).sum()
    moves = (before != after) & sounds[:, :-1] & sounds[:, 1:]
    high, low = np.triu_indices(voices.shape[2], k=1)
    apart = voices[..., high] - voices[..., low]  # (N, T, pairs)
    stay_apart = (apart[:, :-1] == apart[:, 1:]) & (apart[:, 1:] % _OCTAVE == interval)
    return _share((stay_apart & moves[..., high] & moves[..., low]).sum(), changes)


def crossings(voices: Ints, pad: Bools, rest: int = 128) -> float:
    """The share of steps at which a voice sounds lower than the voice below it."""
    both = _both_sound(voices, pad, rest)
    crossed = both & (voices[..., :-1] < voices[..., 1:])
    return _share(crossed.any(2).sum(), both.any(2).sum())


def wide_spacing(voices: Ints, pad: Bools, rest: int = 128) -> float:
    """The share of steps at which two neighbours of the upper voices, all but the lowest, are over an octave apart."""
    both = _both_sound(voices, pad, rest)[..., :-1]
    wide = both & (voices[..., :-2] - voices[..., 1:-1] > _OCTAVE)
    return _share(wide.any(2).sum(), both.any(2).sum())


def outside(voices: Ints, pad: Bools, ranges: Sequence[tuple[int, int]], rest: int = 128) -> float:
    """The share of all notes, by their durations, that are outside of the range of their voice."""
    lowest, highest = np.asarray(ranges).T
    sounds = (voices != rest) & ~pad
    return _share((sounds & ((voices < lowest) | (voices > highest))).sum(), sounds.sum())


def _both_sound(voices: Ints, pad: Bools, rest: int) -> Bools:
    """(N, T, V - 1) whether a voice and the next lower one sound."""
    sounds = (voices != rest) & ~pad
    both: Bools = sounds[..., :-1] & sounds[..., 1:]
    return both


def _share(part: Any, whole: Any) -> float:
    return float(part / whole) if whole else float("nan")
