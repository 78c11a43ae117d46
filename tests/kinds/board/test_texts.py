"""The forms in which people write boards."""

import numpy as np
import pytest

from usd3.kinds.board.notation import holes_beside, parsed, symbols_in, usual_symbols, written
from usd3.kinds.board.texts import boards_in, columns_of_boards, read_text

LINE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
DRAWN = """
# the puzzle of the encyclopaedia
 5 3 . | . 7 . | . . .
 6 . . | 1 9 5 | . . .
 . 9 8 | . . . | . 6 .
-------+-------+------
 8 . . | . 6 . | . . 3
 4 . . | 8 . 3 | . . 1
 7 . . | . 2 . | . . 6
-------+-------+------
 . 6 . | . . . | 2 8 .
 . . . | 4 1 9 | . . 5
 . . . | . 8 . | . 7 9
"""


@pytest.mark.parametrize(
    "text",
    [
        LINE,
        f"# two\n\n{LINE}\r\n{LINE}\r\n",
        DRAWN,
        DRAWN * 2,
        "\n".join(LINE[i : i + 9] for i in range(0, 81, 9)),
        " ".join(LINE[i : i + 9] for i in range(0, 81, 9)),
    ],
    ids=["line", "lines with comments, of Windows", "drawn", "two drawn", "rows", "groups"],
)
def test_boards_of_a_known_shape_are_found_in_every_form(text):
    boards, shape = boards_in(text, "text", "123456789", (9, 9))
    assert set(boards) == {LINE}
    assert len(boards) == max(1, text.count("# two") * 2, text.count("encyclopaedia"))
    assert shape == (9, 9)


@pytest.mark.parametrize(
    ("text", "width", "boards", "shape"),
    [
        ("1234\n2143\n3412", None, ["1234", "2143", "3412"], (2, 2)),
        ("12\n34\n\n21\n43\n", None, ["1234", "2143"], (2, 2)),
        ("\n\n12\n34\n\n\n\n21\n43", None, ["1234", "2143"], (2, 2)),
        ("123\n456\n\n321\n654", None, ["123456", "321654"], (2, 3)),
        ("123456\n654321", 3, ["123456", "654321"], (2, 3)),
        ("1234\n4321\n2222\n\n1111\n1111\n1111", 4, ["123443212222", "1" * 12], (3, 4)),
        ("1234\n4321\n\n1111\n2222\n", None, ["1234", "4321", "1111", "2222"], (2, 2)),
    ],
)
def test_the_shape_of_boards_follows_from_the_text(text, width, boards, shape):
    assert boards_in(text, "text", width=width) == (boards, shape)


def test_a_line_for_each_of_81_boards_is_not_a_board_of_81_rows():
    assert boards_in("\n".join(["1" * 81] * 81), "text")[1] == (9, 9)


def test_symbols_are_not_taken_for_lines_and_comments():
    text = "#-#|\n-|-#"
    assert boards_in(text, "text", "#-|") == (["#-#|", "-|-#"], (2, 2))
    assert boards_in(text, "text", "-|") == (["-|-#"], (2, 2))  # the first line is a comment


@pytest.mark.parametrize(
    ("text", "shape", "width", "message"),
    [
        ("", None, None, "text = nothing: expected at least one board"),
        ("# no board", (2, 2), None, "text = nothing: expected at least one board"),
        ("1234\n123", None, None, "text = a line of 3 cells after lines of 4: expected boards of one size"),
        ("12345\n12345", None, None, "text = lines of 5 cells: expected square boards, .*data.board.width"),
        ("12345\n12345", None, 2, "text = lines of 5 cells: expected rows of 2 cells"),
        ("12\n34\n\n12", None, 2, "text = blocks of 1 to 2 lines: expected blocks of the same number"),
        ("123", (2, 2), None, "text = 3 characters: expected 4 characters, one for each of 2 x 2 cells"),
        ("1234\n12345", (2, 2), None, "text = 5 characters in line 2 of the boards: expected 4 characters"),
        ("12\n34\n12", (2, 2), None, "text = 3 rows of 2 cells: expected 2 rows a board, or 4 characters"),
    ],
)
def test_texts_without_a_shape_are_refused(text, shape, width, message):
    with pytest.raises(ValueError, match=message):
        boards_in(text, "text", shape=shape, width=width)


def test_the_last_column_of_a_table_has_the_boards(tmp_path):
    (tmp_path / "kaggle.csv").write_text("puzzle,solution\n1..4,1234\n....,2143\n")
    assert columns_of_boards(tmp_path / "kaggle.csv", "csv")[0] == "1234\n2143"
    (tmp_path / "bare.csv").write_text("1234\n2143\n")
    assert columns_of_boards(tmp_path / "bare.csv", "csv")[0] == "1234\n2143"
    (tmp_path / "empty.csv").write_text("\n")
    with pytest.raises(ValueError, match="csv = nothing"):
        columns_of_boards(tmp_path / "empty.csv", "csv")


def test_what_cannot_be_read_is_named(tmp_path):
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"bytes.txt: expected a text in UTF-8"):
        read_text(tmp_path / "bytes.txt")
    with pytest.raises(FileNotFoundError, match=r"none.txt: no such file"):
        read_text(tmp_path / "none.txt")
    (tmp_path / "mark.txt").write_bytes("\ufeff1234".encode())
    assert read_text(tmp_path / "mark.txt") == "1234"


def test_boards_become_categories_and_back():
    tokens, known = parsed(["12.4", "0_31"], "1234", "boards")
    assert tokens.tolist() == [[0, 1, 0, 3], [0, 0, 2, 0]]
    assert known.tolist() == [[True, True, False, True], [False, False, True, True]]
    assert written(np.array([[[0, 1], [2, 3]]]), "♔♛x1") == ["♔♛x1"]
    assert parsed(["♔♛x1"], "♔♛x1", "boards")[0].tolist() == [[0, 1, 2, 3]]


def test_a_hole_that_is_a_symbol_is_no_hole():
    assert holes_beside("01") == "._"
    tokens, known = parsed(["01_."], "01", "boards")
    assert tokens.tolist() == [[0, 1, 0, 0]]
    assert known.tolist() == [[True, True, False, False]]


@pytest.mark.parametrize(
    ("boards", "symbols"),
    [(["1324"], "1234"), (["19"], "123456789"), (["BA", "12"], "12AB"), (["x."], "x"), (["ox-"], "-ox"), (["."], "")],
)
def test_symbols_are_digits_or_what_the_text_has(boards, symbols):
    assert symbols_in(boards) == symbols


def test_an_unknown_symbol_is_named_with_its_place():
    with pytest.raises(ValueError, match=r"boards = '7' in cell 3 of board 2: expected one of 1234, or a hole: \. 0 _"):
        parsed(["1234", "1.7."], "1234", "boards")
    with pytest.raises(ValueError, match="num_classes = 62: expected at most 61"):
        usual_symbols(62)
