"""Melodies of Bach: the scores that come with music21, read by our own reader and cached."""

import importlib.metadata
import importlib.util
import io
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from usd3._internal.files import cache_folder, write_whole
from usd3.kinds.dataset import Dataset
from usd3.kinds.melody.musicxml import melodies_of, read_score
from usd3.kinds.melody.notation import REST
from usd3.kinds.melody.related import Voice
from usd3.kinds.melody.windows import melodies_dataset, worth_keeping

__all__ = ["bach_voices", "load_bach"]

_READER_VERSION = 1  # increase it when the reader finds other melodies in a score
_STRETCH = 64  # four bars in common time
_SUFFIXES = (".mxl", ".xml", ".musicxml")
_DAMAGED = (OSError, ValueError, TypeError, AttributeError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


def load_bach(
    length: int = 256,
    test_fraction: float = 0.1,
    seed: int = 0,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Dataset:
    """Voices of Bach's works as windows of `length` sixteenth notes: pitches 0..127, or 128 for a rest.

    The scores are those of the installed music21. Windows do not overlap. The last window of a voice is padded with
    rests, and left out if less than a quarter of it is real. Pieces that share a voice or 64 steps of one in any key,
    such as the same hymn tune, are in the same split.

    Args:
        length: length of a window in sixteenth notes.
        test_fraction: fraction of the music that is held out.
        seed: seed of the split.
        cache: folder for the melodies; None: $USD3_CACHE, or `usd3` in the user's cache folder.
        progress: called with (done, total) while the scores are read.
    """
    melodies = bach_voices(cache, progress)
    return melodies_dataset("bach", melodies, length, test_fraction, seed, stretch=_STRETCH)


def bach_voices(
    cache: str | os.PathLike[str] | None = None, progress: Callable[[int, int], None] | None = None
) -> list[Voice]:
    """All voices of the Bach works in music21; the arguments are those of `load_bach`."""
    return _cached_melodies(cache_folder() if cache is None else Path(cache), progress)


def _corpus() -> Path:
    spec = importlib.util.find_spec("music21")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("load_bach needs music21: pip install 'usd3[music]'")
    return Path(spec.submodule_search_locations[0]) / "corpus" / "bach"


def _cached_melodies(folder: Path, progress: Callable[[int, int], None] | None) -> list[Voice]:
    corpus = _corpus()
    file = folder / f"bach-music21-{importlib.metadata.version('music21')}-reader-{_READER_VERSION}.npz"
    stored = _unpacked(file)
    if stored is not None:
        return stored
    melodies = _read_corpus(corpus, progress)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(file, _packed(melodies))
    except OSError:
        pass  # without a cache the next call reads the scores again
    return melodies


def _read_corpus(corpus: Path, progress: Callable[[int, int], None] | None) -> list[Voice]:
    files = sorted(file for file in corpus.glob("*") if file.suffix in _SUFFIXES)
    if not files:
        raise FileNotFoundError(f"{corpus}: expected the scores that come with music21 (.mxl or .xml)")
    melodies = []
    for done, file in enumerate(files, start=1):
        melodies += [Voice(file.stem, voice, steps) for voice, steps in melodies_of(read_score(file))]
        if progress is not None:
            progress(done, len(files))
    return worth_keeping(melodies)


def _packed(melodies: list[Voice]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        steps=np.concatenate([melody.steps for melody in melodies]),
        lengths=np.array([len(melody.steps) for melody in melodies]),
        pieces=np.array([melody.piece for melody in melodies]),
        voices=np.array([melody.voice for melody in melodies]),
    )
    return buffer.getvalue()


def _unpacked(file: Path) -> list[Voice] | None:
    """The melodies in a cache file; None if it is missing or damaged, or if `_packed` did not write it."""
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            steps, lengths = stored["steps"], stored["lengths"]
            pieces, voices = stored["pieces"].tolist(), stored["voices"].tolist()
        valid = steps.dtype == np.uint8 and len(steps) == lengths.sum() and int(steps.max()) <= REST
    except _DAMAGED:
        return None
    if not (valid and len(lengths) == len(pieces) == len(voices)):
        return None
    parts = np.split(steps, np.cumsum(lengths)[:-1])
    return [Voice(piece, voice, part) for piece, voice, part in zip(pieces, voices, parts)]
