"""The structure of melodies in numbers: notes on the beat, rests, repeated bars."""

from typing import Any

import numpy as np

from usd3._internal.checks import as_count
from usd3.metrics._arrays import Bools, Ints, as_array, as_pad, as_sequences
from usd3.metrics.summary import Summary, summarise

__all__ = ["melody_structure", "on_beat", "repeated_bars", "rests"]


def melody_structure(
    melodies: Any, pad: Any = None, rest: int = 128, beat: int = 4, bar: int = 16
) -> dict[str, Summary]:
    """`on_beat`, `rests` and `repeated_bars` of R sets of melodies: means and standard deviations over the sets.

    Neither higher nor lower is better: compare with the values of true melodies.

    Args:
        melodies: Pitches at each step, integers (R, N, L), or (N, L) for one set.
        pad: Booleans (N, L), True = padding.
        rest: The category of a rest.
        beat: Steps of a beat; melodies begin on a beat.
        bar: Steps of a bar; melodies begin with a bar.

    Returns:
        A `Summary` for each of "on_beat", "rests" and "repeated_bars".
    """
    sets = as_array(melodies)[None] if getattr(melodies, "ndim", 3) == 2 else melodies
    sets = as_sequences(sets, "melodies", "(R, N, L)")
    padding = as_pad(pad, sets.shape[1:])
    padding = np.zeros(sets.shape[1:], dtype=bool) if padding is None else padding
    shares = {
        "on_beat": [on_beat(x, padding, rest, beat) for x in sets],
        "rests": [rests(x, padding, rest) for x in sets],
        "repeated_bars": [repeated_bars(x, padding, rest, bar) for x in sets],
    }
    return {name: summarise(np.array(values)) for name, values in shares.items()}


def on_beat(melodies: Ints, pad: Bools, rest: int = 128, beat: int = 4) -> float:
    """The share of all notes in melodies (N, L) that begin on a beat. A note begins where the pitch changes."""
    beat = as_count(beat, "beat", 1)
    before = np.pad(melodies[:, :-1], ((0, 0), (1, 0)), constant_values=rest)
    begins = (melodies != before) & (melodies != rest) & ~pad
    return _share(begins[:, ::beat].sum(), begins.sum())


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


def _share(part: Any, whole: Any) -> float:
    return float(part / whole) if whole else float("nan")
