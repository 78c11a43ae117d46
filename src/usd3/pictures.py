"""Pictures of sequences: piano rolls, grids of categories, an animation of the denoising, and the loss.

Given elements and generated ones have different colours, which colour-blind people can tell apart too. Every file is
written whole: under another name first, then renamed. These functions need matplotlib and pillow.
"""

import csv
import importlib
import math
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from usd3._checks import as_count, as_number, require, require_type

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["animate_denoising", "loss_plot", "piano_roll", "token_grid"]

PathLike: TypeAlias = str | os.PathLike[str]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Pixels: TypeAlias = npt.NDArray[np.uint8]
Curve: TypeAlias = npt.NDArray[np.float64]  # (rows, 2), or one of its columns

REST = 128  # and above it, in an animation, what is not known yet
GIVEN, GENERATED, UNKNOWN = "#E69F00", "#0072B2", "#D3D8DF"
INK, SOFT_INK, LINE, STRIP = "#1F2933", "#616E7C", "#E1E5EA", "#F6F7F9"
FEW = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#1F2933")
MOST_ROLLS, MOST_GRID_ROWS, MOST_LENGTH = 8, 64, 2048


def piano_roll(
    rows: Any,
    path: PathLike,
    titles: Sequence[str] | None = None,
    given: Any = None,
    pad: Any = None,
    steps_per_bar: int = 16,
) -> None:
    """Draw melodies as piano rolls, one strip for each row, all on the same scale.

    Neighbouring elements with the same pitch are drawn as one note.

    Args:
        rows: Integers (N, L), N <= 8: pitches 0..127, and 128 for a rest.
        path: The picture's file: .png, .pdf, .svg, ...
        titles: One for each row.
        given: Booleans that broadcast to (N, L): elements that were given rather than generated.
        pad: Booleans that broadcast to (N, L): elements left out and shaded.
        steps_per_bar: Elements in a bar.
    """
    _need("piano_roll", "matplotlib", "matplotlib.figure")
    x = _as_tokens(rows, "rows", REST + 1, MOST_ROLLS)
    known, hidden = _as_mask(given, x.shape, "given"), _as_mask(pad, x.shape, "pad")
    titles, steps = _as_titles(titles, len(x)), as_count(steps_per_bar, "steps_per_bar", 1)
    low, high = _pitch_range(x[~hidden], around=2)
    figure = _figure(9, 0.5 + len(x) * (1.25 if titles else 1.05))
    strips = figure.subplots(len(x), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for i, axes in enumerate(strips):
        _style(axes, "" if titles is None else titles[i])
        axes.set_facecolor(STRIP)
        _draw_notes(axes, x[i], known[i], hidden[i])
        axes.set_yticks(*_octaves(low, high))
        axes.yaxis.grid(True, color=LINE, linewidth=0.8)
    bars = np.arange(0, x.shape[1], steps * _stride(x.shape[1] / steps))
    strips[-1].set_xticks(bars, [f"{bar // steps + 1}" for bar in bars])
    strips[-1].set_xlim(0, x.shape[1])
    strips[-1].set_ylim(low - 0.5, high + 0.5)
    strips[-1].set_xlabel("bar", color=SOFT_INK, fontsize=9)
    _legend(figure, _names(known, hidden))
    _write(path, figure.savefig)


def token_grid(
    rows: Any,
    path: PathLike,
    num_classes: int,
    given: Any = None,
    titles: Sequence[str] | None = None,
    mask: int | None = None,
) -> None:
    """Draw sequences as rows of coloured cells, one colour for each category.

    Args:
        rows: Integers (N, L) in 0..num_classes-1, N <= 64.
        path: The picture's file: .png, .pdf, .svg, ...
        num_classes: K. Up to 8 categories get colours of their own, more get a scale.
        given: Booleans that broadcast to (N, L): given elements are underlined.
        titles: One for each row.
        mask: A category drawn in grey: not known yet.
    """
    _need("token_grid", "matplotlib", "matplotlib.figure")
    classes = as_count(num_classes, "num_classes", 2)
    x = _as_tokens(rows, "rows", classes, MOST_GRID_ROWS)
    known, titles = _as_mask(given, x.shape, "given"), _as_titles(titles, len(x))
    colours = _category_colours(classes, mask)
    figure = _figure(9, 0.75 + 0.34 * len(x))
    axes = figure.subplots()
    _style(axes, "")
    axes.grid(False)
    for i, row in enumerate(x):
        axes.imshow(colours[row][None], extent=(0, x.shape[1], i + 0.36, i - 0.36), interpolation="nearest")
        for start, length in _runs(known[i]):
            if known[i, start]:
                axes.plot([start, start + length], [i + 0.43] * 2, color=INK, linewidth=1.5, solid_capstyle="butt")
    axes.set(xlim=(0, x.shape[1]), ylim=(len(x) - 0.5, -0.5), aspect="auto")
    axes.set_yticks(range(len(x)), titles or [str(i + 1) for i in range(len(x))])
    axes.set_xlabel("element", color=SOFT_INK, fontsize=9)
    _category_key(figure, axes, colours, classes)
    if known.any():
        _legend(figure, {"underlined: given": INK})
    _write(path, figure.savefig)


def animate_denoising(
    frames: Sequence[Any],
    path: PathLike,
    num_classes: int | None = None,
    given: Any = None,
    mask: int | None = None,
    steps_per_bar: int = 16,
    frames_per_second: float = 15.0,
    hold: float = 2.0,
) -> None:
    """Write the sampler's path as an animated GIF, with the progress as a thin bar at the bottom.

    Without `num_classes` the frames are music: pitches 0..127, rest 128, and everything above is drawn in grey as not
    known yet. Pitches far outside those of the last frame are left out. With `num_classes` the frames are grids of
    categories, see `token_grid`.

    Args:
        frames: Integers (N, L) each, N <= 8, from the noise to the sample.
        path: The picture's file, .gif.
        num_classes: K, for sequences that are not music.
        given: Booleans that broadcast to (N, L): elements that were given. They keep their colour.
        mask: The category that means "not known yet", for sequences that are not music.
        steps_per_bar: Elements in a bar of music.
        frames_per_second: Speed.
        hold: Seconds the last frame stays.
    """
    _need("animate_denoising", "pillow", "PIL.Image")
    if num_classes is not None:
        _need("animate_denoising", "matplotlib", "matplotlib.colors")
    require(mask is None or num_classes is not None, "mask", mask, "none for music, or num_classes as well")
    require(len(frames) > 0, "len(frames)", len(frames), "at least one frame")
    classes = 2**31 if num_classes is None else as_count(num_classes, "num_classes", 2)
    x = np.stack(_same_shapes([_as_tokens(f, f"frames[{i}]", classes, MOST_ROLLS) for i, f in enumerate(frames)]))
    known = _as_mask(given, x.shape[1:], "given")
    speed, last = as_number(frames_per_second, "frames_per_second", 0), as_number(hold, "hold", 0, closed=True)
    require(Path(path).suffix.lower() == ".gif", "path", path, "a name that ends with .gif")
    if num_classes is None:
        steps = as_count(steps_per_bar, "steps_per_bar", 1)
        palette, draw = _basic_palette(), _roll_painter(known, _pitch_range(x[-1], around=7), steps)
        legend = _names(known, np.zeros_like(known)) | ({"not known yet": UNKNOWN} if (x > REST).any() else {})
    else:
        palette, draw = _grid_painter(known, classes, mask)
        legend = {"underlined: given": INK} if known.any() else {}
    images = [_add_frame(draw(f), i, len(x), legend) for i, f in enumerate(x)]
    durations = [round(1000 / speed)] * (len(x) - 1) + [max(round(1000 * last), round(1000 / speed))]
    _write(path, lambda file: _save_gif(images, palette, durations, file))


def loss_plot(metrics_csv: PathLike | Sequence[PathLike], path: PathLike) -> None:
    """Plot bits per element against the step, from the CSV file that Lightning's CSVLogger writes.

    Several files are the parts of one run, in order: where a run was resumed, the later part counts.

    The columns are "train/bits_per_element", raw and smoothed, and "val/bits_per_element"; cells may be empty. If the
    file has neither, "train/loss" and "val/loss" are drawn instead.
    """
    _need("loss_plot", "matplotlib", "matplotlib.figure")
    log: list[dict[str, str]] = []
    for part in [metrics_csv] if isinstance(metrics_csv, str | os.PathLike) else metrics_csv:
        with open(part, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        first = min((float(row["step"]) for row in rows if row.get("step")), default=math.inf)
        log = [row for row in log if float(row.get("step") or 0) < first] + rows
    train, val = _curves(log, "bits_per_element")
    label = "bits per element"
    if not len(train) + len(val):
        (train, val), label = _curves(log, "loss"), "loss"
    columns = ", ".join(log[0]) if log else "no rows"
    found = len(train) + len(val) > 0
    require(found, "metrics_csv", metrics_csv, f"numbers under train/ or val/bits_per_element (it has {columns})")
    figure = _figure(8, 4)
    axes = figure.subplots()
    _style(axes, "")
    _draw_losses(axes, train, val)
    axes.set_xlabel("step", color=SOFT_INK)
    axes.set_ylabel(label, color=SOFT_INK)
    axes.legend(frameon=False, labelcolor=INK, loc="upper right")
    _write(path, figure.savefig)


# Arguments


def _as_array(x: Any) -> Any:
    return x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)


def _as_tokens(rows: Any, name: str, num_classes: int, most: int) -> Ints:
    x = _as_array(rows)
    if x.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {x.dtype}: expected integers")
    require(x.ndim == 2 and x.size > 0, f"{name}.shape", x.shape, "(N, L), none of them 0")
    require(len(x) <= most, f"len({name})", len(x), f"at most {most} rows")
    require(x.shape[1] <= MOST_LENGTH, f"{name}.shape", x.shape, f"rows of at most {MOST_LENGTH} elements")
    wrong = x[(x < 0) | (x >= num_classes)]
    require(wrong.size == 0, name, f"... {wrong[:1]} ...", f"categories 0..{num_classes - 1}")
    return np.asarray(x, dtype=np.int64)


def _as_mask(mask: Any, shape: tuple[int, ...], name: str) -> Bools:
    if mask is None:
        return np.zeros(shape, dtype=np.bool_)
    array = _as_array(mask)
    if array.dtype != np.bool_:
        raise TypeError(f"{name} has dtype {array.dtype}: expected booleans")
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"{name}.shape = {array.shape}: expected one that broadcasts to {shape}") from None


