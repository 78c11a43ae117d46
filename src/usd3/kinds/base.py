"""What the integers of an object mean: the base class of every kind of data.

Everything that depends on the meaning of the data is a method of its kind: how the user's files are read and written,
what a prompt is, how objects are drawn as pictures, which metrics they have. The kind is saved with the model as plain
JSON, so a model folder needs nothing else. Commands and evaluations use the kind of their model; none knows its name.

A kind of your own is one file: derive a class from `Kind`, and name it in a recipe, `data.kind: mypackage.Boards`.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from torch import Tensor

from usd3._internal.checks import as_count, require
from usd3._internal.files import is_free, written_whole
from usd3.kinds.rendering import Drawn, Renderer, Request
from usd3.metrics.summary import Metric, Summary

if TYPE_CHECKING:
    from usd3.kinds.dataset import Dataset
    from usd3.kinds.options import DataConfig

__all__ = ["Augment", "Judge", "Kind"]

Augment = Callable[..., Tensor]
"""`augment(tokens, pad, generator) -> tokens`: a random change of a training batch. The generator is on the CPU."""


class Judge(Protocol):
    """Scores sets of objects that were drawn from nothing, such as images."""

    num: int
    """Number of objects in a set."""
    about: dict[str, Any]
    """The data and networks that the sets are compared with, for the results."""

    def settings_with(self, num: int) -> dict[str, Any]:
        """The settings that only this kind has, for the results; `num` objects were drawn."""

    def scores(self, tokens: Tensor) -> dict[str, float]:
        """The metrics of a set of objects (N, ...), by their keys in `Kind.columns`."""

    def references(self, num: int) -> dict[str, dict[str, Summary]]:
        """Reference rows: the same metrics for sets of `num` real objects, by the name of the row."""


@dataclass(frozen=True)
class Kind:
    """What the integers of an object mean.

    The fields of a subclass are saved with the model, so they must be plain JSON.

    Args:
        num_classes: number of categories of the data, K. The mask of absorbing noise is not one of them.
        shape: shape of one object.
    """

    num_classes: int
    shape: tuple[int, ...]

    name: ClassVar[str] = ""
    """Its name in recipes and model folders. A kind outside this package is named by its import path."""
    plural: ClassVar[str] = "objects"
    """What its objects are called in messages."""
    sources: ClassVar[tuple[str, ...]] = ()
    """The values of `data.source` that belong to it."""
    also_reads: ClassVar[tuple[str, ...]] = ()
    """Further values of `data.source` that it reads where `data.kind` names it."""
    suffixes: ClassVar[tuple[str, ...]] = (".npz", ".png", ".gif")
    """The endings of single files that samples can be written to."""
    single_object_suffixes: ClassVar[tuple[str, ...]] = ()
    """Those of them that hold one object alone."""
    is_sequence: ClassVar[bool] = True
    """Whether an object has a beginning that a model can continue."""
    is_judged: ClassVar[bool] = False
    """Whether it has a `judge`, which measures sets of objects drawn from nothing instead of continuations."""
    columns: ClassVar[Mapping[str, Metric]] = {}
    """The metrics that only this kind has, by key: those of `structure` or of its judge."""
    evaluate_options: ClassVar[tuple[str, ...]] = ()
    """Options that `usd3 evaluate` needs on another machine, for the model card."""

    def __post_init__(self) -> None:
        as_count(self.num_classes, "num_classes", 2)
        object.__setattr__(self, "shape", tuple(self.shape))  # JSON has lists

    # ---- saved with a model -------------------------------------------------------------------------------------

    @classmethod
    def path(cls) -> str:
        """The name of the kind, or its import path if it is not one of ours."""
        return cls.name if cls.__module__.startswith("usd3.") else f"{cls.__module__}.{cls.__qualname__}"

    def as_dict(self) -> dict[str, Any]:
        """The kind as plain JSON: its name and its fields, without `num_classes` and `shape`."""
        fields = {key: value for key, value in asdict(self).items() if key not in ("num_classes", "shape")}
        return {"name": self.path(), **fields}

    @classmethod
    def upgraded(cls, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """The kind as plain JSON, for a config.json of a version without kinds; None: its model is of another kind."""
        return None

    def describe(self) -> str:
        """What the objects are, such as "melodies of 256 sixteenth notes"."""
        return f"{' x '.join(map(str, self.shape))} elements of {self.num_classes} categories"

    def require_same(self, other: Mapping[str, Any], name: str) -> None:
        """Raise an error if `other`, a kind as plain JSON, is not this one; `name` says what it is the kind of."""
        require(other["name"] == self.path(), f"kind of {name}", other["name"], self.path())

    def without_places(self) -> Self:
        """The kind without paths of this machine, for a model that is shared."""
        return self

    # ---- reading ------------------------------------------------------------------------------------------------

    @classmethod
    def claims(cls, data: "DataConfig") -> bool:
        """Whether data without the option `data.kind` are of this kind."""
        return data.source in cls.sources

    @classmethod
    def needs_path(cls, data: "DataConfig") -> bool:
        """Whether the data are files of the user, so that `data.path` must be set."""
        return True

    @classmethod
    def read(cls, data: "DataConfig") -> "Dataset":
        """Read the user's files: a training and a test split of objects of this kind."""
        raise NotImplementedError

    @classmethod
    def describe_split(cls, data: "DataConfig") -> str:
        """How the held-out objects were chosen, for the model card."""
        return f"{data.test_fraction:g} held out of the objects, seed {data.seed}"

    def augment(self, data: "DataConfig", decode: Tensor | None, device: Any) -> Augment | None:
        """A function that changes training batches at random; None: batches are not changed.

        Args:
            data: the options of the data.
            decode: (num_classes,) the category of the data for each token; None: they are the same.
            device: where the batches are.
        """
        return None

    # ---- files and pictures -------------------------------------------------------------------------------------

    def renderer(self, request: Request) -> Renderer:
        """The object that writes samples and reads prompts. It opens its files now, before anything is drawn."""
        return Renderer(self)

    def write(self, tokens: Tensor, path: Path | str) -> None:
        """Write objects (N, ...): all files into the new folder `path`, or one new file if `path` has a suffix."""
        out = Path(path)
        self.require_writable(out, len(tokens))
        if out.suffix in ("", ".npz"):
            self.write_arrays(out, tokens=tokens.numpy())
        if out.suffix != ".npz":
            self.renderer(Request(suffix=out.suffix)).write(Drawn(tokens), out)

    def require_writable(self, out: Path, num: int) -> None:
        """Raise an error unless `num` objects can be written to `out`: nothing is there, and the suffix is known."""
        require(is_free(out), "out", out, "a name that is not taken: choose another, or remove what is there")
        endings = ", ".join(self.suffixes)
        require(out.suffix in ("", *self.suffixes), "out", out, f"a folder or a file that ends with {endings}")
        single = out.suffix in self.single_object_suffixes
        require(not single or num == 1, "num", num, f"1 where `out` is one {out.suffix} file")

    def write_arrays(self, out: Path, **arrays: Any) -> None:
        """Write arrays, and those of `about_arrays`, to the .npz file `out`, or to samples.npz in the folder `out`."""
        with written_whole(out if out.suffix else out / "samples.npz") as file:
            np.savez_compressed(file, **arrays, **self.about_arrays())

    def about_arrays(self) -> dict[str, Any]:
        """Further arrays for an .npz file of samples, beside the tokens."""
        return {}

    def picture_methods(self, rows: Mapping[str, Tensor], compared_with: Mapping[str, Any], path: Path) -> bool:
        """Draw samples of several methods, a row for each; False if this kind has no such picture.

        Args:
            rows: samples (n, ...) of each method, by its label.
            compared_with: the field `about` of the judge that measured the samples.
            path: the file to write.
        """
        return False

    def sample_examples(self, given: str | None, prefix: int) -> list[str]:
        """Options of `usd3 sample` for the model card, one string for each example.

        Args:
            given: which elements stayed clean in training: "none", "prefix" or "random"; None: unknown.
            prefix: number of elements of a prompt that are given by default.
        """
        return [""]

    # ---- measures -----------------------------------------------------------------------------------------------

    def metrics(self, runs: Tensor, truth: Tensor, skip: int, pad: Tensor | None) -> dict[str, Summary]:
        """Metrics of continuations, by key.

        Args:
            runs: (R, N, L) continuations of N objects in R runs.
            truth: (N, L) the true objects.
            skip: number of elements at the beginning that do not count.
            pad: (N, L) True where an element is padding.
        """
        from usd3.metrics import evaluate_continuations  # imports torchmetrics, which is slow

        return evaluate_continuations(runs, truth=truth, skip=skip, pad=pad) | self.structure(runs, pad)

    def structure(self, runs: Tensor, pad: Tensor | None = None) -> dict[str, Summary]:
        """Metrics of objects (R, N, L) that need no true objects, by key."""
        return {}

    def require_settings(self, settings: Any, option: str) -> None:
        """Raise an error if a setting that the judge needs is missing.

        Args:
            settings: the settings of the evaluation.
            option: the prefix of their names in error messages, such as "evaluation.".
        """

    def judge(self, dataset: "Dataset", settings: Any, device: str | None, option: str) -> Judge:
        """The judge of this kind. It opens everything it needs now, before anything is drawn.

        Args:
            dataset: the real objects.
            settings: the settings of the evaluation.
            device: where networks run; None: a GPU if there is one.
            option: the prefix of the settings' names in error messages, such as "evaluation.".
        """
        raise NotImplementedError

    @classmethod
    def describe_sets(cls, settings: Mapping[str, Any], compared_with: Mapping[str, Any]) -> str:
        """A line that says what was drawn and what it was compared with.

        Args:
            settings: the settings in the results of an evaluation.
            compared_with: the field `about` of the judge.
        """
        raise NotImplementedError
