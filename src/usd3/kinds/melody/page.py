"""Music on the studio's page: a piano roll with one voice or several."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from usd3._internal.checks import require
from usd3.kinds.melody.midi import voices_of
from usd3.kinds.melody.notation import REST
from usd3.kinds.page import OPEN, Page
from usd3.kinds.rendering import Request

if TYPE_CHECKING:
    from usd3.kinds.base import Kind

__all__ = ["RollPage", "Voice"]

STEPS_PER_BEAT, STEPS_PER_BAR = 4, 16
_MOST_QUARTERS = 2**14  # of a MIDI file: hours of music
_THEME = (64, 64, 65, 67, 67, 65, 64, 62, 60, 60, 62, 64)  # Beethoven's Ode to Joy: quarters up to the last three notes
_THEME_STEPS = tuple(pitch for pitch in _THEME for _ in range(STEPS_PER_BEAT)) + (64,) * 6 + (62,) * 2 + (62,) * 8


class Voice(NamedTuple):
    """A voice of a piano roll: its name, and the pitches between which it usually is."""

    name: str
    low: int
    high: int


class RollPage(Page):
    """A piano roll: pitches on a grid of sixteenth notes, (T,) for one voice, (T, V) for several.

    Args:
        kind: the kind, whose categories are MIDI pitches and a rest.
        request: the options of renderers.
        voices: the voices.
    """

    reads = (".mid", ".midi")
    usual_steps = 32
    most_num = 16

    def __init__(self, kind: "Kind", request: Request, voices: Sequence[Voice] = (Voice("Melody", 36, 96),)):
        super().__init__(kind, request)
        self.voices = tuple(voices)

    def editor(self) -> dict[str, Any]:
        """The voices, the category of a rest, and the grid."""
        return {
            "name": "roll",
            "voices": [voice._asdict() for voice in self.voices],
            "rest": REST,
            "steps_per_beat": STEPS_PER_BEAT,
            "steps_per_bar": STEPS_PER_BAR,
            "tempo": 100 if self.request.options is None else self.request.options.tempo,
        }

    def prompts(self) -> list[Any]:
        """The beginning of a theme in the first voice, at most half of an object; the rest is open."""
        theme, steps = _THEME_STEPS[: self.kind.shape[0] // 2], torch.full(self.kind.shape, OPEN)
        first = steps if steps.dim() == 1 else steps[:, 0]
        first[: len(theme)] = torch.tensor(theme)
        return [steps.tolist()]

    def read(self, path: Path) -> tuple[Any, list[str]]:
        """The first tracks of a MIDI file, as many as there are voices; what the file does not reach is open."""
        tracks = voices_of(path, STEPS_PER_BEAT, _MOST_QUARTERS)
        require(len(tracks) > 0, path.name, "no notes", "a MIDI file with notes")
        length, roll = self.kind.shape[0], torch.full((self.kind.shape[0], len(self.voices)), OPEN)
        for voice, (_, steps) in zip(self.voices_called([name for name, _ in tracks]), tracks):
            roll[: len(steps), voice] = torch.as_tensor(steps[:length]).long()
        notes, longest = [], max(len(steps) for _, steps in tracks)
        if len(tracks) > len(self.voices):
            kept = "the first" if len(self.voices) == 1 else f"the first {len(self.voices)}"
            notes.append(f"{kept} of {len(tracks)} tracks")
        if longest > length:
            notes.append(f"the first {length // STEPS_PER_BAR} of {-(-longest // STEPS_PER_BAR):,} bars")
        return roll.reshape(self.kind.shape).tolist(), notes

    def voices_called(self, names: Sequence[str]) -> Sequence[int]:
        """The numbers of the voices that the first tracks of a file are, by the names of all its tracks."""
        return range(len(self.voices))