def _as_titles(titles: Sequence[str] | None, rows: int) -> list[str] | None:
    if titles is None:
        return None
    require_type(not isinstance(titles, str), "titles", titles, "a list of strings")
    require(len(titles) == rows, "len(titles)", len(titles), f"one for each row, {rows}")
    return list(titles)


def _same_shapes(frames: list[Ints]) -> list[Ints]:
    for i, frame in enumerate(frames):
        require(
            frame.shape == frames[0].shape, f"frames[{i}].shape", frame.shape, f"that of the first, {frames[0].shape}"
        )
    return frames


# Files


def _write(path: PathLike, save: Callable[[Path], Any]) -> None:
    """Save under another name in the same folder, then rename."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{uuid.uuid4().hex}{target.suffix or '.png'}")
    try:
        save(part)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


# Shared drawing


def _need(function: str, package: str, module: str) -> None:
    """One line for whoever lacks an optional package."""
    try:
        importlib.import_module(module)
    except ImportError:
        raise ImportError(f"{function} needs {package}: pip install 'usd3[pictures]'") from None


def _figure(width: float, height: float) -> "Figure":
    """A figure of its own: no pyplot, no window, no global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=160, facecolor="white", layout="constrained")


def _style(axes: "Axes", title: str) -> None:
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0, labelsize=8, labelcolor=SOFT_INK)
    axes.set_axisbelow(True)
    axes.grid(True, axis="x", color=LINE, linewidth=0.8)
    if title:
        axes.set_title(title, loc="left", fontsize=9, color=INK, pad=3)


