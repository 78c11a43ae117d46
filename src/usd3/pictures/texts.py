"""Texts as pictures: pages of letters of one width, on which given ones stand out, and animations of the denoising."""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from usd3._internal.checks import require
from usd3._internal.files import written_whole
from usd3.pictures.figures import INK, LINE, SOFT_INK, UNKNOWN, Pixels, rgb
from usd3.pictures.gif import frame_durations, progress_bar, require_gif, save_gif

__all__ = ["animate_text", "text_page"]

SIZE, WIDTH, HEIGHT = 14, 9, 19  # of the letters, and of the cell of one, in pixels
COLUMNS, MARGIN, GAP, HEADER = 80, 16, 14, 30
MOST_LINES = 40  # of one text
SHADES = 16  # from ink to the background
GIVEN_PAPER = "#FBE6B8"
WHITE, PAPER = 0, 1  # backgrounds of letters: drawn, and given
LINE_PX, UNKNOWN_PX, INK_PX, GIVEN_PX = range(3 * SHADES, 3 * SHADES + 4)  # the first entries are shades
SOFT = 2  # shades of soft ink on white, for line ends and numbers
_SHOWN = {"\n": "↵", "\t": "→", "\r": "↵"}  # marks for characters that cannot be seen, in an animation


def text_page(texts: Sequence[Sequence[str]], path: Path | str, given: Sequence[Sequence[bool]] | None = None) -> None:
    """Draw texts below each other, in lines of at most 80 letters. Given letters are on coloured paper.

    Args:
        texts: each a list of pieces: characters, or parts of words.
        path: the file, .png.
        given: for each piece of each text whether it was given; None: none was.
    """
    from PIL import Image

    require(len(texts) > 0, "texts", texts, "at least one")
    flags = [[False] * len(text) for text in texts] if given is None else given
    blocks = [_written(list(_letters(text, is_given))) for text, is_given in zip(texts, flags)]
    numbers = [_numbered(block, i) for i, block in enumerate(blocks, 1)] if len(blocks) > 1 else blocks
    names = {"given": GIVEN_PX} if any(map(any, flags)) else {}
    page = _page(numbers, names, "")
    image = Image.fromarray(_palette()[page])
    with written_whole(path) as part:
        image.save(part, format="PNG", optimize=True)


def animate_text(
    frames: Sequence[Sequence[Sequence[str | None]]],
    path: Path | str,
    given: Sequence[Sequence[bool]] | None = None,
    frames_per_second: float = 15.0,
    hold: float = 3.0,
) -> None:
    """Write the states of a sampler of texts as an animated GIF: letters appear in place of grey blocks.

    Every piece keeps the place that it has in the last frame; line ends are shown as signs.

    Args:
        frames: for each frame the pieces of each text; None is a piece that is not known yet.
        path: the file, .gif.
        given: for each piece of each text whether it was given.
        frames_per_second: speed.
        hold: seconds that the last frame stays.
    """
    require_gif(path)
    require(len(frames) > 0, "len(frames)", len(frames), "at least one frame")
    durations = frame_durations(len(frames), frames_per_second, hold)
    widths = [[max(1, len(piece or "")) for piece in text] for text in frames[-1]]
    flags = [[False] * len(text) for text in widths] if given is None else given
    names = ({"given": GIVEN_PX} if any(map(any, flags)) else {}) | {"not known yet": UNKNOWN_PX}
    pages = []
    for number, frame in enumerate(frames):
        blocks = [_cells(*parts) for parts in zip(frame, widths, flags)]
        page = _page(blocks, names, f"{round(100 * number / max(1, len(frames) - 1))} %")
        bar = progress_bar(page.shape[1] - 2 * MARGIN, number + 1, len(frames), INK_PX, LINE_PX)
        page[-MARGIN : -MARGIN + len(bar), MARGIN:-MARGIN] = bar
        pages.append(page)
    save_gif(pages, _palette(), durations, path)


# ---- letters on lines ---------------------------------------------------------------------------------------------


def _letters(pieces: Sequence[str], given: Sequence[bool]) -> Iterator[tuple[str, bool]]:
    """Each letter of the pieces and whether it was given."""
    return ((letter, flag) for piece, flag in zip(pieces, given) for letter in piece)


def _written(letters: list[tuple[str, bool]]) -> Pixels:
    """A block of lines. A line is broken at a line end, at a space if it is too long, or within a long word."""
    lines, line = list[list[tuple[str, bool]]](), list[tuple[str, bool]]()
    for letter, flag in letters:
        if letter == "\n" or len(line) >= COLUMNS:
            at = _last_space(line) if letter != "\n" and letter != " " else len(line)
            lines.append(line[:at])
            line = [] if letter in "\n " else line[at:]
        if letter != "\n" and not (letter == " " and not line and lines and len(lines[-1]) >= COLUMNS):
            line.append((letter, flag))
    lines = [*lines, line][:MOST_LINES]
    block = _blank(len(lines))
    for i, written in enumerate(lines):
        for j, (letter, flag) in enumerate(written):
            _put(block, i, j, letter, PAPER if flag else WHITE)
    return block


