"""What the integers of an object mean: the base of every kind of data.

A kind answers whatever depends on the meaning of the data: how the user's files are read and written, what a prompt is,
how objects are drawn as pictures, which numbers measure them. It is saved with a model as plain JSON, so that a model
folder is complete by itself. Commands, pictures and evaluations ask the kind of their model and know none by name.

A kind of your own is one file: derive a class from `Kind`, and name it in a recipe, `data.kind: mypackage.Boards`.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from torch import Tensor

from usd3._internal.checks import as_count, require
from usd3.metrics.summary import Metric, Summary
from usd3.pictures import animate_denoising, token_grid, token_maps

if TYPE_CHECKING:
    from usd3.kinds.dataset import Dataset, Sequences
    from usd3.kinds.options import DataConfig

__all__ = ["Augment", "Drawn", "Judge", "Kind", "Renderer", "Request", "lengths"]

Augment = Callable[..., Tensor]
"""`augment(tokens, pad, generator) -> tokens`: changes a training batch at random, seeded by a CPU generator."""

_MOST_STRIPS = 8  # objects in one picture
_LONGEST = 8  # an object whose sides differ by a larger factor is drawn as a strip, not as a map


@dataclass(frozen=True)
class Drawn:
    """Objects that a model drew, with what they were drawn from.

    Args:
        tokens: (N, ...) in the categories of the data.
        given: (...) which elements a prompt gave; None: nothing was given.
        pad: (N, ...) which elements are padding.
        prompt: (N, ...) the tokens of the prompt.
        names: where each row of the prompt comes from.
        frames: the way from noise to the first objects, each (n, ...). Category `num_classes` is not known yet.
        mask: the category of the diffusion that means "not known yet", if it has one.
    """

    tokens: Tensor
    given: Tensor | None = None
    pad: Tensor | None = None
    prompt: Tensor | None = None
    names: list[str] | None = None
    frames: list[Tensor] = field(default_factory=list)
    mask: int | None = None


@dataclass(frozen=True)
class Request:
    """What a command asks a renderer for.

    Args:
        options: the options of all kinds, `usd3.kinds.registry.RenderOptions`.
        suffix: of the one file that is wanted; "": a folder with everything.
        prompt: what to continue or to fill, as the user wrote it.
        first: the first row of the prompt.
        data: the data of the model.
        data_path: where they are now, if the user says so.
        device: where networks of the renderer run.
    """

    options: Any = None
    suffix: str = ""
    prompt: str | None = None
    first: int = 0
    data: "DataConfig | None" = None
    data_path: str | None = None
    device: str | None = None


class Renderer:
    """Turns tokens into files that a person can look at, and files into tokens. This one knows integers alone."""

    prompts: ClassVar[tuple[str, ...]] = ()
    """Endings of prompts besides .npy and .npz, which every kind takes."""
    has_holes: ClassVar[bool] = False
    """Whether prompts show by themselves which elements are to be drawn."""
    num_animated: ClassVar[int] = 4
    """Objects whose denoising is animated."""

    def __init__(self, kind: "Kind"):
        self.kind = kind

    def prompt(self, path: Path) -> "tuple[Sequences, Tensor | None]":
        """The objects in a file with one of the endings `prompts`, and which elements it gives, a mask (...).

        Where the file has no holes the mask is None: the options of the command say what is given.
        """
        raise NotImplementedError

    def write(self, drawn: Drawn, out: Path) -> None:
        """Write everything into the folder `out`, or one file where `out` has a suffix."""
        one_file = bool(out.suffix)
        self.write_objects(drawn, out)
        if out.suffix in ("", ".png"):
            self.picture(drawn, out if one_file else out / "samples.png")
        if drawn.frames and out.suffix in ("", ".gif"):
            self.animate(drawn, out if one_file else out / "denoising.gif")

    def write_objects(self, drawn: Drawn, out: Path) -> None:
        """Write the objects in the user's own format. Integers have none but .npz, which the command writes."""

    def picture(self, drawn: Drawn, path: Path) -> None:
        """Draw the first objects: a map for each of two similar sides, else a strip."""
        first, shape, K = slice(0, _MOST_STRIPS), self.kind.shape, self.kind.num_classes
        names = None if drawn.names is None else drawn.names[first]
        pad = None if drawn.pad is None else drawn.pad[first]
        if len(shape) == 2 and max(shape) <= _LONGEST * min(shape):
            given = None if drawn.given is None else drawn.given.reshape(-1, *shape)
            token_maps(drawn.tokens[first], path, K, given, names, pad)
        else:
            given = None if drawn.given is None else drawn.given.flatten()
            pad = None if pad is None else pad.flatten(1)
            token_grid(drawn.tokens[first].flatten(1), path, K, given, names, pad=pad)

    def animate(self, drawn: Drawn, path: Path) -> None:
        """Draw the way from noise to the first objects."""
        frames = [frame.flatten(1) for frame in drawn.frames]
        given = None if drawn.given is None else drawn.given.flatten()
        num_classes = self.kind.num_classes + (drawn.mask is not None)
        animate_denoising(frames, path, num_classes, given=given, mask=drawn.mask)