def _names(given: Bools, pad: Bools) -> dict[str, str]:
    """The colours that occur, by name."""
    names = {"given": GIVEN} if given.any() else {}
    names |= {"generated": GENERATED} if given.any() and not given.all() else {}
    return names | ({"padding": LINE} if pad.any() else {})


def _legend(figure: "Figure", names: Mapping[str, str]) -> None:
    from matplotlib.patches import Patch

    if names:
        handles = [Patch(color=colour, label=name) for name, colour in names.items()]
        figure.legend(handles=handles, loc="outside upper right", ncols=3, frameon=False, fontsize=9, labelcolor=INK)


def _runs(values: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """(start, length) of each stretch of equal neighbours; rows of a 2D array (L, F) are compared whole."""
    table = values.reshape(len(values), -1)
    starts = np.flatnonzero(np.r_[True, (table[1:] != table[:-1]).any(1)])
    return list(zip(starts.tolist(), np.diff(np.r_[starts, len(values)]).tolist()))


def _stride(count: float) -> int:
    """1, 2, 4, 8, ...: so that at most 16 labels fit."""
    return 1 << max(0, math.ceil(math.log2(count / 16)))


# Music


def _pitch_range(tokens: Ints, around: int) -> tuple[int, int]:
    """The lowest and the highest pitch to draw: `around` semitones more than occur, and at least two octaves."""
    notes = tokens[tokens < REST]
    low, high = (int(notes.min()), int(notes.max())) if notes.size else (60, 72)
    extra = max(around, math.ceil((24 - (high - low)) / 2))
    return max(0, low - extra), min(REST - 1, high + extra)


def _octaves(low: int, high: int) -> tuple[list[int], list[str]]:
    """The Cs in the range and their names; every second one if there are many."""
    pitches = [p for p in range(0, REST, 12) if low <= p <= high]
    pitches = pitches[:: 2 if len(pitches) > 4 else 1]
    return pitches, [f"C{p // 12 - 1}" for p in pitches]


def _draw_notes(axes: "Axes", row: Ints, given: Bools, pad: Bools) -> None:
    for start, length in _runs(np.stack([row, given, pad], axis=1)):
        if pad[start]:
            axes.axvspan(start, start + length, color=LINE, linewidth=0)
        elif row[start] < REST:
            bar, colour = [(start + 0.08, length - 0.16)], GIVEN if given[start] else GENERATED
            axes.broken_barh(bar, (row[start] - 0.8, 1.6), color=colour, linewidth=0)


# Categories


def _category_colours(num_classes: int, mask: int | None) -> Pixels:
    """(K, 3) colours: a few that differ, or a scale; grey for the mask."""
    from matplotlib import colormaps, colors

    if num_classes - (mask is not None) <= len(FEW):
        shown = colors.to_rgba_array((FEW * 2)[:num_classes])
    else:
        shown = colormaps["viridis"](np.linspace(0, 1, num_classes))
    colours = np.round(shown[:, :3] * 255).astype(np.uint8)
    if mask is not None:
        colours[as_count(mask, "mask", 0, num_classes - 1)] = _rgb(UNKNOWN)
    return colours


def _category_key(figure: "Figure", axes: "Axes", colours: Pixels, num_classes: int) -> None:
    """The scale beside the grid."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap

    norm = BoundaryNorm(np.arange(num_classes + 1) - 0.5, num_classes)
    bar = figure.colorbar(ScalarMappable(norm, ListedColormap(colours / 255)), ax=axes, aspect=12, pad=0.01)
    marks = range(num_classes) if num_classes <= len(FEW) else [0, num_classes // 2, num_classes - 1]
    bar.set_ticks(list(marks), labels=[str(k) for k in marks])
    bar.ax.minorticks_off()
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=SOFT_INK)
    bar.outline.set_visible(False)


# Animation: pixels are numbers of palette entries

BASIC = ("#FFFFFF", STRIP, LINE, UNKNOWN, GIVEN, GENERATED, INK)
WHITE_PX, STRIP_PX, LINE_PX, UNKNOWN_PX, GIVEN_PX, GENERATED_PX, INK_PX = range(len(BASIC))
GREYS = 16  # shades of ink, for smooth text
MARGIN, GAP, HEADER, BAR = 12, 8, 30, 4


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _basic_palette() -> Pixels:
    ink = np.array(_rgb(INK))
    shades = [ink + (255 - ink) * i // (GREYS - 1) for i in range(GREYS)]
    return np.array([_rgb(c) for c in BASIC] + [tuple(s) for s in shades], dtype=np.uint8)


def _cell_width(length: int) -> int:
    return max(1, min(16, 1024 // length))


def _roll_painter(given: Bools, pitches: tuple[int, int], steps: int) -> Callable[[Ints], list[Pixels]]:
    """A function from tokens (N, L) to one strip of pixels for each row."""
    low, high = pitches
    cell, unit = _cell_width(given.shape[1]), 4

    def strip(row: Ints, known: Bools) -> Pixels:
        grid = np.full((high - low + 1, len(row)), STRIP_PX, dtype=np.uint8)
        grid[:, row > REST] = UNKNOWN_PX
        note = np.flatnonzero((row >= low) & (row <= high) & (row < REST))
        grid[high - row[note], note] = np.where(known[note], GIVEN_PX, GENERATED_PX)
        pixels = grid.repeat(unit, axis=0).repeat(cell, axis=1)
        lines = pixels[:, :: cell * steps]
        lines[lines == STRIP_PX] = LINE_PX
        above, below = pixels[1:] >= GIVEN_PX, pixels[:-1] >= GIVEN_PX
        pixels[:-1][above], pixels[1:][below] = pixels[1:][above], pixels[:-1][below]  # thicker by a pixel each way
        return pixels

    return lambda frame: [strip(row, known) for row, known in zip(frame, given)]


def _grid_painter(given: Bools, num_classes: int, mask: int | None) -> tuple[Pixels, Callable[[Ints], list[Pixels]]]:
    """The palette with the categories' colours, and a function from tokens (N, L) to strips of pixels."""
    basic, colours = _basic_palette(), _category_colours(num_classes, mask)
    room = 256 - len(basic)
    entry = np.arange(num_classes) * min(room, num_classes) // num_classes  # many categories share colours
    plain = np.arange(num_classes) != mask
    shared = np.zeros((min(room, num_classes), 3), dtype=np.uint8)
    shared[entry[plain]] = colours[plain]
    lookup = (entry + len(basic)).astype(np.uint8)
    if mask is not None:
        lookup[mask] = UNKNOWN_PX
    cell = _cell_width(given.shape[1])
    under = np.where(given, INK_PX, WHITE_PX).astype(np.uint8).repeat(cell, axis=1)[:, None].repeat(2, axis=1)

    def strips(frame: Ints) -> list[Pixels]:
        return [
            np.concatenate([lookup[row][None].repeat(24, axis=0).repeat(cell, axis=1), line])
            for row, line in zip(frame, under)
        ]

    return np.concatenate([basic, shared]), strips


def _add_frame(strips: list[Pixels], index: int, count: int, legend: Mapping[str, str]) -> Pixels:
    """The strips below each other, with margins, legend, step and progress."""
    gap = np.full((GAP, strips[0].shape[1]), WHITE_PX, dtype=np.uint8)
    body = np.concatenate([part for strip in strips for part in (strip, gap)])
    width = body.shape[1]
    progress = np.full((BAR, width), LINE_PX, dtype=np.uint8)
    progress[:, : round(width * (index + 1) / count)] = INK_PX
    page = np.concatenate([np.full((HEADER, width), WHITE_PX, dtype=np.uint8), body, progress])
    page = np.pad(page, ((0, MARGIN), (MARGIN, MARGIN)), constant_values=WHITE_PX)
    _add_header(page, f"step {index} / {count - 1}", legend)
    return page


def _add_header(page: Pixels, step: str, legend: Mapping[str, str]) -> None:
    from PIL import Image, ImageDraw, ImageFont

    text = Image.new("L", (page.shape[1], HEADER), 255)
    draw, font = ImageDraw.Draw(text), ImageFont.load_default(14)
    swatches, left = [], MARGIN
    for name, colour in legend.items():
        swatches.append((left, BASIC.index(colour)))
        draw.text((left + 18, HEADER // 2), name, fill=0, font=font, anchor="lm")
        left += 36 + round(draw.textlength(name, font=font))
    if left + draw.textlength(step, font=font) + MARGIN <= page.shape[1]:
        draw.text((page.shape[1] - MARGIN, HEADER // 2), step, fill=0, font=font, anchor="rm")
    shade = np.asarray(text, dtype=np.int64) * (GREYS - 1) // 255
    page[:HEADER] = np.where(shade == GREYS - 1, WHITE_PX, len(BASIC) + shade)
    for start, entry in swatches:
        page[HEADER // 2 - 6 : HEADER // 2 + 6, start : start + 12] = entry


def _save_gif(images: list[Pixels], palette: Pixels, durations: list[int], file: Path) -> None:
    from PIL import Image

    pages = [Image.fromarray(pixels) for pixels in images]
    for page in pages:
        page.putpalette(palette.tobytes())
    pages[0].save(file, save_all=True, append_images=pages[1:], duration=durations, loop=0, optimize=False)


# Losses


def _curves(log: list[dict[str, str]], quantity: str) -> tuple[Curve, Curve]:
    return _column(log, f"train/{quantity}"), _column(log, f"val/{quantity}")


def _column(log: list[dict[str, str]], name: str) -> Curve:
    """(rows, 2): the steps and the finite values of a column, which Lightning may call `name`_step or `name`_epoch."""
    for key in (name, f"{name}_step", f"{name}_epoch"):
        cells = [(row.get("step") or "", row.get(key) or "") for row in log]
        pairs = [(float(step), float(value)) for step, value in cells if step and value]
        if pairs:
            table = np.array(pairs)
            return np.asarray(table[np.isfinite(table).all(1)])
    return np.empty((0, 2))


def _smooth(values: Curve) -> Curve:
    """Mean over neighbours, a fortieth of the curve; where it begins only as many as there are on both sides."""
    reach, at = len(values) // 80, np.arange(len(values))
    before = np.minimum(reach, at)
    after = np.minimum(before, len(values) - 1 - at)
    sums = np.r_[0.0, np.cumsum(values)]
    return np.asarray((sums[at + after + 1] - sums[at - before]) / (before + after + 1))


def _draw_losses(axes: "Axes", train: Curve, val: Curve) -> None:
    axes.yaxis.grid(True, color=LINE, linewidth=0.8)
    if len(train):
        marker = "o" if len(train) < 3 else ""
        axes.plot(*train.T, color=GENERATED, alpha=0.25, linewidth=0.8)
        axes.plot(train[:, 0], _smooth(train[:, 1]), color=GENERATED, linewidth=1.8, marker=marker, label="train")
    if len(val):
        axes.plot(*val.T, color="#D55E00", linewidth=1.5, marker="o", markersize=4, label="validation")
    values = np.r_[_smooth(train[:, 1]) if len(train) else [], val[:, 1]]
    if len(values) >= 20:  # the first steps are far above the rest: leave the top of the curve out
        low, top = values.min(), np.quantile(values, 0.97)
        axes.set_ylim(low - 0.05 * (top - low) - 1e-9, top + 0.25 * (top - low) + 1e-9)
