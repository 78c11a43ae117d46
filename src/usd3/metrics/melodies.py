"""The structure of melodies in numbers: metre, rests, repeated bars, key and range."""

from typing import Any

import numpy as np

from usd3._internal.checks import as_count
from usd3.metrics._arrays import Bools, Ints, as_array, as_pad, as_sequences
from usd3.metrics.summary import Summary, summarise

__all__ = ["in_key", "melody_structure", "on_beat", "onsets", "pitch_range", "repeated_bars", "rests"]

_MAJOR = (0, 2, 4, 5, 7, 9, 11)  # the pitch classes of C major, and of a minor
_SCALES = np.array([[(pitch - tonic) % 12 in _MAJOR for tonic in range(12)] for pitch in range(12)])


def melody_structure(
    melodies: Any, pad: Any = None, rest: int = 128, beat: int = 4, bar: int = 16
) -> dict[str, Summary]:
    """The structure of R sets of melodies: means and standard deviations over the sets.

    Neither higher nor lower is better: compare with the values of true melodies.

    Args:
        melodies: Pitches at each step, integers (R, N, L), or (N, L) for one set.
        pad: Booleans (N, L), True = padding.
        rest: The category of a rest.
        beat: Steps of a beat; melodies begin on a beat.
        bar: Steps of a bar; melodies begin with a bar.

    Returns:
        A `Summary` for each of "on_beat", "onsets", "rests", "repeated_bars", "in_key" and "pitch_range": what the
        functions of these names in `usd3.metrics.melodies` return.
    """
    sets = as_array(melodies)[None] if getattr(melodies, "ndim", 3) == 2 else melodies
    sets = as_sequences(sets, "melodies", "(R, N, L)")
    padding = as_pad(pad, sets.shape[1:])
    padding = np.zeros(sets.shape[1:], dtype=bool) if padding is None else padding
    measured = {
        "on_beat": [on_beat(x, padding, rest, beat) for x in sets],
        "onsets": [onsets(x, padding, rest, bar) for x in sets],
        "rests": [rests(x, padding, rest) for x in sets],
        "repeated_bars": [repeated_bars(x, padding, rest, bar) for x in sets],
        "in_key": [in_key(x, padding, rest) for x in sets],
        "pitch_range": [pitch_range(x, padding, rest) for x in sets],
    }
    return {name: summarise(np.array(values)) for name, values in measured.items()}


def on_beat(melodies: Ints, pad: Bools, rest: int = 128, beat: int = 4) -> float:
    """The share of all notes in melodies (N, L) that begin on a beat. A note begins where the pitch changes."""
    beat, begins = as_count(beat, "beat", 1), _begins(melodies, pad, rest)
    return _share(begins[:, ::beat].sum(), begins.sum())


def onsets(melodies: Ints, pad: Bools, rest: int = 128, bar: int = 16) -> float:
    """How many notes begin in a bar of melodies (N, L), on average over all steps: silent bars count too."""
    return _share(_begins(melodies, pad, rest).sum() * as_count(bar, "bar", 1), (~pad).sum())


def rests(melodies: Ints, pad: Bools, rest: int = 128) -> float:
    """The share of all steps in melodies (N, L) that are rests."""
    return _share(((melodies == rest) & ~pad).sum(), (~pad).sum())


def repeated_bars(melodies: Ints, pad: Bools, rest: int = 128, bar: int = 16) -> float:
    """The share of bars in melodies (N, L) that equal an earlier bar of the same melody, among bars with a note.

    A bar that is incomplete, because of padding or the end of the melody, does not count.
    """
    bars = melodies.shape[1] // as_count(bar, "bar", 1)
    cut = melodies[:, : bars * bar].reshape(len(melodies), bars, bar)
    counts = (cut != rest).any(2) & ~pad[:, : bars * bar].reshape(cut.shape).any(2)
    same = (cut[:, :, None] == cut[:, None]).all(-1)  # (N, bars, bars)
    again = (same & counts[:, None] & np.tri(bars, k=-1, dtype=bool)).any(2) & counts
    return _share(again.sum(), counts.sum())


def in_key(melodies: Ints, pad: Bools, rest: int = 128) -> float:
    """The share of all notes in melodies (N, L) that are in the key of their melody.

    The key of a melody is that of the twelve major scales which has most of its notes; a minor key has the notes of its
    relative major. Few notes fit some scale by chance, and the raised seventh of a minor key counts as outside.
    """
    row, step = _begins(melodies, pad, rest).nonzero()
    counts = np.bincount(row * 12 + melodies[row, step] % 12, minlength=12 * len(melodies)).reshape(-1, 12)
    return _share((counts @ _SCALES).max(1).sum(), counts.sum())


def pitch_range(melodies: Ints, pad: Bools, rest: int = 128) -> float:
    """Semitones between the lowest and the highest note of a melody, the mean over those of (N, L) with a note."""
    sounds = (melodies != rest) & ~pad
    some = sounds.any(1)
    lowest, highest = (np.where(sounds, melodies, beyond)[some] for beyond in (rest, -1))
    return _share((highest.max(1) - lowest.min(1)).sum(), some.sum())


def _begins(melodies: Ints, pad: Bools, rest: int) -> Bools:
    """(N, L) whether a note begins: where another pitch sounds than before."""
    before = np.pad(melodies[:, :-1], ((0, 0), (1, 0)), constant_values=rest)
    begins: Bools = (melodies != before) & (melodies != rest) & ~pad
    return begins


def _share(part: Any, whole: Any) -> float:
    return float(part / whole) if whole else float("nan")
