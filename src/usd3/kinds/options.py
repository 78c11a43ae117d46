"""Where the data of a recipe come from: its section `data`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from usd3._internal.checks import as_count, as_number, require
from usd3._internal.fields import from_mapping, require_fields
from usd3.kinds.base import Kind
from usd3.kinds.board.options import BoardOptions
from usd3.kinds.class_files import absolute_places, class_files, joined_by_class
from usd3.kinds.dataset import Dataset
from usd3.kinds.numpy_files import read_arrays
from usd3.kinds.sequence.options import SequenceOptions
from usd3.kinds.table.options import TableOptions
from usd3.kinds.text.options import TextOptions

__all__ = ["DataConfig", "naming_data_path"]

_SECTIONS: dict[str, type[Any]] = {
    "table": TableOptions,
    "text": TextOptions,
    "sequence": SequenceOptions,
    "board": BoardOptions,
}
"""The options that only one kind has, by the name of the kind."""


@dataclass
class DataConfig:
    """Where the data come from.

    Args:
        source: "bach" (the Bach works in music21), "chorales" (its chorales in four voices, or those of a file),
            "array" (an .npy or .npz file), "table" (a .csv, .tsv or .parquet file), "text" (a .txt file), "sequence" (a
            FASTA file), "board" (boards in a text or an array), "lakh" (a folder with train.npy, test.npy and
            descramble_key.txt), "midi" (a folder of MIDI files) or "image_tokens" (an .npz file that `usd3 encode`
            wrote); a kind of your own may have other sources.
        path: the file or folder; not for "bach". For "chorales" an .npz file of arrays (N, T, 4) with -1 after the end
            of each, or a folder of MIDI files with four tracks; null: the chorales in music21.
        kind: what the integers mean: "array", "melody", "chorale", "image_tokens", "table", "text", "sequence",
            "board", or the import path of a class of your own, as in "mypackage.Boards": a usd3.kinds.base.Kind. null:
            the kind that `source` belongs to.
        length: for "bach", "midi" and "chorales" the length of an object in 16th notes: longer ones are cut, shorter
            ones padded. For "text" the number of tokens that the model sees at once.
        num_classes: number of categories of an "array"; null: the largest token + 1. It must be given if that is more
            than 65,536 and more than ten times the number of different tokens.
        music: the tokens of an "array" are MIDI pitches 0..127 with 128 for a rest; the same as `kind` melody.
        pad_value: the token of an "array" that marks padding, for example -1; null: none.
        train_key: name of the training array in an .npz.
        test_key: name of the held-out array in an .npz; if there is none, a part of the training array is held out.
        test_fraction: the fraction that is held out, if the source has no test split.
        seed: seed of that random split.
        scramble: seed of a random renaming of the categories, as in the paper; null: none.
        transpose: in training, move each melody up or down by at most this many semitones; only for melodies and
            chorales.
        labels: whether the model learns the labels of the objects, such as the classes of images: then it draws objects
            with a label (`usd3 sample --where label=cat`). null: where the data have some; for image tokens only if
            this is true.
        options: arguments of a kind of your own.
        table: how a table is read.
        text: how a text is read.
        sequence: how sequences are read.
        board: how boards are read.
    """

    source: str = "bach"
    path: str | None = None
    kind: str | None = None
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
    labels: bool | None = None
    options: dict[str, Any] = field(default_factory=dict)
    table: TableOptions = field(default_factory=TableOptions)
    text: TextOptions = field(default_factory=TextOptions)
    sequence: SequenceOptions = field(default_factory=SequenceOptions)
    board: BoardOptions = field(default_factory=BoardOptions)

    def __post_init__(self) -> None:
        for name, section in _SECTIONS.items():
            if isinstance(getattr(self, name), dict):  # as a file has it
                setattr(self, name, from_mapping(section, getattr(self, name), f"data.{name}"))
        require_fields(self, "data")
        self.path = None if self.path is None else str(self.path)
        as_count(self.length, "data.length", 1)
        as_count(self.transpose, "data.transpose", 0, 24)
        as_number(self.test_fraction, "data.test_fraction", 0, 1)
        if "." not in (self.kind or ""):  # a kind of your own has rules of its own
            from usd3.kinds.registry import require_consistent  # it imports the kinds, which import this module

            require_consistent(self)

    @property
    def kind_class(self) -> type[Kind]:
        """The class of the kind. If it is not one of ours, its code runs."""
        from usd3.kinds.registry import kind_named, kind_of_data  # the registry imports this module

        return kind_of_data(self) if self.kind is None else kind_named(self.kind, "data.kind")

    def file(self, expected: str) -> str:
        """The path of the data; raises an error if it is missing. `expected` says what it should be the path of."""
        require(self.path is not None, "data.path", self.path, f"{expected} for data.source {self.source}")
        return str(self.path)

    def at(self, path: str | None) -> "DataConfig":
        """These data at another path; None: at their own path, which an exported model does not know."""
        moved = replace(self, path=path or self.path)
        if moved.path is None and moved.kind_class.needs_path(moved):
            raise FileNotFoundError(f"the model does not say where its data are, of the source {moved.source}")
        return moved

    def without_places(self) -> "DataConfig":
        """These data without paths of this machine, for a model that is shared."""
        return replace(self, path=None, table=self.table.without_places(), text=self.text.without_places())

    def make_absolute(self) -> None:
        """Make all paths absolute, so that they are valid in every working folder."""
        self.path = None if self.path is None else absolute_places(self.path)
        self.table, self.text = self.table.made_absolute(), self.text.made_absolute()

    def with_test(self, key: str, option: str) -> "DataConfig":
        """These data with another array of the .npz file as test split.

        Args:
            key: the name of the array.
            option: the option with this value, for error messages.
        """
        stored = read_arrays(Path(str(self.path))) if self.source in ("array", "chorales") and self.path else None
        if not isinstance(stored, dict):
            raise ValueError(f"{option} = {key}: expected null, as the data are no .npz file")
        names = sorted(stored) if len(stored) > 1 else []
        listed = ", ".join(names) or "it has that of training alone"
        require(key in names, option, key, f"an array of {self.path}: {listed}")
        return replace(self, test_key=key)

    def load(self, kind: Kind | None = None) -> Dataset:
        """Read the data, and rename the categories if `scramble` is set.

        Args:
            kind: the kind of a trained model, which reads them as in training; None: by the options alone.
        """
        from usd3.kinds.scramble import scramble

        dataset = self._read(kind)
        if self.transpose:
            can_transpose = dataset.kind.augment(self, dataset.decode, "cpu") is not None
            expected = f"0 for {dataset.kind.plural}, which have no pitch"
            require(can_transpose, "data.transpose", self.transpose, expected)
        if self.labels:
            has = "CLASS=FILE,CLASS=FILE, or for arrays, melodies and image tokens an array train_label"
            require(len(dataset.labels) > 0, "data.labels", True, f"data with labels: {has} of an .npz file")
        if not (dataset.kind.uses_labels if self.labels is None else self.labels):
            dataset = dataset.without_labels()
        return dataset if self.scramble is None else scramble(dataset, self.scramble)

    def _read(self, kind: Kind | None) -> Dataset:
        """The data as they are; several files are read one by one, unless the kind reads classes itself."""
        read = self.kind_class.read if kind is None else kind.read_again
        files = None if self.path is None or self.kind_class.reads_classes else class_files(self.path, ())
        if files is None:
            return read(self)
        parts = {name: read(replace(self, path=str(file))).without_labels() for name, file in files.items()}
        return joined_by_class(parts, str(self.path))


@contextmanager
def naming_data_path() -> Iterator[None]:
    """Inside, the error for missing data also names the option that says where they are."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} (--data_path PATH says where the data are)") from None
