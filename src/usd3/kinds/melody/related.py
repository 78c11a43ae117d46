"""Which pieces of music are related, and a split into training and test that keeps related pieces together."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from usd3._internal.checks import require
from usd3.kinds.melody.notation import REST
from usd3.kinds.splits import grouped, is_test_group

__all__ = ["Voice", "held_out_pieces"]

_FEWEST_CHANGES = 8
_FIRST_NOTE = 2  # in `_changes`: the first note of a stretch that begins with rests


@dataclass(frozen=True, eq=False)
class Voice:
    """One voice of a piece.

    Args:
        piece: name of the piece.
        voice: name of the voice.
        steps: (L,) the MIDI pitch at each grid point, or 128 for a rest.
    """

    piece: str
    voice: str
    steps: NDArray[np.uint8]


def held_out_pieces(melodies: Sequence[Voice], fraction: float, seed: int, stretch: int | None) -> dict[str, int]:
    """The pieces of the test split with the number of their group: related pieces are one, on the same side of it.

    Args:
        melodies: the voices of all pieces.
        fraction: fraction of the music that is held out.
        seed: seed of the split.
        stretch: pieces that share so many steps are related; None: only pieces that share a whole voice. Both count in
            any key, as training may transpose; rests around a voice do not count.
    """
    pieces = list(dict.fromkeys(melody.piece for melody in melodies))
    index = {piece: i for i, piece in enumerate(pieces)}
    keys = ((index[melody.piece], key) for melody in melodies for key in _relation_keys(melody.steps, stretch))
    group_of = grouped(len(pieces), keys)
    sizes = [0] * len(set(group_of))
    for melody in melodies:
        sizes[group_of[index[melody.piece]]] += len(melody.steps)
    apart = "some that share no melody, so that one can be held out from another"
    require(len(sizes) >= 2 or len(pieces) < 2, "pieces", f"{len(pieces)} that share melodies", apart)
    chosen = is_test_group(sizes, fraction, seed)
    return {piece: group for piece, group in zip(pieces, group_of) if chosen[group]}


def _relation_keys(steps: NDArray[np.uint8], stretch: int | None) -> Iterator[Hashable]:
    """Keys that two melodies share only if they are related: one for the whole melody, one for every `stretch` steps.

    They do not depend on the key of the music, nor on the rests around it. Music with fewer than 8 changes, such as a
    held note, has no key: it may be the same by chance.
    """
    sounding = np.flatnonzero(steps != REST)
    melody = _changes(steps[sounding[0] : sounding[-1] + 1])
    if np.count_nonzero(melody) >= _FEWEST_CHANGES:
        yield melody.tobytes()
    if stretch is None or len(steps) < stretch:
        return
    stretches = sliding_window_view(_changes(steps), stretch - 1)
    lively = np.count_nonzero(stretches, axis=1) >= _FEWEST_CHANGES
    in_rest = steps[: len(stretches)][lively] == REST
    stretches = stretches[lively]  # a copy
    first = (stretches[in_rest] != 0).argmax(1)  # the interval from a note before the stretch does not count
    stretches[np.flatnonzero(in_rest), first] = _FIRST_NOTE
    yield from np.unique(stretches.astype(np.uint64) @ _hash_weights(stretch - 1)).tolist()


def _changes(steps: NDArray[np.uint8]) -> NDArray[np.int16]:
    """The changes of a melody (L,), which are the same in every key, (L - 1,).

    For each step but the first: 0 if nothing changes, 1 if a rest begins, otherwise 200 + the interval from the last
    note in semitones.
    """
    index = np.arange(len(steps))
    last = np.maximum.accumulate(np.where(steps != REST, index, 0))  # index of the last note so far
    intervals = 200 + steps[1:].astype(np.int16) - steps[last[:-1]]
    return np.where(steps[1:] == steps[:-1], 0, np.where(steps[1:] == REST, 1, intervals)).astype(np.int16)


def _hash_weights(length: int) -> NDArray[np.uint64]:
    """Random weights; the hash of a row is its dot product with them, modulo 2^64."""
    return np.random.default_rng(0).integers(2**64, size=length, dtype=np.uint64)
