"""Chorales as a kind of data: four voices on a grid of sixteenth notes.

Readers, metrics and pictures are imported where they are used: `usd3 sample` needs few of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch import Tensor

from usd3._internal.checks import require
from usd3.kinds.base import Augment, Kind
from usd3.kinds.chorale.notation import RANGES, VOICES
from usd3.kinds.dataset import Dataset
from usd3.kinds.melody.midi import require_symusic
from usd3.kinds.melody.notation import MELODY_CLASSES
from usd3.kinds.melody.options import MelodyOptions
from usd3.kinds.options import DataConfig
from usd3.kinds.rendering import Renderer, Request
from usd3.metrics.chorales import CHORALE_COLUMNS
from usd3.metrics.summary import Metric, Summary

if TYPE_CHECKING:
    from usd3.kinds.page import Page

__all__ = ["Chorale"]


@dataclass(frozen=True)
class Chorale(Kind):
    """Four voices (T, 4), soprano to bass: categories 0..127 are MIDI pitches, 128 is silence.

    Args:
        num_classes: 129.
        shape: (T, 4).
        from_files: the chorales of training were the user's, not those of music21.
    """

    from_files: bool = False

    name: ClassVar[str] = "chorale"
    plural: ClassVar[str] = "chorales"
    sources: ClassVar[tuple[str, ...]] = ("chorales",)
    suffixes: ClassVar[tuple[str, ...]] = (".npz", ".mid", ".png", ".gif")
    single_object_suffixes: ClassVar[tuple[str, ...]] = (".mid",)

    columns: ClassVar[Mapping[str, Metric]] = {key: Metric(title, None) for key, title in CHORALE_COLUMNS.items()}

    def __post_init__(self) -> None:
        super().__post_init__()
        expected = "129 for chorales: 128 pitches and silence"
        require(self.num_classes == MELODY_CLASSES, "num_classes", self.num_classes, expected)
        fits = len(self.shape) == 2 and self.shape[1] == len(VOICES)
        require(fits, "shape", self.shape, "(T, 4), four voices at each step")

    def describe(self) -> str:
        """Such as "chorales of 128 sixteenth notes"."""
        return f"chorales of {self.shape[0]} sixteenth notes"

    # ---- reading ------------------------------------------------------------------------------------------------

    @classmethod
    def needs_path(cls, data: DataConfig) -> bool:
        """Never: without a path, the chorales are those that come with music21."""
        return False

    @classmethod
    def read(cls, data: DataConfig) -> Dataset:
        """Windows of chorales in a training and a test split."""
        from usd3.kinds.chorale.reading import read_dataset  # it imports this class

        return read_dataset(data)

    def read_again(self, data: DataConfig) -> Dataset:
        """The chorales at `data.path`; without one those of music21, if the model was trained on them."""
        if self.from_files and data.path is None:
            raise FileNotFoundError("the model does not say where its chorales are")
        return self.read(data)

    @classmethod
    def from_objects(cls, objects: Any, data: DataConfig) -> Dataset:
        """Chorales in memory: integers (N, T, 4) with -1 after the end of each."""
        from usd3.kinds.chorale.reading import dataset_of

        return dataset_of(objects.cpu().numpy() if isinstance(objects, Tensor) else np.asarray(objects), data)

    @classmethod
    def describe_split(cls, data: DataConfig) -> str:
        """The arrays of the file that are the splits, or the fraction of the music that was held out."""
        from usd3.kinds.array import Array

        if data.path is not None and data.path.endswith(".npz"):
            return Array.describe_split(data)
        return f"{data.test_fraction:g} held out of the chorales, related ones on one side, seed {data.seed}"

    def augment(self, data: DataConfig, decode: Tensor | None, device: Any) -> Augment | None:
        """A function that moves each chorale up or down by some semitones; None if `data.transpose` is 0."""
        from usd3.kinds.chorale.transpose import transposer

        return transposer(data.transpose, decode, device) if data.transpose else None

    # ---- files and pictures -------------------------------------------------------------------------------------

    def renderer(self, request: Request) -> Renderer:
        """The renderer of MIDI files and piano rolls."""
        from usd3.kinds.chorale.rendering import ChoraleRenderer

        if request.suffix in ("", ".mid"):
            require_symusic()
        options = request.options
        return ChoraleRenderer(self, MelodyOptions().tempo if options is None else options.tempo)

    def page(self, request: Request) -> "Page":
        """A piano roll with four voices."""
        from usd3.kinds.chorale.page import ChoralePage

        return ChoralePage(self, request)

    def sample_examples(self, given: str | None, prefix: int) -> list[str]:
        """New chorales, and a tune harmonised."""
        return [" --out chorale.mid", " --prompt tune.mid  # one track, the soprano: the other voices are drawn"]

    # ---- measures -----------------------------------------------------------------------------------------------

    def structure(self, runs: Tensor, pad: Tensor | None = None) -> dict[str, Summary]:
        """Parallel fifths and octaves, crossed voices, spacing, ranges, notes on the beat, silence, repeated bars."""
        from usd3.metrics import chorale_structure

        voices = runs.reshape(*runs.shape[:2], *self.shape)
        return chorale_structure(voices, RANGES, None if pad is None else pad.reshape(voices.shape[1:]))
