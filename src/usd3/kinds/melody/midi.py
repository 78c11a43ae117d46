"""Melodies from and to MIDI files, by symusic."""

import importlib
import os
from collections.abc import Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from usd3._internal.checks import as_count, as_number, require, require_type
from usd3._internal.files import write_whole
from usd3.kinds.melody.notation import MELODY_CLASSES, REST

__all__ = ["read_midi", "require_symusic", "voices_of", "write_midi", "write_tracks"]

_TICKS_PER_STEP = 120
_VELOCITY = 90
_Notes = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
_MOST_QUARTERS = 2**20  # quarter notes of all tracks: a small file can claim that a note lasts for years


def read_midi(path: str | os.PathLike[str], steps_per_beat: int = 4) -> list[NDArray[np.uint8]]:
    """A melody for each track with notes, except drums: the highest note at each grid point, 128 for a rest.

    Onsets and ends are rounded to the grid; a note lasts at least one step. All melodies are as long as the file.

    Args:
        path: the MIDI file.
        steps_per_beat: grid points in a quarter note.
    """
    return [steps for _, steps in voices_of(Path(path), as_count(steps_per_beat, "steps_per_beat", 1))]


def write_midi(
    tokens: Any,
    path: str | os.PathLike[str],
    steps_per_beat: int = 4,
    tempo: float = 100,
    program: int = 0,
) -> None:
    """Write a melody into a MIDI file. Equal pitches in a row are one note. A marker keeps rests at the end.

    Args:
        tokens: (L,) pitches 0..127, or 128 for a rest.
        path: the file to write.
        steps_per_beat: number of tokens in a quarter note.
        tempo: quarter notes per minute.
        program: MIDI instrument.
    """
    write_tracks({"melody": tokens}, path, steps_per_beat, tempo, program)


def write_tracks(
    tracks: Mapping[str, Any],
    path: str | os.PathLike[str],
    steps_per_beat: int = 4,
    tempo: float = 100,
    program: int = 0,
) -> None:
    """Write melodies of one length into a MIDI file, a track for each, as `write_midi` does.

    Args:
        tracks: (L,) the tokens of each track, by its name.
        path: the file to write.
        steps_per_beat: number of tokens in a quarter note.
        tempo: quarter notes per minute.
        program: MIDI instrument.
    """
    melodies = {name: _as_melody(tokens) for name, tokens in tracks.items()}
    steps_per_beat = as_count(steps_per_beat, "steps_per_beat", 1)
    tempo = as_number(tempo, "tempo", 0)
    program = as_count(program, "program", 0, 127)
    symusic = _symusic()
    score = symusic.Score(_TICKS_PER_STEP * steps_per_beat)
    for name, steps in melodies.items():
        track = symusic.Track(name, program, False)
        for start, stop in _runs(steps):
            if steps[start] != REST:
                onset, duration = start * _TICKS_PER_STEP, (stop - start) * _TICKS_PER_STEP
                track.notes.append(symusic.Note(onset, duration, int(steps[start]), _VELOCITY))
        score.tracks.append(track)
    score.tempos.append(symusic.Tempo(0, tempo))
    score.markers.append(symusic.TextMeta(max(map(len, melodies.values())) * _TICKS_PER_STEP, "end"))
    write_whole(Path(path), score.dumps_midi())


def require_symusic() -> None:
    """Raise an error if symusic is not installed, before the work whose result is a MIDI file."""
    _symusic()


def _symusic() -> Any:
    try:
        return importlib.import_module("symusic")
    except ImportError:
        raise ImportError("MIDI files need symusic: pip install 'usd3[music]'") from None


def voices_of(
    path: Path, steps_per_beat: int, most_quarters: int = _MOST_QUARTERS
) -> list[tuple[str, NDArray[np.uint8]]]:
    """The name and the melody of each track with notes, except drums, as in `read_midi`.

    Args:
        path: the MIDI file.
        steps_per_beat: grid points in a quarter note.
        most_quarters: the most quarter notes of all tracks together.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    symusic = _symusic()
    try:
        score = symusic.Score.from_midi(path.read_bytes())
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{path}: not a readable MIDI file ({error})") from None
    tracks = [(number, track) for number, track in enumerate(score.tracks) if not track.is_drum and len(track.notes)]
    notes = {f"track {number} {track.name}".strip(): _notes(track) for number, track in tracks}
    last = max([int(score.end()), *(int(stops.max()) for _, stops, _ in notes.values())])
    _require_short(path, score.ticks_per_quarter, last, notes.values(), most_quarters)
    step = score.ticks_per_quarter / steps_per_beat
    return [(name, _on_grid(*track_notes, step, last)) for name, track_notes in notes.items()]


def _require_short(path: Path, ticks: int, last: int, notes: Collection[_Notes], most_quarters: int) -> None:
    """Raise an error for a file that is absurdly long, or whose times are negative or have no unit."""
    first = min([0, *(int(starts.min()) for starts, _, _ in notes)])
    require(ticks > 0 and first >= 0, str(path), f"{ticks} ticks a quarter, from {first}", "a MIDI file that can count")
    seen, most = f"{len(notes)} tracks of {last // ticks:,} quarters", f"{most_quarters:,} quarters in all tracks"
    require(len(notes) * last <= most_quarters * ticks, str(path), seen, f"at most {most}")


def _notes(track: Any) -> _Notes:
    """Onsets and ends in ticks, and pitches, one of each for every note."""
    columns = track.notes.numpy()
    starts, pitches = (columns[name].astype(np.int64) for name in ("time", "pitch"))
    return starts, starts + columns["duration"], pitches


def _on_grid(
    starts: NDArray[np.int64], stops: NDArray[np.int64], pitches: NDArray[np.int64], step: float, last: int
) -> NDArray[np.uint8]:
    """The highest note at each grid point. The loop is over pitches, so that many long notes take no longer."""
    starts = _nearest(starts, step)
    stops = np.maximum(starts + 1, _nearest(stops, step))
    length = max(int(_nearest(np.array([last]), step)[0]), int(stops.max()))
    top = np.full(length, REST, dtype=np.uint8)
    for pitch in np.unique(pitches):
        same = pitches == pitch
        sounding = np.bincount(starts[same], minlength=length + 1) - np.bincount(stops[same], minlength=length + 1)
        top[sounding.cumsum()[:-1] > 0] = pitch
    return top


def _nearest(ticks: NDArray[Any], step: float) -> NDArray[np.int64]:
    return np.floor(ticks / step + 0.5).astype(np.int64)


def _as_melody(tokens: Any) -> NDArray[np.int64]:
    array = np.asarray(tokens.detach().cpu() if isinstance(tokens, Tensor) else tokens)
    require_type(array.dtype.kind in "iu", "tokens", tokens, "integers")
    require(array.ndim == 1 and len(array) > 0, "tokens.shape", array.shape, "(L,), at least one step")
    for value in (int(array.min()), int(array.max())):
        require(0 <= value < MELODY_CLASSES, "token", value, "a MIDI pitch 0..127 or 128, a rest")
    return array.astype(np.int64)


def _runs(steps: NDArray[np.int64]) -> list[tuple[int, int]]:
    """(start, stop) of each run of equal values."""
    edges = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]
    return list(pairwise(edges))
