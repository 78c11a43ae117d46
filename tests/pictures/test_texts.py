"""Pages of text: letters where they belong, given ones on coloured paper."""

import numpy as np
import pytest
from PIL import Image

from usd3.pictures import animate_text, text_page
from usd3.pictures import texts as module
from usd3.pictures.figures import UNKNOWN, rgb

PAPER = rgb(module.GIVEN_PAPER)


def pixels(path, frame=0):
    with Image.open(path) as image:
        image.seek(frame)
        return np.asarray(image.convert("RGB"))


def has(image, colour):
    return (image == np.array(colour)).all(-1)


def lines_of(letters):
    """How many lines a text takes."""
    return len(module._written([(letter, False) for letter in letters])) // module.HEIGHT


def test_given_letters_stand_on_coloured_paper(tmp_path):
    text_page([list("abcdefgh")], tmp_path / "a.png", [[True] * 3 + [False] * 5])
    text_page([list("abcdefgh")], tmp_path / "b.png")
    marked, plain = pixels(tmp_path / "a.png"), pixels(tmp_path / "b.png")
    assert not has(plain, PAPER).any()
    columns = np.flatnonzero(has(marked[module.HEADER + 8 :], PAPER).any(0))
    assert columns.min() >= module.MARGIN
    assert columns.max() < module.MARGIN + 3 * module.WIDTH


def test_pieces_and_letters_give_the_same_page(tmp_path):
    text_page([list("the cat sat")], tmp_path / "a.png")
    text_page([["the", " cat", "", " sat"]], tmp_path / "b.png")
    assert np.array_equal(pixels(tmp_path / "a.png"), pixels(tmp_path / "b.png"))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a", 1),
        ("a\nb", 2),
        ("\n\n", 3),
        ("x" * 80, 1),
        ("x" * 81, 2),
        ("word " * 32, 2),
        ("word " * 16 + "w", 2),
        ("x" * 80 + "\ny", 2),
        ("line\n" * 100, module.MOST_LINES),
    ],
)
def test_lines_are_broken_where_they_end(text, lines):
    assert lines_of(text) == lines


def test_a_page_of_strange_characters_is_drawn(tmp_path):
    text_page([["\0", "\x1b", "中", "\u202e", "\ud800", "\U0001f600"]], tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 100


def test_letters_appear_in_place_of_blocks(tmp_path):
    frames = [[[None, None, "c", None]], [["a", None, "c", None]], [["a", "bb", "c", "\n"]]]
    animate_text(frames, tmp_path / "a.gif", [[False, False, True, False]])
    body = slice(module.HEADER + 8, module.HEADER + 8 + module.HEIGHT)
    counts = [has(pixels(tmp_path / "a.gif", i)[body], rgb(UNKNOWN)).sum() for i in range(3)]
    assert counts[0] > counts[1] > counts[2] == 0
    width = module.WIDTH
    first, last = (pixels(tmp_path / "a.gif", i)[body] for i in (0, 2))
    cell = slice(module.MARGIN + 3 * width, module.MARGIN + 4 * width)  # that of c, after a and bb
    assert np.array_equal(first[:, cell], last[:, cell])
    assert has(first[:, cell], PAPER).any()


def test_what_is_no_gif_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"a name that ends with \.gif"):
        animate_text([[["a"]]], tmp_path / "a.png")
    with pytest.raises(ValueError, match="at least one"):
        text_page([], tmp_path / "a.png")
