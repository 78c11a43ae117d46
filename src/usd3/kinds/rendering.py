"""Tokens as files that a person can look at, and files as prompts: the base of what each kind does.

Pictures are imported where they are drawn: most commands draw none.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

if TYPE_CHECKING:
    from usd3.kinds.base import Kind
    from usd3.kinds.dataset import Sequences
    from usd3.kinds.options import DataConfig

__all__ = ["Drawn", "Renderer", "Request", "lengths"]

_MOST_OBJECTS = 8  # in one picture
_LONGEST_SIDE = 8  # times the shorter side: a longer object is drawn as a strip, not as a map


@dataclass(frozen=True)
class Drawn:
    """Objects that a model drew, and the prompt they were drawn from.

    Args:
        tokens: (N, ...) the objects, in the categories of the data.
        given: (...) or (N, ...) True where the prompt gave an element; None: there was no prompt.
        pad: (N, ...) True where an element is padding.
        prompt: (N, ...) the tokens of the prompt.
        names: where each row of the prompt comes from.
        frames: steps on the way from noise to the first n objects, each (n, ...). In absorbing diffusion, category
            `num_classes` means "not known yet".
        mask: the category of the diffusion that means "not known yet"; None: it has none.
        seed: of the draws, also of those of values where a category stands for several.
        where: the condition that the objects fulfil, as the user wrote it; None: there was none.
    """

    tokens: Tensor
    given: Tensor | None = None
    pad: Tensor | None = None
    prompt: Tensor | None = None
    names: list[str] | None = None
    frames: list[Tensor] = field(default_factory=list)
    mask: int | None = None
    seed: int = 0
    where: Any = None

    def given_of_first(self, num: int) -> Tensor | None:
        """What the prompt gave of the first `num` objects, flat: (1, L) if it is the same for all, else (num, L)."""
        return None if self.given is None else self.given.reshape(-1, self.tokens[0].numel())[:num]


@dataclass(frozen=True)
class Request:
    """What a command asks a renderer for.

    Args:
        options: the options of all kinds, a `usd3.kinds.registry.RenderOptions`; None: their defaults.
        suffix: the ending of the one file to write; "": a folder with all files.
        prompt: what to continue or to fill, as the user typed it.
        first: index of the first row of the prompt.
        data: the data that the model was trained on.
        data_path: where the data are now; None: where they were in training.
        device: where the networks of the renderer run.
    """

    options: Any = None
    suffix: str = ""
    prompt: str | None = None
    first: int = 0
    data: "DataConfig | None" = None
    data_path: str | None = None
    device: str | None = None


class Renderer:
    """Writes objects into files and reads prompts from files. This one treats tokens as plain integers."""

    prompts: ClassVar[tuple[str, ...]] = ()
    """Endings of files that `prompt` reads. Every kind also takes .npy and .npz files, which the command reads."""
    has_holes: ClassVar[bool] = False
    """Whether a prompt itself shows which elements to draw."""
    reads_text: ClassVar[bool] = False
    """Whether a prompt can be typed on the command line instead of the name of a file."""
    num_animated: ClassVar[int] = 4
    """Number of objects in an animation."""

    def __init__(self, kind: "Kind"):
        self.kind = kind

    def prompt(self, path: Path) -> "tuple[Sequences, Tensor | None]":
        """The objects in a file, and a mask (...) or (N, ...) that is True where an element is given.

        The mask is None if the file has no holes; then the options of the command say what is given.
        """
        raise NotImplementedError

    def text_prompt(self, text: str) -> "tuple[Sequences, Tensor | None]":
        """The object that a text describes, typed on the command line, and a mask as in `prompt`."""
        raise NotImplementedError

    def write(self, drawn: Drawn, out: Path) -> None:
        """Write all files into the folder `out`, or one file if `out` has a suffix."""
        one_file = bool(out.suffix)
        self.write_objects(drawn, out)
        if out.suffix in ("", ".png"):
            self.picture(drawn, out if one_file else out / "samples.png")
        if drawn.frames and out.suffix in ("", ".gif"):
            self.animate(drawn, out if one_file else out / "denoising.gif")

    def write_objects(self, drawn: Drawn, out: Path) -> None:
        """Write the objects in the user's own format, such as MIDI files; plain integers have none.

        The command itself writes the tokens into an .npz file.
        """

    def shown(self, drawn: Drawn) -> str:
        """The first objects as text for the terminal; "": they are no text."""
        return ""

    def picture(self, drawn: Drawn, path: Path) -> None:
        """Draw the first objects into one picture: as maps if they have two similar sides, otherwise as strips."""
        from usd3.pictures import token_grid, token_maps

        first, shape, K = slice(0, _MOST_OBJECTS), self.kind.shape, self.kind.num_classes
        names = None if drawn.names is None else drawn.names[first]
        pad = None if drawn.pad is None else drawn.pad[first]
        given = drawn.given_of_first(_MOST_OBJECTS)
        if len(shape) == 2 and max(shape) <= _LONGEST_SIDE * min(shape):
            given = None if given is None else given.unflatten(1, shape)
            token_maps(drawn.tokens[first], path, K, given, names, pad)
        else:
            pad = None if pad is None else pad.flatten(1)
            token_grid(drawn.tokens[first].flatten(1), path, K, given, names, pad=pad)

    def animate(self, drawn: Drawn, path: Path) -> None:
        """Draw the way from noise to the first objects as an animation."""
        from usd3.pictures import animate_denoising

        frames = [frame.flatten(1) for frame in drawn.frames]
        num_classes = self.kind.num_classes + (drawn.mask is not None)
        animate_denoising(frames, path, num_classes, given=drawn.given_of_first(len(frames[0])), mask=drawn.mask)


def lengths(tokens: Tensor, pad: Tensor | None) -> list[int]:
    """For each of the objects (N, ...), the number of elements that are not padding."""
    return [tokens[0].numel()] * len(tokens) if pad is None else (~pad).flatten(1).sum(1).tolist()
