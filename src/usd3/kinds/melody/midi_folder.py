"""Melodies from a folder of MIDI files."""

import os
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from usd3._internal.checks import require
from usd3.kinds.dataset import Dataset
from usd3.kinds.melody.midi import require_symusic, voices_of
from usd3.kinds.melody.related import Voice
from usd3.kinds.melody.windows import melodies_dataset, worth_keeping

__all__ = ["load_midi", "midi_files"]

_SUFFIXES = (".mid", ".midi")


def load_midi(folder: str | os.PathLike[str], length: int = 256, test_fraction: float = 0.1, seed: int = 0) -> Dataset:
    """Windows of the melodies of all .mid and .midi files below `folder`, split by file.

    A quarter note has four steps. Windows are as in `load_bach`. Files that share a whole melody are in the same
    split. Files that cannot be read or have more than 2^20 quarter notes in all their tracks are skipped, with a
    warning.

    Args:
        folder: the folder.
        length: length of a window in sixteenth notes.
        test_fraction: fraction of the music that is held out.
        seed: seed of the split.
    """
    folder = Path(folder)
    files = midi_files(folder)
    melodies = worth_keeping([Voice(piece, name, steps) for piece, tracks in files for name, steps in tracks])
    pieces = len({melody.piece for melody in melodies})
    enough = f"at least 2 of {len(files)}, one to train on and one held out"
    require(pieces >= 2, f"MIDI files with a melody below {folder}", pieces, enough)
    return melodies_dataset(folder.name, melodies, length, test_fraction, seed)


def midi_files(folder: Path) -> list[tuple[str, list[tuple[str, NDArray[np.uint8]]]]]:
    """The name of each readable MIDI file below a folder, and the name and the melody of each of its tracks."""
    require(not folder.is_file(), "path of MIDI files", folder, "a folder of at least 2, one to train on, one held out")
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    require_symusic()
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in _SUFFIXES)
    require(len(files) > 0, f"MIDI files below {folder}", 0, "at least one .mid or .midi")
    found = []
    for file in files:
        try:
            found.append((file.relative_to(folder).as_posix(), voices_of(file, steps_per_beat=4)))
        except (ValueError, OSError) as error:
            warnings.warn(f"skipped: {error}", stacklevel=3)
    require(len(found) > 0, f"readable MIDI files below {folder}", 0, f"at least one of {len(files)}")
    return found
