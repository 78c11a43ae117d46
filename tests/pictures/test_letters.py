"""Rows of coloured letters: what is drawn where, and what is refused."""

import numpy as np
import pytest

from support.pixels import is_colour, pixels
from usd3.pictures import letter_colours, letter_rows
from usd3.pictures.figures import INK, rgb

COLOURS = letter_colours("ACGT", "dna")


def tinted(colour: str) -> str:
    tint = np.round(255 - 0.45 * (255 - np.array(rgb(colour)))).astype(np.uint8)
    return "#" + bytes(tint).hex()


def test_each_letter_has_its_colour(tmp_path):
    """Three As and one C have colours in that proportion, letters and edges aside."""
    letter_rows(["AAAC" * 10], tmp_path / "a.png", COLOURS)
    found = {letter: is_colour(pixels(tmp_path / "a.png"), tinted(COLOURS[letter])).sum() for letter in "ACGT"}
    assert found["A"] / sum(found.values()) == pytest.approx(0.75, abs=0.05)
    assert found["C"] / sum(found.values()) == pytest.approx(0.25, abs=0.05)


def test_letters_are_inside_their_cells(tmp_path):
    """Ink covers a part of each cell, and nothing outside of the rows but the numbers and names."""
    letter_rows(["ACGT" * 20] * 4, tmp_path / "a.png", COLOURS)
    letter_rows(["    " * 20] * 4, tmp_path / "none.png", COLOURS)
    ink = [is_colour(pixels(tmp_path / name), INK).mean() for name in ("a.png", "none.png")]
    assert 0.01 < ink[0] < 0.2
    assert ink[1] < 0.002


def test_given_letters_are_underlined_where_there_are_letters(tmp_path):
    given = np.zeros((1, 10), bool)
    for name, chosen in (("none", []), ("after", [8, 9]), ("some", [2, 3])):
        mask = given.copy()
        mask[0, chosen] = True
        letter_rows(["ACGTAC"], tmp_path / f"{name}.png", COLOURS, mask)
    none, after, some = (pixels(tmp_path / f"{name}.png") for name in ("none", "after", "some"))
    assert np.array_equal(none, after)
    assert is_colour(some, INK).sum() > 1.5 * is_colour(none, INK).sum()


def test_long_sequences_are_drawn_in_blocks_and_not_without_end(tmp_path):
    heights = {}
    for name, length in (("one", 80), ("two", 81), ("many", 80 * 100)):
        letter_rows(["A" * length] * 8, tmp_path / f"{name}.png", COLOURS, titles=["a very long name of it"] * 8)
        heights[name] = len(pixels(tmp_path / f"{name}.png"))
    assert heights["one"] * 1.6 < heights["two"] < heights["many"] < 5000


def test_letters_that_the_font_lacks_and_empty_sequences_are_no_error(tmp_path):
    letter_rows(["日本\u0378", "", " "], tmp_path / "a.png", {"日": "#112233"}, titles=["", "a b", "…"])
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_a_name_that_looks_like_mathematics_is_written_as_it_is(tmp_path):
    letter_rows(["ACGT", "ACGT"], tmp_path / "a.png", COLOURS, titles=[r"a$\q$", "b$"])
    assert (tmp_path / "a.png").stat().st_size > 1000


@pytest.mark.parametrize("form", ["dna", "rna", "protein", "other"])
def test_every_letter_gets_a_colour(form):
    letters = {"dna": "ACGT", "rna": "ACGU", "protein": "ACDEFGHIKLMNPQRSTVWYB*", "other": "abcdefghijk"}[form]
    colours = letter_colours(letters, form)
    assert list(colours) == list(letters)
    assert len(set(colours.values())) == {"dna": 4, "rna": 4, "protein": 6, "other": 11}[form]
    assert all(len(rgb(colour)) == 3 for colour in colours.values())


def test_what_cannot_be_drawn_is_refused(tmp_path):
    with pytest.raises(TypeError, match="rows is a str: expected a list of strings"):
        letter_rows("ACGT", tmp_path / "a.png", COLOURS)
    with pytest.raises(ValueError, match=r"len\(rows\) = 0"):
        letter_rows([], tmp_path / "a.png", COLOURS)
    with pytest.raises(ValueError, match=r"given.shape = \(1, 3\): expected \(N, L\), at least the 4 letters"):
        letter_rows(["ACGT"], tmp_path / "a.png", COLOURS, np.ones((1, 3), bool))
    assert not list(tmp_path.iterdir())
