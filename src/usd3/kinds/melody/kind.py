"""Melodies as a kind of data: sixteenth notes from Bach's works, MIDI files, POP909 and Lakh.

Readers, metrics and pictures are imported where they are used: `usd3 sample` needs few of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from usd3._internal.checks import require
from usd3.kinds.base import Augment, Kind
from usd3.kinds.dataset import Dataset, Sequences
from usd3.kinds.melody.midi import read_midi, require_symusic, write_midi
from usd3.kinds.melody.notation import MELODY_CLASSES
from usd3.kinds.melody.options import MelodyOptions
from usd3.kinds.options import DataConfig
from usd3.kinds.rendering import Drawn, Renderer, Request, lengths
from usd3.metrics.summary import STRUCTURE, Metric, Summary

if TYPE_CHECKING:
    from usd3.kinds.page import Page

__all__ = ["Melody", "MelodyRenderer"]

_MOST_MELODIES = 8  # in one picture


@dataclass(frozen=True)
class Melody(Kind):
    """A melody on a grid of sixteenth notes: categories 0..127 are MIDI pitches, 128 is a rest."""

    name: ClassVar[str] = "melody"
    plural: ClassVar[str] = "melodies"
    sources: ClassVar[tuple[str, ...]] = ("bach", "midi", "lakh")
    also_reads: ClassVar[tuple[str, ...]] = ("array",)
    files: ClassVar[tuple[str, ...]] = (".mid", ".midi")
    recipe: ClassVar[str] = "midi"
    suffixes: ClassVar[tuple[str, ...]] = (".npz", ".mid", ".png", ".gif")
    single_object_suffixes: ClassVar[tuple[str, ...]] = (".mid",)
    columns: ClassVar[Mapping[str, Metric]] = {key: Metric(title, None) for key, title in STRUCTURE.items()}

    def __post_init__(self) -> None:
        super().__post_init__()
        expected = "129 for melodies: 128 pitches and a rest"
        require(self.num_classes == MELODY_CLASSES, "num_classes", self.num_classes, expected)

    @classmethod
    def upgraded(cls, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """A config.json with `music: true` is one of melodies."""
        return {"name": cls.name} if config.get("music") else None

    def describe(self) -> str:
        """Such as "melodies of 256 sixteenth notes"."""
        return f"melodies of {' x '.join(map(str, self.shape))} sixteenth notes"

    # ---- reading ------------------------------------------------------------------------------------------------

    @classmethod
    def claims(cls, data: DataConfig) -> bool:
        """Whether the source is one of music, or an array with the option `music`."""
        return super().claims(data) or (data.source == "array" and data.music)

    @classmethod
    def needs_path(cls, data: DataConfig) -> bool:
        """Whether the data are files of the user; Bach's works come with music21."""
        return data.source != "bach"

    @classmethod
    def read(cls, data: DataConfig) -> Dataset:
        """Windows of melodies in a training and a test split."""
        from usd3.kinds.array import Array
        from usd3.kinds.melody.bach import load_bach  # the readers import this class
        from usd3.kinds.melody.lakh import load_lakh
        from usd3.kinds.melody.midi_folder import load_midi

        if data.source == "bach":
            return load_bach(data.length, data.test_fraction, data.seed)
        if data.source == "lakh":
            return load_lakh(data.file("the folder of the release"))
        if data.source == "midi":
            return load_midi(data.file("a folder"), data.length, data.test_fraction, data.seed)
        pitches = MELODY_CLASSES if data.num_classes is None else data.num_classes
        dataset = Array.read(replace(data, num_classes=pitches))
        return replace(dataset, kind=cls(dataset.num_classes, dataset.shape))

    @classmethod
    def describe_split(cls, data: DataConfig) -> str:
        """How the held-out melodies were chosen: by the files, or whole pieces at random."""
        from usd3.kinds.array import Array

        if data.source == "lakh":
            return "that of the files"
        if data.source == "array":
            return Array.describe_split(data)
        return f"{data.test_fraction:g} held out of the pieces, which stay whole, seed {data.seed}"

    def augment(self, data: DataConfig, decode: Tensor | None, device: Any) -> Augment | None:
        """A function that moves each melody up or down by some semitones; None if `data.transpose` is 0."""
        from usd3.kinds.melody.transpose import transposer

        return transposer(data.transpose, decode, device) if data.transpose else None

    # ---- files and pictures -------------------------------------------------------------------------------------

    def renderer(self, request: Request) -> "MelodyRenderer":
        """The renderer of MIDI files and piano rolls."""
        if request.suffix in ("", ".mid"):
            require_symusic()
        options = request.options
        return MelodyRenderer(self, MelodyOptions().tempo if options is None else options.tempo)

    def page(self, request: Request) -> "Page":
        """A piano roll with one voice."""
        from usd3.kinds.melody.page import RollPage

        return RollPage(self, request) if len(self.shape) == 1 else super().page(request)

    def sample_examples(self, given: str | None, prefix: int) -> list[str]:
        """One for a MIDI file; and one for a continuation, if the model was trained on nothing else."""
        continued = f" --prompt yours.mid --prefix {prefix}  # as it was trained"
        return [" --out tune.mid", *([continued] if given == "prefix" else [])]

    # ---- measures -----------------------------------------------------------------------------------------------

    def structure(self, runs: Tensor, pad: Tensor | None = None) -> dict[str, Summary]:
        """Metre, rests, repeated bars, key and range."""
        from usd3.metrics import melody_structure

        return melody_structure(runs, pad)


class MelodyRenderer(Renderer):
    """Writes MIDI files and piano rolls, and reads MIDI files as prompts."""

    prompts = (".mid", ".midi")

    def __init__(self, kind: Melody, tempo: int):
        super().__init__(kind)
        self.tempo = tempo

    def prompt(self, path: Path) -> tuple[Sequences, None]:
        """The melodies of all tracks of a MIDI file, cut to the length of the shortest."""
        melodies = read_midi(path)
        require(len(melodies) > 0, "prompt", path, "a MIDI file with notes")
        shortest = min(map(len, melodies))
        return Sequences(torch.stack([torch.as_tensor(melody[:shortest]).long() for melody in melodies])), None

    def write_objects(self, drawn: Drawn, out: Path) -> None:
        """Write a MIDI file for each melody."""
        if out.suffix not in ("", ".mid"):
            return
        for i, (melody, length) in enumerate(zip(drawn.tokens.flatten(1), lengths(drawn.tokens, drawn.pad)), start=1):
            file = out if out.suffix else out / f"sample-{i:02d}.mid"
            write_midi(melody[:length].numpy(), file, tempo=self.tempo)

    def picture(self, drawn: Drawn, path: Path) -> None:
        """Draw the first melodies as piano rolls."""
        from usd3.pictures import piano_roll

        names = None if drawn.names is None else drawn.names[:_MOST_MELODIES]
        given = drawn.given_of_first(_MOST_MELODIES)
        pad = None if drawn.pad is None else drawn.pad.flatten(1)[:_MOST_MELODIES]
        piano_roll(drawn.tokens.flatten(1)[:_MOST_MELODIES], path, names, given, pad)

    def animate(self, drawn: Drawn, path: Path) -> None:
        """Draw the way from noise to melodies as an animation of piano rolls."""
        from usd3.pictures import animate_roll

        frames = [frame.flatten(1) for frame in drawn.frames]
        animate_roll(frames, path, drawn.given_of_first(len(frames[0])))
