"""Where the data of a recipe come from: its section `data`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from usd3._internal.checks import as_count, as_number, require
from usd3._internal.fields import require_fields
from usd3.kinds.arrays import load_arrays, read_arrays
from usd3.kinds.dataset import Dataset
from usd3.kinds.image.tokens import load_image_tokens
from usd3.kinds.melody.bach import load_bach
from usd3.kinds.melody.lakh import load_lakh
from usd3.kinds.melody.midi import load_midi
from usd3.kinds.scramble import scramble

__all__ = ["DataConfig"]


@dataclass
class DataConfig:
    """Where the sequences come from.

    Args:
        source: "bach" (the Bach works in music21), "array" (an .npy or .npz file), "lakh" (a folder with train.npy,
            test.npy and descramble_key.txt), "midi" (a folder of MIDI files) or "image_tokens" (an .npz file that
            `usd3 encode` wrote).
        path: the file or folder; not for "bach".
        length: steps of a melody, 16th notes; only for "bach" and "midi". Longer ones are cut, shorter ones padded.
        num_classes: number of categories of an "array"; null: the largest token + 1, but it is asked for where that is
            more than 65,536 and ten times the number of tokens that occur.
        music: whether the tokens of an "array" are MIDI pitches 0..127 with 128 for a rest.
        pad_value: the token of an "array" that marks padding, for example -1; null: none.
        train_key: name of the training array in an .npz.
        test_key: name of the held-out array in an .npz; if there is none, a part of the training array is held out.
        test_fraction: the part that is held out where the source has no split of its own.
        seed: seed of that split.
        scramble: seed of a random renaming of the categories, as in the paper; null: none.
        transpose: in training move each melody by up to so many semitones up or down; only for music.
    """

    source: Literal["bach", "array", "lakh", "midi", "image_tokens"] = "bach"
    path: str | None = None
    length: int = 256
    num_classes: int | None = None
    music: bool = False
    pad_value: int | None = None
    train_key: str = "train"
    test_key: str = "test"
    test_fraction: float = 0.1
    seed: int = 0
    scramble: int | None = None
    transpose: int = 0

    def __post_init__(self) -> None:
        require_fields(self, "data")
        self.path = None if self.path is None else str(self.path)
        as_count(self.length, "data.length", 1)
        as_count(self.transpose, "data.transpose", 0, 24)
        as_number(self.test_fraction, "data.test_fraction", 0, 1)

    def with_test(self, key: str, option: str) -> "DataConfig":
        """These data with another array of the .npz held out; `option` is what named it."""
        stored = read_arrays(Path(str(self.path))) if self.source == "array" else None
        if not isinstance(stored, dict):
            raise ValueError(f"{option} = {key}: expected null, as the data are no .npz file")
        names = sorted(stored) if len(stored) > 1 else []
        listed = ", ".join(names) or "it has that of training alone"
        require(key in names, option, key, f"an array of {self.path}: {listed}")
        return replace(self, test_key=key)

    def load(self) -> Dataset:
        """Read the data."""
        split: dict[str, Any] = {"test_fraction": self.test_fraction, "seed": self.seed}
        if self.source == "bach":
            dataset = load_bach(self.length, **split)
        else:
            kinds = {
                "array": "an .npy or .npz file",
                "lakh": "the folder of the release",
                "midi": "a folder",
                "image_tokens": "a file that usd3 encode wrote",
            }
            require(
                self.path is not None, "data.path", self.path, f"{kinds[self.source]} for data.source {self.source}"
            )
            path = str(self.path)
            if self.source == "array":
                dataset = load_arrays(
                    path,
                    self.num_classes,
                    train=self.train_key,
                    test=self.test_key,
                    pad_value=self.pad_value,
                    music=self.music,
                    **split,
                )
            elif self.source == "image_tokens":
                dataset = load_image_tokens(path)
            else:
                dataset = load_lakh(path) if self.source == "lakh" else load_midi(path, self.length, **split)
        require(dataset.music or not self.transpose, "data.transpose", self.transpose, "0 for data that are not music")
        return dataset if self.scramble is None else scramble(dataset, self.scramble)
