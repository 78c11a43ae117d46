"""What the integers of an object mean: the base class of every kind of data.

Everything that depends on the meaning of the data is a method of its kind: how the user's files are read and written,
what a prompt is, how objects are drawn as pictures, which metrics they have. The kind is saved with the model as plain
JSON, so a model folder needs nothing else. Commands and evaluations use the kind of their model; none knows its name.

A kind of your own is one file: derive a class from `Kind`, and name it in a recipe, `data.kind: mypackage.Boards`.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from usd3._internal.checks import as_count, as_tokens, require
from usd3._internal.files import is_free, written_whole
from usd3.kinds.rendering import Drawn, Renderer, Request
from usd3.metrics._arrays import Floats
from usd3.metrics.summary import Metric, Summary, summarise

if TYPE_CHECKING:
    from usd3.kinds.dataset import Dataset
    from usd3.kinds.options import DataConfig
    from usd3.kinds.page import Page

__all__ = ["Augment", "Judge", "Kind", "Prompts", "ReferenceModel"]

Augment = Callable[..., Tensor]
"""`augment(tokens, pad, generator) -> tokens`: a random change of a training batch. The generator is on the CPU."""


class Prompts(NamedTuple):
    """Objects with holes for a model to fill.

    Args:
        tokens: (M, ...) in the categories of the data.
        given: (M, ...) True where an element is given.
    """

    tokens: Tensor
    given: Tensor


class Judge(Protocol):
    """Scores sets of objects that were drawn from nothing, such as images."""

    num: int
    """Number of objects in a set."""
    about: dict[str, Any]
    """The data and networks that the sets are compared with, for the results."""
    prompts: Prompts | None = None
    """Objects with holes that the model also fills, once in each run, such as puzzles; None: there are none."""

    def settings_with(self, num: int) -> dict[str, Any]:
        """The settings that only this kind has, for the results; `num` objects were drawn."""

    def scores(self, tokens: Tensor) -> dict[str, float]:
        """The metrics of a set of objects (N, ...), by their keys in `Kind.columns`."""

    def filled_scores(self, tokens: Tensor) -> dict[str, float]:
        """The metrics of the filled `prompts` (M, ...), by their keys in `Kind.columns`."""
        return {}

    def references(self, num: int) -> dict[str, dict[str, Summary]]:
        """Reference rows: the same metrics for sets of `num` real objects, by the name of the row.

        A row may also have `bits_per_element`, the likelihood of the held-out objects under a simple model.
        """

    def report(self, tokens: Tensor, folder: Path) -> list[str]:
        """Write pictures and tables of a set of objects (N, ...) into a folder; the names of the files, if any."""
        return []


class ReferenceModel(Protocol):
    """A simple model of sequences, for a reference row."""

    def extend(self, prefix: Tensor, length: int, generator: torch.Generator | None = None) -> Tensor:
        """(N, length): the prefix (N, P), then tokens drawn one after the other."""

    def log_prob(self, tokens: Tensor) -> Tensor:
        """log p of each token given those before it, (N, L)."""


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
    files: ClassVar[tuple[str, ...]] = ()
    """The endings of data files that are of this kind unless the user says otherwise, as in `usd3 train FILE`."""
    recipe: ClassVar[str] = ""
    """The packaged recipe that `usd3 train FILE` begins with; "": the one with the name of the kind."""
    suffixes: ClassVar[tuple[str, ...]] = (".npz", ".png", ".gif")
    """The endings of single files that samples can be written to."""
    single_object_suffixes: ClassVar[tuple[str, ...]] = ()
    """Those of them that hold one object alone."""
    draws_all_prompts: ClassVar[bool] = False
    """Whether a prompt of many objects is filled whole unless the user says how many; else the first few are."""
    draws_one_by_one: ClassVar[bool] = False
    """Whether elements are drawn one at a time unless the user names a sampler, where method and noise allow it."""
    reads_classes: ClassVar[bool] = False
    """Whether `read` takes "a=FILE,b=FILE", files of several classes; otherwise they are read one by one and joined."""
    takes_labels: ClassVar[bool] = False
    """Whether `from_objects` takes the class of each object: `from_objects(objects, data, numbers, classes)`."""
    uses_labels: ClassVar[bool] = True
    """Whether a model learns the labels of the data, where there are some, unless `data.labels` says otherwise."""
    is_sequence: ClassVar[bool] = True
    """Whether an object has a beginning that a model can continue."""
    is_judged: ClassVar[bool] = False
    """Whether it has a `judge`, which measures sets of objects drawn from nothing instead of continuations."""
    columns: ClassVar[Mapping[str, Metric]] = {}
    """The metrics that only this kind has, by key: those of `structure` or of its judge."""
    main_metrics: ClassVar[tuple[str, ...]] = ("2g_hellinger",)
    """The metrics that say most about quality, by key: `usd3 frontier` plots the first of them that was measured."""
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

    def details(self) -> list[str]:
        """What was found in the data, a line each, such as the columns of a table; by default nothing."""
        return []

    def require_same(self, other: Mapping[str, Any], name: str) -> None:
        """Raise an error if `other`, a kind as plain JSON, is not this one; `name` says what it is the kind of."""
        require(other["name"] == self.path(), f"kind of {name}", other["name"], self.path())

    def without_places(self) -> Self:
        """The kind without paths of this machine, for a model that is shared."""
        return self

    @property
    def support(self) -> Tensor | None:
        """(*shape, num_classes) True where data can have a category at an element; None: everywhere."""
        return None

    @property
    def filling(self) -> Tensor | None:
        """(*shape, num_classes) float64: 1 for the categories that may fill a hole of a prompt, else 0; None: all may.

        The category of a missing cell, for example, does not fill a hole.
        """
        return self.support.double() if self.support is not None else None

    def possible(self, tokens: Tensor, given: Tensor) -> Tensor | None:
        """(N, *shape, num_classes) False for the categories that what is given of an object excludes; None: for none.

        A sequence whose tenth letter is given, for example, does not end before it.

        Args:
            tokens: (N, ...) the prompts.
            given: (N, ...) True where an element is given.
        """
        return None

    def obeys(self, tokens: Tensor) -> Tensor | None:
        """(N,) whether each of the objects (N, ...) obeys the rules of its kind; None: there are no rules."""
        return None

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

    def read_again(self, data: "DataConfig") -> "Dataset":
        """Read files as a model of this kind does, such as with its columns or its tokenizer, whatever they hold."""
        return self.read(data)

    @classmethod
    def claims_objects(cls, objects: Any) -> bool:
        """Whether objects in memory, such as an array or a list of strings, are of this kind; for `usd3.fit`."""
        return False

    @classmethod
    def from_objects(cls, objects: Any, data: "DataConfig") -> "Dataset":
        """A training and a test split of objects in memory; `data` are the options, without a path."""
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

    # ---- tokens and the user's objects --------------------------------------------------------------------------

    def objects(self, tokens: Tensor, seed: int = 0) -> Any:
        """Tokens (N, ...) as the user knows them: a DataFrame, a list of strings; by default a NumPy array.

        Args:
            tokens: the objects, in the categories of the data.
            seed: of the draws, where a category stands for several values.
        """
        return tokens.numpy()

    def tokens(self, objects: Any) -> tuple[Tensor, Tensor]:
        """The inverse of `objects`: tokens (N, ...), and a mask (N, ...) that is False where there is a hole."""
        tokens = as_tokens(objects)
        return tokens, torch.ones_like(tokens, dtype=torch.bool)

    def weights(self, where: Mapping[str, Any] | str) -> Tensor:
        """(*shape, num_classes) float64: the share of each category at each element that a condition allows.

        It is 0 or 1, or between where a category stands for several values.

        Args:
            where: the condition, by the names of elements: "sex=Female,age=30..40", or a mapping.
        """
        raise ValueError(f"where = {where}: expected no condition, as the elements of {self.plural} have no names")

    def num_counted(self, tokens: Tensor, pad: Tensor | None) -> int:
        """Over how many elements of objects (N, ...) a mean is taken, such as bits per element: all but the padding."""
        return tokens.numel() if pad is None else int((~pad).sum())

    # ---- files and pictures -------------------------------------------------------------------------------------

    def renderer(self, request: Request) -> Renderer:
        """The object that writes samples and reads prompts. It opens its files now, before anything is drawn."""
        return Renderer(self)

    def page(self, request: Request) -> "Page":
        """The object that says how `usd3 studio` shows objects, and reads what the user drew or typed."""
        from usd3.kinds.page import Page

        return Page(self, request)

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

    def informed_by(self, dataset: "Dataset") -> "Kind":
        """This kind with what its metrics need to know of the training objects; by default nothing."""
        return self

    def metrics(self, runs: Tensor, truth: Tensor, skip: int, pad: Tensor | None) -> dict[str, Summary]:
        """Metrics of continuations, by key: the means of `distances`, and `structure`.

        Args:
            runs: (R, N, L) continuations of N objects in R runs.
            truth: (N, L) the true objects.
            skip: number of elements at the beginning that do not count.
            pad: (N, L) True where an element is padding.
        """
        distances = self.distances(runs, truth, skip, pad)
        return {key: summarise(values.mean(1)) for key, values in distances.items()} | self.structure(runs, pad)

    def distances(self, runs: Tensor, truth: Tensor, skip: int, pad: Tensor | None) -> dict[str, Floats]:
        """The metrics of continuations that each object has, by key: (R, N) of each run, or (P, N) of pairs of runs.

        Methods are compared object by object in them. The arguments are those of `metrics`.
        """
        from usd3.metrics import continuation_distances  # imports torchmetrics, which is slow

        return continuation_distances(runs, truth=truth, skip=skip, pad=pad)

    def structure(self, runs: Tensor, pad: Tensor | None = None) -> dict[str, Summary]:
        """Metrics of objects (R, N, L) that need no true objects, by key."""
        return {}

    def likelihoods(self, bits: float, truth: Tensor) -> dict[str, Summary]:
        """Metrics, by key, that follow from the bits per element of true objects (N, L)."""
        return {}

    def reference_models(self, train: Tensor) -> Mapping[str, ReferenceModel]:
        """Models fitted to training objects (N, L), by the name of their reference row; {}: a Markov chain."""
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
