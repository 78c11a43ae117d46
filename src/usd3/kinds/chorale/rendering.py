"""Chorales as MIDI files and piano rolls, and MIDI or MusicXML files as prompts."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.progress import say
from usd3.kinds.base import Kind
from usd3.kinds.chorale.notation import VOICES, voices_named
from usd3.kinds.dataset import Sequences
from usd3.kinds.melody.midi import voices_of, write_tracks
from usd3.kinds.melody.musicxml import melodies_of, read_score
from usd3.kinds.melody.notation import REST
from usd3.kinds.rendering import Drawn, Renderer, lengths
from usd3.pictures.chorales import MOST_CHORALES

__all__ = ["ChoraleRenderer"]

_MIDI, _MUSICXML = (".mid", ".midi"), (".mxl", ".xml", ".musicxml")
_ORGAN = 19  # the instrument of MIDI files
_Voice = tuple[str, NDArray[np.uint8]]


class ChoraleRenderer(Renderer):
    """Writes MIDI files of four tracks and piano rolls, and reads MIDI and MusicXML files as prompts."""

    prompts = (*_MIDI, *_MUSICXML)
    has_holes = True
    num_animated = 2

    def __init__(self, kind: Kind, tempo: int):
        super().__init__(kind)
        self.tempo = tempo

    # ---- prompts ------------------------------------------------------------------------------------------------

    def prompt(self, path: Path) -> tuple[Sequences, Tensor | None]:
        """The chorale in a file, and a mask (1, T, 4) of what is given; None: all voices of all steps are.

        A voice that the file does not have is a hole, and the chorale ends where the file does. A file with all four
        voices that is shorter than the model's chorales has its hole at the end, after its last step.
        """
        voices = _by_voice(_voices_in(path), path)
        steps, most = max(map(len, voices.values())), self.kind.shape[0]
        if steps > most:
            say(f"{path}: the first {most} of {steps} sixteenth notes are used")
        steps = min(steps, most)
        tokens = torch.full((1, *self.kind.shape), REST)
        given = torch.zeros(1, *self.kind.shape, dtype=torch.bool)
        for voice, melody in voices.items():
            sung = melody[:steps]
            tokens[0, : len(sung), voice] = torch.from_numpy(sung).long()
            given[0, :steps, voice] = True
        if len(voices) == len(VOICES):
            return Sequences(tokens), None if steps == most else given
        pad = torch.zeros_like(given)
        pad[:, steps:] = True
        return Sequences(tokens, pad if steps < most else None), given

    # ---- files and pictures -------------------------------------------------------------------------------------

    def write_objects(self, drawn: Drawn, out: Path) -> None:
        """Write a MIDI file for each chorale, a track for each voice."""
        if out.suffix not in ("", ".mid"):
            return
        for i, (chorale, length) in enumerate(zip(drawn.tokens, lengths(drawn.tokens, drawn.pad)), start=1):
            file = out if out.suffix else out / f"sample-{i:02d}.mid"
            steps = chorale[: length // len(VOICES)].numpy()
            tracks = {name: steps[:, voice] for voice, name in enumerate(VOICES)}
            write_tracks(tracks, file, tempo=self.tempo, program=_ORGAN)

    def picture(self, drawn: Drawn, path: Path) -> None:
        """Draw the first chorales as piano rolls, as far as the longest goes."""
        from usd3.pictures import chorale_rolls

        first, steps = slice(0, MOST_CHORALES), self._steps(drawn, MOST_CHORALES)
        names = None if drawn.names is None else drawn.names[first]
        pad = None if drawn.pad is None else drawn.pad[first, :steps]
        chorale_rolls(drawn.tokens[first, :steps], path, names, self._given(drawn, MOST_CHORALES), pad)

    def animate(self, drawn: Drawn, path: Path) -> None:
        """Draw the way from noise to the first chorales as an animation of piano rolls."""
        from usd3.pictures import animate_chorales

        num = len(drawn.frames[0])
        steps = self._steps(drawn, num)
        animate_chorales([frame[:, :steps] for frame in drawn.frames], path, self._given(drawn, num))

    def _steps(self, drawn: Drawn, num: int) -> int:
        """Steps of the longest of the first `num` chorales."""
        pad = None if drawn.pad is None else drawn.pad[:num]
        return max(lengths(drawn.tokens[:num], pad)) // len(VOICES)

    def _given(self, drawn: Drawn, num: int) -> Tensor | None:
        """(1 or num, steps, 4) what the prompt gave of them."""
        given = drawn.given_of_first(num)
        return None if given is None else given.unflatten(1, self.kind.shape)[:, : self._steps(drawn, num)]


def _voices_in(path: Path) -> list[_Voice]:
    """The names and the melodies of the tracks or parts of a file."""
    if path.suffix.lower() in _MIDI:
        return voices_of(path, steps_per_beat=4)
    try:
        return melodies_of(read_score(path))
    except (ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError) as error:
        raise ValueError(f"{path}: not a readable MusicXML file ({error})") from None


def _by_voice(melodies: list[_Voice], path: Path) -> dict[int, NDArray[np.uint8]]:
    """The melodies of a file by the number of their voice.

    The names of the tracks say it; without such names one track is the soprano, and four are in the order of voices.
    """
    named = voices_named([name for name, _ in melodies])
    if named is not None:
        return dict(zip(named, (steps for _, steps in melodies)))
    expected = "one track with notes, the soprano, or four, or tracks with names such as Soprano, Alto, Tenor, Bass"
    listed = ", ".join(name for name, _ in melodies) or "no track with notes"
    require(len(melodies) in (1, len(VOICES)), str(path), listed, expected)
    return {voice: steps for voice, (_, steps) in enumerate(melodies)}
