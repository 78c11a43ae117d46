"""Shared by all pictures: colours, checks of arguments, and figures of matplotlib in one style."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from usd3._internal.checks import require, require_type
from usd3._internal.files import written_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "GENERATED",
    "GIVEN",
    "INK",
    "LINE",
    "PADDING",
    "SOFT_INK",
    "STRIP",
    "UNKNOWN",
    "Bools",
    "Ints",
    "Pixels",
    "as_array",
    "as_mask",
    "as_titles",
    "as_tokens",
    "legend",
    "new_figure",
    "plain",
    "rgb",
    "runs",
    "save",
    "style",
]

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Pixels: TypeAlias = npt.NDArray[np.uint8]

GIVEN, GENERATED, UNKNOWN = "#E69F00", "#0072B2", "#D3D8DF"
INK, SOFT_INK, LINE, STRIP = "#1F2933", "#616E7C", "#E1E5EA", "#F6F7F9"
PADDING = {"padding": LINE}  # an entry of legends


def rgb(colour: str) -> tuple[int, ...]:
    """Red, green and blue, 0..255, of a colour "#RRGGBB"."""
    return tuple(bytes.fromhex(colour[1:]))


def as_tokens(rows: Any, name: str, num_classes: int, most: int) -> Ints:
    """Categories (N, L) as an int64 array, checked: 0..num_classes-1, N <= `most`."""
    x = as_array(rows)
    if x.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {x.dtype}: expected integers")
    require(x.ndim == 2 and x.size > 0, f"{name}.shape", x.shape, "(N, L), none of them 0")
    require(len(x) <= most, f"len({name})", len(x), f"at most {most} rows")
    wrong = x[(x < 0) | (x >= num_classes)]
    require(wrong.size == 0, name, f"... {wrong[:1]} ...", f"categories 0..{num_classes - 1}")
    return np.asarray(x, dtype=np.int64)


def as_mask(mask: Any, shape: tuple[int, ...], name: str) -> Bools:
    """Booleans broadcast to `shape`; None is False everywhere."""
    array = as_array(False if mask is None else mask)
    if array.dtype != np.bool_:
        raise TypeError(f"{name} has dtype {array.dtype}: expected booleans")
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"{name}.shape = {array.shape}: expected one that broadcasts to {shape}") from None


def as_array(x: Any) -> npt.NDArray[Any]:
    """A tensor, or anything that NumPy accepts, as an array."""
    return np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x)


def as_titles(titles: Sequence[str] | None, count: int) -> list[str] | None:
    """The titles as a list of `count`; None stays None."""
    if titles is None:
        return None
    require_type(not isinstance(titles, str), "titles", titles, "a list of strings")
    require(len(titles) == count, "len(titles)", len(titles), f"one for each row, {count}")
    return list(titles)


def runs(values: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """(start, length) of each run of equal neighbouring columns of an array (F, L)."""
    starts = np.flatnonzero(np.r_[True, (values[:, 1:] != values[:, :-1]).any(0)])
    return list(zip(starts.tolist(), np.diff(starts, append=values.shape[1]).tolist()))


def plain(text: str) -> str:
    """The text without signs that matplotlib reads as mathematics."""
    return text.replace("$", r"\$")


def new_figure(width: float, height: float) -> "Figure":
    """A figure of this size in inches, without pyplot: no window and no global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=160, facecolor="white", layout="constrained")


def style(axes: "Axes", grid: bool = True) -> None:
    """Style axes: no frame, no ticks, soft labels and, with `grid`, thin lines behind the drawing."""
    axes.spines[:].set_visible(False)
    axes.tick_params(which="both", length=0, labelsize=8, labelcolor=SOFT_INK)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(True, color=LINE, linewidth=0.8)


def legend(figure: "Figure", names: Mapping[str, str], columns: int = 3) -> None:
    """Add a legend above the drawing; `names` are colours by their meaning."""
    from matplotlib.patches import Patch

    if names:
        handles = [Patch(color=colour, label=name) for name, colour in names.items()]
        figure.legend(
            handles=handles, loc="outside upper right", ncols=columns, frameon=False, fontsize=9, labelcolor=INK
        )


def save(figure: "Figure", path: Path | str) -> None:
    """Write the figure to a file, in the format of its suffix; PNG without one."""
    with written_whole(path) as part:
        figure.savefig(part, format=Path(path).suffix[1:] or "png")
