"""Objects as the studio's page shows them, and as it sends them back: the base of what each kind does.

A page holds an object in its own form, plain JSON that an editor in the browser can change. By default that is nested
lists of integers in the categories of the data, -1 where the object is open. A kind names an editor and may have
another form. Everything that comes from a page is checked here: it may come from anybody.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from usd3._internal.checks import require, require_type
from usd3.kinds.rendering import Drawn, Request

if TYPE_CHECKING:
    from usd3.kinds.base import Kind

__all__ = ["OPEN", "Frame", "FromPage", "Page", "nested", "tokens_from"]

OPEN = -1
"""Stands for an element that is open, in lists of integers."""

_MOST_SHOWN = 20  # letters of a value in an error message


class FromPage(NamedTuple):
    """Objects that came from a page.

    Args:
        tokens: (N, ...) in the categories of the data.
        given: (N, ...) True where an element is given.
        typed: the N objects as the page sent them.
    """

    tokens: Tensor
    given: Tensor
    typed: Sequence[Any]


class Frame(NamedTuple):
    """A step on the way from noise to an object.

    Args:
        tokens: (...) the network's best guess where the object is open, in the categories of the data.
        sure: (...) how probable the network finds it, 0..1.
        open: (...) True where the element is still noise.
    """

    tokens: Tensor
    sure: Tensor
    open: Tensor


class Page:
    """The objects of a kind in the form of the studio's page. This one edits nested lists of integers.

    Args:
        kind: the kind.
        request: the options of renderers, and where their networks run.
    """

    reads: ClassVar[tuple[str, ...]] = (".npz", ".npy")
    """Endings of the files that `read` takes."""
    usual_num: ClassVar[int] = 4
    """How many objects are drawn unless the user says how many."""
    usual_steps: ClassVar[int | None] = None
    """How many sampling steps are taken unless the user says how many; None: as many as the model usually takes."""
    shows_first: ClassVar[bool] = True
    """Whether the first object is drawn by itself, so that the user can look at it while the others are drawn."""
    most_num: ClassVar[int] = 64
    """How many objects can be drawn at once."""

    def __init__(self, kind: "Kind", request: Request):
        self.kind, self.request = kind, request

    # ---- what the page needs to know ----------------------------------------------------------------------------

    def editor(self) -> dict[str, Any]:
        """The name of the editor and what it needs, plain JSON."""
        return {"name": "array", "num_classes": self.kind.num_classes, "shape": list(self.kind.shape)}

    def empty(self) -> Any:
        """An object that is open everywhere."""
        return torch.full(self.kind.shape, OPEN).tolist()

    def prompts(self) -> list[Any]:
        """Examples of objects with holes, such as a puzzle."""
        return []

    @property
    def writes(self) -> tuple[str, ...]:
        """Endings of the files that `write` makes."""
        return tuple(suffix for suffix in self.kind.suffixes if suffix != ".gif")

    # ---- tokens and objects -------------------------------------------------------------------------------------

    def to_page(self, tokens: Tensor, prompt: FromPage | None = None, seed: int = 0, where: Any = None) -> list[Any]:
        """Drawn objects (N, ...) in the form of the page.

        Args:
            tokens: the objects, in the categories of the data.
            prompt: the one object that they were drawn from; None: they were drawn from nothing.
            seed: of the draws, where a category stands for several values.
            where: the condition that the objects fulfil; None: there was none.
        """
        objects: list[Any] = tokens.tolist()
        return objects

    def from_page(self, objects: Any) -> FromPage:
        """Objects of the page as tokens; an error says what is wrong with them."""
        require_type(isinstance(objects, list), "objects", objects, "a list of objects")
        tokens, given = tokens_from(objects, self.kind.shape, self.kind.num_classes)
        return FromPage(tokens, given, objects)

    def pad(self, prompt: FromPage) -> Tensor | None:
        """(N, ...) True where an object has ended before the element; None: all have every element."""
        return None

    def frame(self, frame: Frame, prompt: FromPage) -> dict[str, Any]:
        """A step on the way to an object as the page shows it: `object`, `sure` and `open`."""
        return {"object": frame.tokens.tolist(), "sure": nested(frame.sure), "open": frame.open.int().tolist()}

    # ---- what is said about drawn objects -----------------------------------------------------------------------

    def notes(self, tokens: Tensor, prompt: FromPage) -> list[str]:
        """Lines about drawn objects (N, ...), such as whether a puzzle is solved."""
        return []

    def shares(self, tokens: Tensor, prompt: FromPage) -> dict[str, list[tuple[str, float]]] | None:
        """How often each value was drawn for each element that was open, by the name of the element; None: no names."""
        return None

    # ---- files and pictures -------------------------------------------------------------------------------------

    def read(self, path: Path) -> tuple[Any, list[str]]:
        """The first object of a file, and lines about what was left out."""
        from usd3.kinds.numpy_files import read_arrays

        stored = read_arrays(path)
        arrays = stored if isinstance(stored, dict) else {"tokens": stored}
        tokens = arrays.get("tokens", next(iter(arrays.values()), None))
        shape = self.kind.shape
        tokens = np.zeros(0) if tokens is None else tokens
        fits = tokens.dtype.kind in "iu" and tokens.size > 0
        fits = fits and tokens.shape[-len(shape) :] == shape and tokens.ndim in (len(shape), len(shape) + 1)
        expected = f"an array of integers {shape} or (N, {', '.join(map(str, shape))})"
        require(fits, path.name, f"{tokens.dtype} {tokens.shape}", expected)
        objects = tokens.reshape(-1, *shape)
        row = [objects[0].tolist()]
        tokens_from(row, shape, self.kind.num_classes)
        return row[0], [] if len(objects) == 1 else [f"the first of {len(objects):,} {self.kind.plural}"]

    def write(self, objects: Any, path: Path, options: Any = None) -> None:
        """Write objects of the page into one file; its ending says in which form.

        Args:
            objects: a list of objects as the page has them, without holes.
            path: the file.
            options: the options of the renderer; None: those of the page.
        """
        whole = self.from_page(objects)
        require(bool(whole.given.all()), "objects", "an object with holes", "whole ones: fill them first")
        self.kind.require_writable(path, len(whole.tokens))
        if path.suffix == ".npz":
            self.kind.write_arrays(path, tokens=whole.tokens.numpy())
        else:
            drawn = Drawn(whole.tokens, pad=self.pad(whole))
            self.kind.renderer(self.request_for(path, options)).write(drawn, path)

    def request_for(self, path: Path, options: Any) -> Request:
        """The request for the renderer that writes this file."""
        return replace(self.request, options=options or self.request.options, suffix=path.suffix)

    def pictures(self, objects: FromPage) -> list[bytes]:
        """A PNG picture of each object, for editors that show pictures; what is open may look like anything."""
        raise ValueError(f"picture: the page draws {self.kind.plural} itself")


def tokens_from(objects: Sequence[Any], shape: Sequence[int], num_classes: int) -> tuple[Tensor, Tensor]:
    """Tokens (N, *shape) of nested lists of integers, and a mask that is False where an object is open.

    Args:
        objects: N objects as they came from a page; an error says what is wrong with them.
        shape: the shape of an object.
        num_classes: number of categories.
    """
    require(len(objects) > 0, "objects", "none", "at least one object")
    numbers: list[int] = []
    for number in objects:
        _append(number, tuple(shape), num_classes - 1, numbers)
    tokens = torch.tensor(numbers, dtype=torch.int64).reshape(len(objects), *shape)
    return tokens.clamp(min=0), tokens != OPEN


def _append(value: Any, shape: tuple[int, ...], top: int, numbers: list[int]) -> None:
    """Append the integers of nested lists of this shape to `numbers`."""
    if not shape:
        fits = isinstance(value, int) and not isinstance(value, bool) and OPEN <= value <= top
        seen = str(value) if isinstance(value, int | float | bool | None) else f"a {type(value).__name__}"
        require(fits, "element of the object", seen[:_MOST_SHOWN], f"an integer 0..{top}, or {OPEN} where it is open")
        numbers.append(value)
        return
    fits = isinstance(value, list) and len(value) == shape[0]
    seen = f"a list of {len(value):,}" if isinstance(value, list) else f"a {type(value).__name__}"
    require(fits, "object", seen, f"a list of {shape[0]:,}, as the model's objects are {' x '.join(map(str, shape))}")
    for part in value:
        _append(part, shape[1:], top, numbers)


def nested(numbers: Tensor) -> Any:
    """Numbers in 0..1 as nested lists, with three decimals: a page needs no more."""
    return (numbers.double() * 1000).round().div(1000).tolist()
