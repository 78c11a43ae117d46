"""The models that a page can choose, and those that are open."""

import functools
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from usd3._internal.checks import require
from usd3._internal.messages import suggestion
from usd3.core.samplers.names import ABOUT
from usd3.kinds.base import Kind
from usd3.kinds.page import Page
from usd3.kinds.registry import RenderOptions
from usd3.kinds.rendering import Request
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.packaged import FOLDER, PRESENTED, find_model, list_models
from usd3.pipeline.pipeline import Pipeline
from usd3.pipeline.trust import require_trusted

__all__ = ["Open", "Shelf"]

_MOST_OPEN = 2
_MOST_ELEMENTS = 2**16  # of an object that a browser can edit
_MOST_STEPS = 1000
_MOST_DRAWN = 2**18  # elements that one draw may have, but one object at least
_MOST_CONFIG = 2**24  # bytes of a config.json that is looked at for the list
_MOST_FOLDERS, _MOST_LISTED, _DEEPEST = 2000, 50, 3  # of the search below ./runs


@dataclass(frozen=True)
class Open:
    """A model that is in memory.

    Args:
        name: its name, or its folder as the user typed it.
        folder: where it is.
        pipeline: the model.
        page: its objects as the page shows them.
    """

    name: str
    folder: Path
    pipeline: Pipeline
    page: Page

    @property
    def kind(self) -> Kind:
        """What its objects are."""
        return self.pipeline.kind

    @property
    def most_num(self) -> int:
        """How many objects can be drawn at once."""
        return max(1, min(self.page.most_num, _MOST_DRAWN // _size(self.kind.shape)))

    @property
    def most_steps(self) -> int:
        """The largest number of sampling steps."""
        return min(_MOST_STEPS, self.pipeline.diffusion.num_steps or _MOST_STEPS)

    @property
    def samplers(self) -> tuple[str, ...]:
        """The names of its samplers, the default first."""
        return tuple(self.pipeline.method.samplers)

    def about_drawing(self) -> dict[str, Any]:
        """The usual settings of a draw, and how large they may be."""
        return {
            "sampler": self.samplers[0].partition(":")[0],
            "steps": min(self.page.usual_steps or self.pipeline.config.diffusion.usual_steps, self.most_steps),
            "most_steps": self.most_steps,
            "num": min(self.page.usual_num, self.most_num),
            "most_num": self.most_num,
        }

    def about(self) -> dict[str, Any]:
        """What the page needs to know of it."""
        config, kind, page = self.pipeline.config, self.kind, self.page
        method = self.pipeline.method
        names = [name.partition(":")[0] for name in self.samplers]
        title, line = _presented(self.name, kind.describe())
        follows = bool(config.labels) or config.given in ("random", "prefix", "data") or config.absent
        return {
            "model": self.name,
            "title": title,
            "kind": kind.name or type(kind).__name__,
            "description": line,
            "editor": page.editor(),
            "shape": list(kind.shape),
            "num_classes": kind.num_classes,
            "samplers": [{"name": name, "summary": ABOUT.get(name, "the method's own")} for name in names],
            **self.about_drawing(),
            "guided": follows and method.reads != "ratio",
            "tempered": method.reads != "ratio",
            "labels": config.labels,
            "reads": list(page.reads),
            "writes": list(page.writes),
            "example": page.empty(),
            "prompts": page.prompts(),
        }


class Shelf:
    """Models by name: packaged ones, and model folders below one of the roots. At most two are in memory.

    Args:
        roots: the folders below which models may be opened, beside the packaged ones.
        chosen: the model that the page opens first; None: the user chooses.
        options: the options of the renderers.
        device: where networks run; None: a GPU if there is one.
    """

    def __init__(
        self,
        roots: tuple[Path, ...],
        chosen: str | None = None,
        options: RenderOptions | None = None,
        device: str | None = None,
    ):
        self.roots, self.chosen = tuple(root.resolve() for root in roots), chosen
        self.options, self.device = options or RenderOptions(), device
        self._open: OrderedDict[str, Open] = OrderedDict()
        self._lock = threading.RLock()

    def list(self) -> list[dict[str, Any]]:
        """The packaged models, then the model folders below ./runs, as the page lists them."""
        names = list(list_models())
        names += [self.chosen] if self.chosen is not None and self.chosen not in names else []
        names += [name for name in _folders_below(Path("runs")) if name not in names]
        found = []
        for name in names:
            folder = self._allowed(name)
            kind = None if folder is None else _kind_in(folder / "config.json")
            if kind is not None:
                title, line = _presented(name, kind[1])
                about = {"name": name, "title": title, "kind": kind[0], "description": line}
                found.append(about | {"packaged": name in list_models()})
        return found

    def open(self, name: str) -> Open:
        """The model of this name, from memory or from its folder."""
        with self._lock:
            if name in self._open:
                self._open.move_to_end(name)
                return self._open[name]
            folder = self._allowed(name)
            names = list(list_models())
            expected = f"one of {', '.join(names)}, or a model folder below the one where usd3 studio was started"
            require(folder is not None, "model", name, f"{expected}{suggestion(name, names)}")
            assert folder is not None
            while len(self._open) >= _MOST_OPEN:
                self._open.popitem(last=False)
            self._open[name] = self._opened(name, folder)
            return self._open[name]

    def _opened(self, name: str, folder: Path) -> Open:
        pipeline = Pipeline.from_pretrained(folder, device=self.device)
        size = _size(pipeline.kind.shape)
        require(size <= _MOST_ELEMENTS, "model", name, f"objects of at most {_MOST_ELEMENTS:,} elements, not {size:,}")
        request = Request(options=self.options, device=str(pipeline.device))
        return Open(name, folder, pipeline, pipeline.kind.page(request))

    def _allowed(self, name: str) -> Path | None:
        """The folder of a model that may be opened; None: there is none of this name."""
        if name in list_models():
            return find_model(FOLDER / name)
        try:
            folder = Path(name).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            return None
        inside = any(folder.is_relative_to(root) for root in self.roots)
        return folder if inside and (folder / "config.json").is_file() else None

    def request(self, tempo: int | None = None) -> RenderOptions:
        """The options of renderers, with another tempo."""
        return self.options if tempo is None else replace(self.options, tempo=tempo)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for side in shape:
        size *= side
    return size


def _presented(name: str, description: str) -> tuple[str, str]:
    """The title of a model, and a line about it; `description` is what its kind says."""
    if name in PRESENTED:
        return PRESENTED[name]
    title = Path(name).name.replace("_", " ").replace("-", " ").strip()
    return title[:1].upper() + title[1:] or name, description[:1].upper() + description[1:]


def _kind_in(file: Path) -> tuple[str, str] | None:
    """The name and the description of the kind in a config.json; None: it is no model that can be opened here."""
    try:
        status = file.stat()
        return _kind_read(file, status.st_mtime_ns) if status.st_size <= _MOST_CONFIG else None
    except OSError:
        return None


@functools.lru_cache(maxsize=4 * _MOST_LISTED)
def _kind_read(file: Path, changed: int) -> tuple[str, str] | None:
    """The same for a file that was last changed at this time. Nothing of another's code is imported."""
    try:
        config = PipelineConfig.read(file.parent)
        require_trusted(config, ())
        kind = config.build_kind()
        return kind.name, kind.describe()
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _folders_below(root: Path) -> list[str]:
    """The model folders below a folder, at most so many, and not searched too deep; links are not followed."""
    return [str(folder) for folder, _ in zip(_search(root), range(_MOST_LISTED))]


def _search(root: Path) -> Iterator[Path]:
    queue, seen = [(root, 0)], 0
    while queue and seen < _MOST_FOLDERS:
        folder, depth = queue.pop(0)
        seen += 1
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        names = {entry.name for entry in entries}
        if {"config.json", "model.safetensors"} <= names:
            yield folder
        elif depth < _DEEPEST:
            queue += [(Path(entry.path), depth + 1) for entry in entries if entry.is_dir(follow_symlinks=False)]
