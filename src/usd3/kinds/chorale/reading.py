"""Read chorales from music21's scores of Bach, from arrays, and from MIDI files."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from usd3._internal.checks import require
from usd3.kinds.chorale.notation import VOICES
from usd3.kinds.chorale.windows import Piece, chorale_dataset
from usd3.kinds.dataset import Dataset
from usd3.kinds.melody.bach import bach_voices
from usd3.kinds.melody.midi_folder import midi_files
from usd3.kinds.melody.notation import MELODY_CLASSES, REST
from usd3.kinds.melody.related import Voice, held_out_pieces
from usd3.kinds.numpy_files import read_arrays
from usd3.kinds.options import DataConfig

__all__ = ["END", "bach_chorales", "dataset_of", "pieces_of", "read_dataset"]

END = -1
"""What an array has after the end of a chorale, unless `data.pad_value` says otherwise."""
_STRETCH = 64  # steps, four bars in common time


class _Splits(NamedTuple):
    """Chorales to train on, and those held out if the file says which; else None."""

    train: list[Piece]
    test: list[Piece] | None = None


def read_dataset(data: DataConfig) -> Dataset:
    """Windows of the chorales of music21, or of those in the file or the folder `data.path`.

    Without a test split in the file, chorales that share a voice or 64 steps of one in any key are on one side.
    """
    require(data.num_classes in (None, MELODY_CLASSES), "data.num_classes", data.num_classes, "null for chorales")
    name = "chorales" if data.path is None else Path(data.path).stem
    return _dataset(name, _splits(data), data, from_files=data.path is not None)


def dataset_of(array: NDArray[Any], data: DataConfig) -> Dataset:
    """Windows of the chorales of an array (N, T, 4), some of which are held out."""
    pieces = pieces_of(array, "data", END if data.pad_value is None else data.pad_value)
    return _dataset("chorales", _Splits(pieces), data, from_files=True)


def _dataset(name: str, splits: _Splits, data: DataConfig, from_files: bool) -> Dataset:
    train, test = splits
    groups = None
    if test is None:
        voices = [Voice(piece.name, voice, piece.steps[:, v]) for piece in train for v, voice in enumerate(VOICES)]
        groups = held_out_pieces(voices, data.test_fraction, data.seed, _STRETCH)
        test = [piece for piece in train if piece.name in groups]
        train = [piece for piece in train if piece.name not in groups]
    return chorale_dataset(name, train, test, data.length, from_files, groups)


def _splits(data: DataConfig) -> _Splits:
    if data.path is None:
        return _Splits(bach_chorales())
    path = Path(data.path)
    if path.is_dir():
        return _Splits(_in_folder(path))
    stored = read_arrays(path)
    arrays = stored if isinstance(stored, dict) else {data.train_key: stored}
    listed = ", ".join(arrays) or "none"
    require(data.train_key in arrays, f"arrays of {path}", listed, f"one named {data.train_key!r}")
    end = END if data.pad_value is None else data.pad_value
    keys = [data.train_key] if data.test_key == data.train_key else [data.train_key, data.test_key]
    return _Splits(*(pieces_of(arrays[key], f"{path}[{key}]", end) for key in keys if key in arrays))


def bach_chorales() -> list[Piece]:
    """The works of Bach in music21 that have four voices, soprano, alto, tenor and bass, and no others."""
    works: dict[str, dict[str, NDArray[np.uint8]]] = {}
    for voice in bach_voices():
        works.setdefault(voice.piece, {})[voice.voice] = voice.steps
    return [_joined(name, [work[v] for v in VOICES]) for name, work in works.items() if set(work) == set(VOICES)]


def pieces_of(array: NDArray[Any], name: str, end: int = END) -> list[Piece]:
    """The chorales of an array of integers (N, T, 4) with `end` after the end of each."""
    four = array.ndim == 3 and array.shape[2] == len(VOICES) and array.dtype.kind in "iu" and array.size > 0
    require(
        four, name, f"{array.dtype} {array.shape}", "integers (N, T, 4), soprano, alto, tenor and bass at each step"
    )
    over = array == end
    steps = (~over.all(2)).sum(1)
    rows = np.flatnonzero((over != (np.arange(array.shape[1])[:, None] >= steps[:, None, None])).any((1, 2)))
    wrong = f"{end} before the end of chorale {rows[0]}" if len(rows) else ""
    require(not len(rows), name, wrong, "voices that end together")
    require(bool((steps > 0).all()), name, "a chorale without a step", "at least one step in each")
    for value in (int(np.where(over, REST, array).min()), int(np.where(over, 0, array).max())):
        require(0 <= value < MELODY_CLASSES, f"token of {name}", value, f"pitches 0..127, or {REST} for silence")
    return [Piece(str(i), row[:length].astype(np.uint8)) for i, (row, length) in enumerate(zip(array, steps))]


def _in_folder(folder: Path) -> list[Piece]:
    """The chorales of the MIDI files below a folder that have four tracks with notes."""
    files = midi_files(folder)
    pieces = [_joined(name, [steps for _, steps in tracks]) for name, tracks in files if len(tracks) == len(VOICES)]
    expected = f"at least 2 of {len(files)}: one to train on and one held out"
    require(len(pieces) >= 2, f"MIDI files with four tracks of notes below {folder}", len(pieces), expected)
    return pieces


def _joined(name: str, voices: Iterable[NDArray[np.uint8]]) -> Piece:
    """A chorale of four voices; shorter ones are silent at the end."""
    columns = list(voices)
    longest = max(map(len, columns))
    padded = [np.pad(column, (0, longest - len(column)), constant_values=REST) for column in columns]
    return Piece(name, np.stack(padded, axis=1))