def _last_space(line: list[tuple[str, bool]]) -> int:
    """Where to break a line that is too long: after its last space in the second half, else at its end."""
    spaces = [i + 1 for i, (letter, _) in enumerate(line) if letter == " " and i >= COLUMNS // 2]
    return spaces[-1] if spaces else len(line)


def _cells(pieces: Sequence[str | None], widths: Sequence[int], given: Sequence[bool]) -> Pixels:
    """A block in which every piece has its place, however it changes."""
    ends = np.cumsum(widths)
    block = _blank(min(MOST_LINES, math.ceil(int(ends[-1]) / COLUMNS)))
    for piece, end, width, flag in zip(pieces, ends.tolist(), widths, given):
        text = " " * width if piece is None else piece.ljust(width)[:width]
        for cell, letter in zip(range(end - width, end), text):
            line, column = divmod(cell, COLUMNS)
            if line >= MOST_LINES:
                return block
            if piece is None:
                _box(block, line, column)[2:-2, 1:-1] = UNKNOWN_PX
            else:
                sign = _SHOWN.get(letter)
                _put(block, line, column, sign or letter, PAPER if flag else SOFT if sign else WHITE)
    return block


def _numbered(block: Pixels, number: int) -> Pixels:
    """The block below a line with its number."""
    line = _blank(1)
    for column, letter in enumerate(str(number)):
        _put(line, 0, column, letter, SOFT)
    return np.concatenate([line, block])


def _blank(lines: int) -> Pixels:
    return np.full((lines * HEIGHT, COLUMNS * WIDTH), _entry(WHITE, SHADES - 1), dtype=np.uint8)


def _box(block: Pixels, line: int, column: int) -> Pixels:
    """The pixels of one cell, a view."""
    return block[line * HEIGHT : (line + 1) * HEIGHT, column * WIDTH : (column + 1) * WIDTH]


def _put(block: Pixels, line: int, column: int, letter: str, paper: int) -> None:
    _box(block, line, column)[:] = _entry(paper, 0) + _glyph(letter)


@functools.lru_cache(maxsize=4096)
def _glyph(letter: str) -> Pixels:
    """A letter as shades 0 (ink) .. 15 (paper), (HEIGHT, WIDTH)."""
    from PIL import Image, ImageDraw

    image = Image.new("L", (WIDTH, HEIGHT), 255)
    if letter.isprintable():
        ImageDraw.Draw(image).text((0, HEIGHT // 2), letter, fill=0, font=_font(), anchor="lm")
    return (np.asarray(image, dtype=np.int64) * (SHADES - 1) // 255).astype(np.uint8)


@functools.cache
def _font() -> Any:
    """A font of one width that comes with matplotlib."""
    import matplotlib
    from PIL import ImageFont

    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSansMono.ttf"), SIZE)


# ---- pages --------------------------------------------------------------------------------------------------------


def _page(blocks: Sequence[Pixels], names: Mapping[str, int], done: str) -> Pixels:
    """The blocks below each other, with margins, a legend, and on the right how much is done."""
    gap = np.full((GAP, COLUMNS * WIDTH), _entry(WHITE, SHADES - 1), dtype=np.uint8)
    body = np.concatenate([part for block in blocks for part in (block, gap)])
    header = HEADER if names or done else 0
    page = np.pad(body, ((MARGIN // 2 + header, MARGIN), (MARGIN, MARGIN)), constant_values=_entry(WHITE, SHADES - 1))
    column = 0
    for name, entry in names.items():
        _box(page[MARGIN // 2 :, MARGIN:], 0, column)[3:-4, :] = entry
        for letter in name:
            column += 1
            _put(page[MARGIN // 2 :, MARGIN + WIDTH // 2 :], 0, column, letter, SOFT)
        column += 4
    for place, letter in enumerate(done):
        _put(page[MARGIN // 2 :, MARGIN:], 0, COLUMNS - len(done) + place, letter, SOFT)
    return page


def _entry(paper: int, shade: int) -> int:
    """The palette entry of a shade of ink on a paper."""
    return paper * SHADES + shade


@functools.cache
def _palette() -> Pixels:
    """The colours (256, 3)."""
    palette = np.zeros((256, 3), dtype=np.uint8)
    pairs = {WHITE: (INK, "#FFFFFF"), PAPER: (INK, GIVEN_PAPER), SOFT: (SOFT_INK, "#FFFFFF")}
    for paper, (ink, background) in pairs.items():
        dark, light = np.array(rgb(ink)), np.array(rgb(background))
        shades = dark + (light - dark) * np.arange(SHADES)[:, None] // (SHADES - 1)
        palette[paper * SHADES : (paper + 1) * SHADES] = shades
    for entry, colour in ((LINE_PX, LINE), (UNKNOWN_PX, UNKNOWN), (INK_PX, INK), (GIVEN_PX, GIVEN_PAPER)):
        palette[entry] = rgb(colour)
    return palette