class Judge(Protocol):
    """Scores whole sets of objects that were drawn from nothing, such as images."""

    num: int
    """Objects of one set."""
    about: dict[str, Any]
    """What the sets are compared with, for the results."""

    def settings_with(self, num: int) -> dict[str, Any]:
        """The settings of this kind for the results, with the number of objects that were drawn."""

    def scores(self, tokens: Tensor) -> dict[str, float]:
        """Every metric of a set of objects (N, ...)."""

    def references(self, num: int) -> dict[str, dict[str, Summary]]:
        """Reference rows: the same metrics of sets of `num` real objects."""


@dataclass(frozen=True)
class Kind:
    """What the integers of an object mean.

    Fields of a subclass are saved with the model: they must be plain JSON.

    Args:
        num_classes: categories of the data; the mask of absorbing noise is none of them.
        shape: of one object.
    """

    num_classes: int
    shape: tuple[int, ...]

    name: ClassVar[str] = ""
    """How recipes and model folders call it. A kind outside this package is called by its import path."""
    plural: ClassVar[str] = "objects"
    """How messages call its objects."""
    sources: ClassVar[tuple[str, ...]] = ()
    """The values of `data.source` that it reads."""
    suffixes: ClassVar[tuple[str, ...]] = (".npz", ".png", ".gif")
    """The single files that samples can be written to."""
    is_sequence: ClassVar[bool] = True
    """Whether an object has a beginning, so that a prefix can be continued."""
    is_judged: ClassVar[bool] = False
    """Whether it has a `judge`; objects are then measured in sets drawn from nothing, not as continuations."""
    columns: ClassVar[Mapping[str, Metric]] = {}
    """Metrics of its own, by key: those of `structure` and of its judge."""
    evaluate_options: ClassVar[tuple[str, ...]] = ()
    """Options that `usd3 evaluate` needs on another machine, for a model card."""

    def __post_init__(self) -> None:
        as_count(self.num_classes, "num_classes", 2)
        object.__setattr__(self, "shape", tuple(self.shape))  # JSON has lists

    # ---- saved with a model -------------------------------------------------------------------------------------

    @classmethod
    def path(cls) -> str:
        """The name of the kind, or its import path where it is not one of ours."""
        return cls.name if cls.__module__.startswith("usd3.") else f"{cls.__module__}.{cls.__qualname__}"

    def as_dict(self) -> dict[str, Any]:
        """The kind as plain JSON: its name and its own fields."""
        own = {key: value for key, value in asdict(self).items() if key not in ("num_classes", "shape")}
        return {"name": self.path(), **own}

    @classmethod
    def upgraded(cls, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """The kind as plain JSON from a config.json written before there were kinds, if that is about this one."""
        return None

    def describe(self) -> str:
        """The objects in a few words, as in "melodies of 256 sixteenth notes"."""
        return f"{' x '.join(map(str, self.shape))} categories of {self.num_classes} kinds"

    def require_same(self, other: Mapping[str, Any], name: str) -> None:
        """Refuse data or a model, called `name`, of another kind, given as its plain JSON."""
        require(other["name"] == self.path(), f"kind of {name}", other["name"], self.path())

    def without_places(self) -> Self:
        """The kind without folders of this machine, to share it."""
        return self

    @property
    def support(self) -> Tensor | None:
        """Which categories each element can have, (*shape, num_classes) booleans. None: all of them."""
        return None

    # ---- reading ------------------------------------------------------------------------------------------------

    @classmethod
    def claims(cls, data: "DataConfig") -> bool:
        """Whether data that name no kind are of this one."""
        return data.source in cls.sources

    @classmethod
    def needs_path(cls, data: "DataConfig") -> bool:
        """Whether the data are files of the user."""
        return True

    @classmethod
    def read(cls, data: "DataConfig") -> "Dataset":
        """The user's files as objects of this kind in two splits."""
        raise NotImplementedError

    @classmethod
    def describe_split(cls, data: "DataConfig") -> str:
        """How the held-out objects were chosen."""
        return f"{data.test_fraction:g} held out of the objects, seed {data.seed}"

    def augment(self, data: "DataConfig", decode: Tensor | None, device: Any) -> Augment | None:
        """What changes the batches of training at random; None: nothing does.

        Args:
            data: the options of the data.
            decode: (num_classes,) the category of each token; None: tokens are categories.
            device: where the batches are.
        """
        return None

    # ---- files and pictures -------------------------------------------------------------------------------------

    def renderer(self, request: Request) -> Renderer:
        """What turns tokens into files. Opens what it needs now, so that nothing is drawn in vain."""
        return Renderer(self)

    def write(self, tokens: Tensor, path: Path | str) -> None:
        """Write objects (N, ...): all files into a folder, or the one file that `path` names by its suffix."""
        self.renderer(Request(suffix=Path(path).suffix)).write(Drawn(tokens), Path(path))

    def about_arrays(self) -> dict[str, Any]:
        """Arrays that an .npz of samples has besides the tokens."""
        return {}

    def picture_methods(self, rows: Mapping[str, Tensor], compared_with: Mapping[str, Any], path: Path) -> bool:
        """Draw samples (n, ...) of several methods, a row each, and whether there is such a picture for this kind."""
        return False

    def sample_examples(self, given: str | None, prefix: int) -> list[str]:
        """Options of `usd3 sample` for a model card, one example each.

        Args:
            given: which elements stayed clean in training: "none", "prefix", "random", or None where nobody knows.
            prefix: how many elements of a prompt are given by default.
        """
        return [""]

    # ---- measures -----------------------------------------------------------------------------------------------

    def metrics(self, runs: Tensor, truth: Tensor, skip: int, pad: Tensor | None) -> dict[str, Summary]:
        """Compare continuations (R, N, L) with the true objects (N, L), without their first `skip` elements."""
        from usd3.metrics import evaluate_continuations  # it brings torchmetrics, which drawing needs not

        return evaluate_continuations(runs, truth=truth, skip=skip, pad=pad) | self.structure(runs, pad)

    def structure(self, runs: Tensor, pad: Tensor | None = None) -> dict[str, Summary]:
        """Numbers of objects (R, N, L) that mean something without the truth beside them."""
        return {}

    def require_settings(self, settings: Any, option: str) -> None:
        """Refuse settings of an evaluation that a judge of this kind lacks; `option` is where they stand."""

    def judge(self, dataset: "Dataset", settings: Any, device: str | None, option: str) -> Judge:
        """What scores sets of objects. Opens all it needs, before anything is drawn."""
        raise NotImplementedError

    @classmethod
    def describe_sets(cls, settings: Mapping[str, Any], compared_with: Mapping[str, Any]) -> str:
        """What was drawn and compared with what, in one line, from the results of an evaluation."""
        raise NotImplementedError


def lengths(tokens: Tensor, pad: Tensor | None) -> list[int]:
    """Elements of each object before its padding."""
    return [tokens[0].numel()] * len(tokens) if pad is None else (~pad).flatten(1).sum(1).tolist()
