"""Boards of symbols as pictures: a grid of cells with a symbol in each, given and drawn ones in different colours.

A page is an array of palette entries, so that a picture and the frames of an animation are drawn by the same code.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from usd3._internal.checks import as_count, require
from usd3._internal.files import written_whole
from usd3.pictures.figures import GENERATED, INK, UNKNOWN, Bools, Ints, Pixels, as_array, as_mask, as_titles, rgb
from usd3.pictures.gif import frame_durations, progress_bar, require_gif, save_gif

__all__ = ["animate_boards", "board_grid"]

WRONG, GRID = "#D55E00", "#AAB4C0"
SHADES = 16  # of each ink, from full to white
INKS = (INK, GENERATED, WRONG)
INK_PX, GENERATED_PX, WRONG_PX = (SHADES * i for i in range(len(INKS)))  # the first shade of each
GRID_PX, UNKNOWN_PX = SHADES * len(INKS), SHADES * len(INKS) + 1
WHITE_PX = INK_PX + SHADES - 1
MARGIN, GAP, TITLE, LEGEND, TEXT = 14, 22, 24, 30, 14  # in pixels
MOST_BOARDS, BOARDS_IN_A_ROW = 64, 4
LARGEST_CELL, SMALLEST_CELL, BOARD_WIDTH = 36, 12, 400


def board_grid(
    boards: Any,
    path: Path | str,
    symbols: str,
    given: Any = None,
    wrong: Any = None,
    box: int | None = None,
    titles: Sequence[str] | None = None,
) -> None:
    """Draw boards side by side.

    Args:
        boards: Integers (N, H, W), N <= 64: 0..K-1 for the symbols, K for a cell that is not known.
        path: The file, .png.
        symbols: The K characters that the cells show.
        given: Booleans that broadcast to (N, H, W): given cells, which are dark. The others have a colour.
        wrong: Booleans that broadcast to (N, H, W): cells that break a rule, which are red.
        box: Draw a thick line after so many rows and columns; None: around the board alone.
        titles: One for each board.
    """
    x = _as_boards(boards, "boards", len(symbols))
    is_given, is_wrong = as_mask(given, x.shape, "given"), as_mask(wrong, x.shape, "wrong")
    names = as_titles(titles, len(x)) or [str(i + 1) for i in range(len(x))]
    drawn = _drawn_boards(x, symbols, is_given, is_wrong, box)
    page = _page(drawn, names, _meanings(x, is_given, is_wrong, len(symbols)))
    from PIL import Image

    with written_whole(path) as part:
        Image.fromarray(_palette()[page]).save(part, format="png")


def animate_boards(
    frames: Sequence[Any],
    path: Path | str,
    symbols: str,
    given: Any = None,
    wrong: Sequence[Any] | None = None,
    box: int | None = None,
    frames_per_second: float = 8.0,
    hold: float = 3.0,
) -> None:
    """Write the states of a sampler of boards as an animated GIF, with a progress bar.

    Args:
        frames: Boards as in `board_grid`, from the noise to the sample; unknown cells are grey.
        path: The file, .gif.
        symbols: As in `board_grid`.
        given: As in `board_grid`.
        wrong: For each frame, as in `board_grid`.
        box: As in `board_grid`.
        frames_per_second: Speed.
        hold: Seconds that the last frame stays.
    """
    require_gif(path)
    durations = frame_durations(len(frames), frames_per_second, hold)
    require(len(frames) > 0, "len(frames)", len(frames), "at least one frame")
    states = [_as_boards(frame, f"frames[{i}]", len(symbols)) for i, frame in enumerate(frames)]
    shape = states[0].shape
    for i, state in enumerate(states):
        require(state.shape == shape, f"frames[{i}].shape", state.shape, f"that of the first, {shape}")
    is_given = as_mask(given, shape, "given")
    require(wrong is None or len(wrong) == len(states), "len(wrong)", len(wrong or ()), f"{len(states)}, one a frame")
    conflicts = [as_mask(None if wrong is None else wrong[i], shape, "wrong") for i in range(len(states))]
    legend = _meanings(np.stack(states), is_given, np.stack(conflicts), len(symbols))
    names, pages = [str(i + 1) for i in range(len(states[0]))], []
    for i, (state, conflict) in enumerate(zip(states, conflicts)):
        page = _page(_drawn_boards(state, symbols, is_given, conflict, box), names, legend)
        bar = progress_bar(page.shape[1] - 2 * MARGIN, i + 1, len(states), INK_PX, GRID_PX)
        pages.append(np.concatenate([page, np.pad(bar, ((0, MARGIN), (MARGIN, MARGIN)), constant_values=WHITE_PX)]))
    save_gif(pages, _palette(), durations, path)


def _as_boards(boards: Any, name: str, num_symbols: int) -> Ints:
    x = as_array(boards)
    if x.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {x.dtype}: expected integers")
    as_count(num_symbols, "len(symbols)", 2)
    require(x.ndim == 3 and x.size > 0, f"{name}.shape", x.shape, "(N, H, W), none of them 0")
    require(len(x) <= MOST_BOARDS, f"len({name})", len(x), f"at most {MOST_BOARDS} boards")
    wrong = x[(x < 0) | (x > num_symbols)]
    require(wrong.size == 0, name, f"... {wrong[:1]} ...", f"symbols 0..{num_symbols - 1}, or {num_symbols}: not known")
    return np.asarray(x, dtype=np.int64)


# ---- colours ----------------------------------------------------------------------------------------------------


def _palette() -> Pixels:
    """The colours (256, 3) of the entries: shades of each ink from full to white, then the grid and unknown cells."""
    palette = np.zeros((256, 3), dtype=np.uint8)
    for i, ink in enumerate(INKS):
        full = np.array(rgb(ink))
        palette[SHADES * i : SHADES * (i + 1)] = full + (255 - full) * np.arange(SHADES)[:, None] // (SHADES - 1)
    palette[GRID_PX], palette[UNKNOWN_PX] = rgb(GRID), rgb(UNKNOWN)
    return palette


def _meanings(x: Ints, given: Bools, wrong: Bools, num_symbols: int) -> dict[str, int]:
    """The entries of the colours that occur, by their meaning. Without a prompt nothing needs to be explained."""
    names = {"given": INK_PX, "filled": GENERATED_PX} if given.any() else {}
    names |= {"breaks a rule": WRONG_PX} if wrong.any() else {}
    return names | ({"not known yet": UNKNOWN_PX} if (x == num_symbols).any() else {})


# ---- pages ------------------------------------------------------------------------------------------------------


def _drawn_boards(x: Ints, symbols: str, given: Bools, wrong: Bools, box: int | None) -> list[Pixels]:
    """A page for each board."""
    side = max(SMALLEST_CELL, min(LARGEST_CELL, BOARD_WIDTH // max(x.shape[1:])))
    glyphs = _glyphs(symbols, side)
    coloured = np.where(wrong, WRONG_PX, np.where(given, INK_PX, GENERATED_PX)) if given.any() else WRONG_PX * wrong
    return [_board(*parts, glyphs, len(symbols), box) for parts in zip(x, coloured)]


def _board(x: Ints, colours: Ints, glyphs: Pixels, unknown: int, box: int | None) -> Pixels:
    """One board (H, W) as palette entries, with its lines."""
    side, (height, width) = glyphs.shape[1], x.shape
    cells = glyphs[np.minimum(x, unknown - 1)] + colours[..., None, None].astype(np.uint8)  # (H, W, side, side)
    cells[x == unknown] = UNKNOWN_PX
    page = np.pad(cells.swapaxes(1, 2).reshape(height * side, width * side), 1, constant_values=INK_PX)
    views = ((page, height), (page.T, width))
    for lines, _ in views:
        lines[1 + side : -1 : side] = GRID_PX
    for lines, count in views:
        for i in range(box or count, count, box or count):
            lines[i * side : i * side + 3] = INK_PX
        lines[:2] = lines[-2:] = INK_PX
    return page


def _page(boards: list[Pixels], names: list[str], legend: dict[str, int]) -> Pixels:
    """Boards in rows, each with its name above it, below a legend."""
    height, width = boards[0].shape
    columns = min(len(boards), BOARDS_IN_A_ROW)
    rows = -(-len(boards) // columns)
    head = LEGEND if legend else MARGIN // 2
    size = (head + rows * (TITLE + height) + MARGIN, 2 * MARGIN + columns * (width + GAP) - GAP)
    least = 2 * MARGIN + sum(40 + _text(name).shape[1] for name in legend)
    page = np.full((size[0], max(size[1], least)), WHITE_PX, dtype=np.uint8)
    for i, (board, name) in enumerate(zip(boards, names)):
        top, left = head + i // columns * (TITLE + height), MARGIN + i % columns * (width + GAP)
        _paste(page, _text(name)[:, :width], top + 3, left)
        _paste(page, board, top + TITLE, left)
    left = MARGIN
    for name, entry in legend.items():
        page[MARGIN - 2 : MARGIN + 12, left : left + 14] = entry
        _paste(page, _text(name), MARGIN - 4, left + 20)
        left += 40 + _text(name).shape[1]
    return page


def _paste(page: Pixels, part: Pixels, top: int, left: int) -> None:
    page[top : top + part.shape[0], left : left + part.shape[1]] = part


# ---- text -------------------------------------------------------------------------------------------------------


def _font(size: int) -> Any:
    """The font of Matplotlib, which has chess pieces and the like; Pillow's own has letters alone."""
    import matplotlib
    from PIL import ImageFont

    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size)


def _glyphs(symbols: str, side: int) -> Pixels:
    """The symbols as shades of ink, 0 full and 15 white, (K, side, side)."""
    from PIL import Image, ImageDraw

    font, pictures = _font(round(0.6 * side)), []
    for symbol in symbols:
        image = Image.new("L", (side, side), 255)
        ImageDraw.Draw(image).text((side / 2 + 1, side / 2 + 1), symbol, fill=0, font=font, anchor="mm")
        pictures.append(_shades(image))
    return np.stack(pictures)


def _text(text: str) -> Pixels:
    """A line of text as shades of dark ink."""
    from PIL import Image, ImageDraw

    font = _font(TEXT)
    image = Image.new("L", (max(1, round(font.getlength(text))), TEXT + 5), 255)
    ImageDraw.Draw(image).text((0, TEXT // 2 + 2), text, fill=0, font=font, anchor="lm")
    return _shades(image)


def _shades(image: Any) -> Pixels:
    shades: npt.NDArray[np.int64] = np.asarray(image, dtype=np.int64) * (SHADES - 1) // 255
    return shades.astype(np.uint8)
