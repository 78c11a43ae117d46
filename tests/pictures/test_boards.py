import numpy as np
import pytest
from PIL import Image

from support.pixels import has, pixels
from usd3.pictures import animate_boards, board_grid
from usd3.pictures.boards import GRID, LEGEND, MARGIN, TITLE, WRONG
from usd3.pictures.figures import GENERATED, INK, UNKNOWN

X = np.random.default_rng(0).integers(4, size=(3, 4, 4))
GIVEN = np.zeros((4, 4), dtype=bool)
GIVEN[0] = True


def cells(picture, board=0, size=(4, 4), side=36, head=LEGEND):
    """The pixels of the cells of a board in the first row of a page, (H, W, side, side, 3), without their lines."""
    top, left = head + TITLE + 1, MARGIN + board * (size[1] * side + 2 + 22) + 1
    part = picture[top : top + size[0] * side, left : left + size[1] * side]
    return part.reshape(size[0], side, size[1], side, 3).swapaxes(1, 2)[:, :, 4:-4, 4:-4]


def test_given_filled_and_wrong_cells_have_different_colours(tmp_path):
    wrong = np.zeros((3, 4, 4), dtype=bool)
    wrong[0, 1, 2] = True
    board_grid(X, tmp_path / "boards.png", "1234", GIVEN, wrong, 2, ["a", "b", "c"])
    for board in range(3):
        drawn = cells(pixels(tmp_path / "boards.png"), board)
        for place in np.ndindex(4, 4):
            colour = INK if GIVEN[place] else WRONG if wrong[board][place] else GENERATED
            assert [name for name in (INK, GENERATED, WRONG, UNKNOWN) if has(drawn[place], name)] == [colour]


def test_each_symbol_has_a_look_of_its_own(tmp_path):
    board_grid(np.arange(4).reshape(1, 2, 2), tmp_path / "boards.png", "18x♔")
    drawn = cells(pixels(tmp_path / "boards.png"), size=(2, 2), head=MARGIN // 2)
    looks = {drawn[place].tobytes() for place in np.ndindex(2, 2)}
    assert len(looks) == 4
    assert has(drawn[0, 0], INK)  # nothing was given, so nothing is told apart
    assert not has(drawn[0, 0], GENERATED)


def test_boxes_have_thick_lines(tmp_path):
    lines = {}
    for box in (None, 2):
        board_grid(X[:1], tmp_path / f"{box}.png", "1234", box=box)
        picture = pixels(tmp_path / f"{box}.png")[MARGIN // 2 + TITLE + 8]  # between the symbols of the first row
        lines[box] = [has(picture[MARGIN + i * 36 : MARGIN + i * 36 + 3], INK) for i in range(5)]
    assert lines[None] == [True, False, False, False, True]
    assert lines[2] == [True, False, True, False, True]
    assert has(picture, GRID)


def test_a_film_of_boards_fills_its_unknown_cells(tmp_path):
    order = np.random.default_rng(1).permutation(16).reshape(4, 4)
    frames = [np.where(order < 4 * i, X[:2], 4) for i in range(5)]
    wrong = [np.zeros((2, 4, 4), dtype=bool) for _ in frames]
    wrong[2][0, order == 0] = True
    animate_boards(frames, tmp_path / "film.gif", "1234", GIVEN, wrong, 2, frames_per_second=10, hold=2)
    with Image.open(tmp_path / "film.gif") as film:
        assert (film.n_frames, film.info["loop"]) == (5, 0)
    for i in range(5):
        drawn = cells(pixels(tmp_path / "film.gif", i))
        unknown = np.array([[has(drawn[r, c], UNKNOWN) for c in range(4)] for r in range(4)])
        assert np.array_equal(unknown, order >= 4 * i)
        red = np.array([[has(drawn[r, c], WRONG) for c in range(4)] for r in range(4)])
        assert np.array_equal(red, wrong[i][0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: board_grid(X[0], path / "a.png", "1234"), r"boards.shape = \(4, 4\): expected \(N, H, W\)"),
        (lambda path: board_grid(X + 4, path / "a.png", "1234"), "expected symbols 0..3, or 4: not known"),
        (lambda path: board_grid(X[[0] * 65], path / "a.png", "1234"), "at most 64 boards"),
        (lambda path: board_grid(X, path / "a.png", "1234", titles=["a"]), "one for each row, 3"),
        (lambda path: animate_boards([], path / "a.gif", "1234"), r"len\(frames\) = 0"),
        (lambda path: animate_boards([X], path / "a.png", "1234"), "ends with .gif"),
        (lambda path: animate_boards([X, X[:1]], path / "a.gif", "1234"), r"frames\[1\].shape"),
        (lambda path: animate_boards([X], path / "a.gif", "1234", wrong=[]), r"len\(wrong\) = 0: expected 1"),
    ],
)
def test_bad_values(call, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        call(tmp_path)
    with pytest.raises(TypeError, match="expected integers"):
        board_grid(X.astype(float), tmp_path / "a.png", "1234")
    assert not list(tmp_path.iterdir())
