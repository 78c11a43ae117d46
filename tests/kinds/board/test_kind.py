"""Boards from files and from memory, their symbols, rules and splits."""

import numpy as np
import pytest
import torch

from usd3.kinds.board.kind import Board
from usd3.kinds.board.options import BoardOptions
from usd3.kinds.board.puzzles import random_boards
from usd3.kinds.board.rename import canonical, renamer
from usd3.kinds.options import DataConfig
from usd3.kinds.registry import kind_from
from usd3.metrics.boards import obey_rules

SHIDOKU = random_boards(200, 4, seed=0)
LINES = ["".join(str(k + 1) for k in board.ravel()) for board in SHIDOKU]


def load(path, **options):
    board = BoardOptions(**{key: options.pop(key) for key in ("symbols", "width", "rename") if key in options})
    return DataConfig("board", str(path), board=board, **options).load()


def rows(*splits):
    return sorted(tuple(row) for split in splits for row in split.tokens.flatten(1).tolist())


@pytest.fixture
def text(tmp_path):
    def write(content, name="boards.txt"):
        (tmp_path / name).write_text(content)
        return tmp_path / name

    return write


@pytest.fixture
def array(tmp_path):
    def save(*arrays, name="boards.npz", **named):
        if name.endswith(".npy"):
            np.save(tmp_path / name, arrays[0])
        else:
            np.savez(tmp_path / name, *arrays, **named)
        return tmp_path / name

    return save


def test_boards_of_a_text(text):
    dataset = load(text("# solved\n" + "\n".join(LINES)))
    assert dataset.kind == Board(4, (4, 4), "1234", "sudoku")
    assert dataset.kind.describe() == "Sudoku boards of 4 x 4 cells"
    assert rows(dataset.train, dataset.test) == sorted(map(tuple, SHIDOKU.reshape(200, -1).tolist()))
    assert dataset.train.tokens.dtype == torch.uint8


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_arrays_count_from_0_or_where_no_cell_is_0_from_1(array, first, name):
    dataset = load(array(SHIDOKU + first, name=name))
    assert dataset.kind == Board(4, (4, 4), "1234", "sudoku")
    assert rows(dataset.train, dataset.test) == sorted(map(tuple, SHIDOKU.reshape(200, -1).tolist()))


def test_the_splits_of_a_file_are_kept(array):
    is_test = canonical(SHIDOKU, 4)[:, 1, 0] == 3
    path = array(train=SHIDOKU[~is_test] + 1, test=SHIDOKU[is_test] + 1, puzzles=np.zeros(3))
    dataset = load(path)
    assert rows(dataset.test) == sorted(map(tuple, SHIDOKU[is_test].reshape(-1, 16).tolist()))
    assert len(load(path, test_key="train").test) == 200 - is_test.sum()
    data = DataConfig("board", str(path))
    assert Board.describe_split(data) == "the arrays train and test of the file"
    assert "equal ones on one side, seed 0" in Board.describe_split(DataConfig("board", "boards.txt"))


def test_an_array_is_of_boards_where_the_user_says_so(array):
    path = str(array(SHIDOKU))
    assert DataConfig("array", path, kind="board").load().kind == Board(4, (4, 4), "1234", "sudoku")
    assert DataConfig("array", path).load().kind.name == "array"


def test_other_symbols_and_shapes(text, array):
    kind = load(text("xo-\nxxo\n\nooo\nxx-\n\nx-x\no-o"), symbols="-xo").kind
    assert kind == Board(3, (2, 3), "-xo")
    assert kind.describe() == "boards of 2 x 3 cells and 3 symbols"
    assert load(text("xo-xxo\nooox--\nx-xo-o"), symbols="-xo", width=3).kind == kind
    assert load(array(np.random.default_rng(0).integers(2, size=(9, 3, 5))), symbols="01").kind == Board(
        2, (3, 5), "01"
    )
    assert (
        load(array(np.random.default_rng(0).integers(2, size=(9, 3, 5))), num_classes=12).kind.symbols == "123456789ABC"
    )
    assert load(text("11\n12\n\n12\n21\n\n22\n22"), num_classes=5).kind.symbols == "12345"


@pytest.mark.parametrize("rename", [False, True])
def test_equal_boards_are_in_one_split(text, rename):
    """With renaming also those that differ in the names of their symbols alone."""
    shuffled = np.random.default_rng(0).permutation(np.repeat(SHIDOKU[:40], 5, 0))
    dataset = load(text("\n".join("".join(map(str, board.ravel() + 1)) for board in shuffled)), rename=rename)
    splits = [part.tokens.long().numpy() for part in (dataset.train, dataset.test)]
    assert min(map(len, splits)) > 0
    if rename:
        splits = [canonical(boards, 4) for boards in splits]
    train, test = ({board.tobytes() for board in boards} for boards in splits)
    assert not train & test


def test_the_split_depends_on_the_seed(text):
    path = text("\n".join(LINES))
    first, again, other = (load(path, seed=seed, rename=False, test_fraction=0.2) for seed in (0, 0, 1))
    assert rows(first.test) == rows(again.test) != rows(other.test)
    assert 0.1 < len(first.test) / 200 <= 0.2


def test_boards_that_break_the_rules_have_none(text):
    wrong = "1" + LINES[0][1:] if LINES[0][0] != "1" else "2" + LINES[0][1:]
    with pytest.warns(UserWarning, match=r"1 of 200 boards break the rules of Sudoku \(number 7\); they are read"):
        assert load(text("\n".join([*LINES[:6], wrong, *LINES[7:]]))).kind.rules is None
    noise = np.random.default_rng(0).integers(1, 5, size=(50, 16))
    assert load(text("\n".join("".join(map(str, board)) for board in noise))).kind.rules is None  # and no warning


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("123.\n1234", {}, r"a hole, '\.', in board 1: expected boards without holes \(--data.board.symbols '\.1234'"),
        ("0110\n1001", {}, "a hole, '0', in board 1: .*--data.board.symbols '01'"),
        ("1111\n1111", {}, "symbols of .* = '1': expected at least two different ones"),
        ("1212\n1212", {}, "different boards of .* = 1: expected at least 2"),
        ("1212\n1313", {"symbols": "12"}, "'3' in cell 2 of board 2: expected one of 12"),
        ("1212\n2121", {"symbols": "12", "num_classes": 3}, "data.num_classes = 3: expected null or 2"),
        ("1212\n2121", {"transpose": 3}, "data.transpose = 3: expected 0"),
        ("1212\n2121", {"pad_value": 3}, "data.pad_value = 3: expected null"),
    ],
)
def test_texts_that_cannot_be_learnt_are_refused(text, content, options, message):
    with pytest.raises(ValueError, match=message):
        load(text(content), **options)


@pytest.mark.parametrize(
    ("boards", "message"),
    [
        (np.zeros((3, 4), int), r"shape of .* = \(3, 4\): expected \(N, H, W\)"),
        (np.full((3, 2, 2), -1), "cell of .* = -1: expected categories 0..K-1, or 1..K"),
        (np.arange(400).reshape(4, 10, 10), "num_classes = 400: expected at most 61"),
    ],
)
def test_arrays_that_are_no_boards_are_refused(array, boards, message):
    with pytest.raises(ValueError, match=message):
        load(array(boards))
    with pytest.raises(TypeError, match="expected integers"):
        load(array(boards.astype(float)))


def test_an_array_with_holes_is_told_from_boards(array):
    holes = np.where(np.random.default_rng(0).random(SHIDOKU.shape) < 0.5, SHIDOKU + 1, 0)
    with pytest.warns(UserWarning, match="cells 0..4: 0 is read as a symbol, not as a hole"):
        assert load(array(holes)).kind.rules is None
    with pytest.raises(ValueError, match=r"number of symbols = 4: expected at least 5, as there are cells 0\.\.4"):
        load(array(holes), symbols="1234")
    assert load(array(holes), symbols=".1234").kind.rules is None  # meant so: no warning


def test_held_out_boards_that_are_training_boards_are_counted(tmp_path):
    """Renaming counts where training renames symbols."""
    path, renamed = tmp_path / "boards.npz", (SHIDOKU[:3] + 1) % 4
    np.savez(path, train=SHIDOKU[:3], test=np.concatenate([renamed, SHIDOKU[:1]]))
    with pytest.warns(UserWarning, match="4 of 4 held-out boards are also training boards, up to the names"):
        load(path)
    with pytest.warns(UserWarning, match="1 of 4 held-out boards are also training boards$"):
        load(path, rename=False)
    np.savez(path, train=SHIDOKU[:3], test=renamed)
    load(path, rename=False)  # no warning


def test_boards_in_memory():
    data = DataConfig("board")
    drawn = ["\n".join(line[i : i + 4] for i in (0, 4, 8, 12)) for line in LINES]
    for objects in (LINES, drawn, SHIDOKU, torch.tensor(SHIDOKU + 1)):
        dataset = Board.from_objects(objects, data)
        assert dataset.kind == Board(4, (4, 4), "1234", "sudoku")
        assert rows(dataset.train, dataset.test) == sorted(map(tuple, SHIDOKU.reshape(200, -1).tolist()))
    wide = Board.from_objects(["123456", "654321"], DataConfig("board", board=BoardOptions(width=3)))
    assert wide.kind.shape == (2, 3)
    assert not Board.claims_objects(LINES)


def test_tokens_and_strings_are_inverse():
    kind = Board(4, (4, 4), "1234", "sudoku")
    assert kind.objects(torch.tensor(SHIDOKU)) == LINES
    tokens, given = kind.tokens(LINES[:3])
    assert torch.equal(tokens, torch.tensor(SHIDOKU[:3]))
    assert given.all()
    tokens, given = kind.tokens("1..4 .... ...2 0_12")
    assert given.sum() == 5
    assert tokens[given].tolist() == [0, 3, 1, 0, 1]
    assert torch.equal(kind.tokens(SHIDOKU)[0], torch.tensor(SHIDOKU))
    with pytest.raises(ValueError, match="boards = 4 cells in board 2: expected 16, one character for each of 4 x 4"):
        kind.tokens([LINES[0], "1234"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, (4, 4), "123"), "symbols = 123: expected 4 different characters"),
        ((4, (4, 4), "1233"), "symbols = 1233: expected 4 different characters"),
        ((4, (16,), "1234"), r"shape = \(16,\): expected \(H, W\)"),
        ((4, (4, 4), "1234", "chess"), "rules = chess: expected null or sudoku"),
        ((4, (4, 5), "1234", "sudoku"), "rules = sudoku: expected null for these boards"),
        ((5, (4, 4), "12345", "sudoku"), "rules = sudoku: expected null for these boards"),
    ],
)
def test_a_kind_that_contradicts_itself_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Board(*arguments)


def test_boards_obey_the_rules_of_sudoku_or_have_none():
    good = torch.from_numpy(SHIDOKU[:3]).long()
    bad = good.clone()
    bad[1, 0, 0] = bad[1, 0, 1]
    assert Board(4, (4, 4), "1234", "sudoku").obeys(bad).tolist() == [True, False, True]
    assert Board(4, (4, 4), "1234").obeys(bad) is None


def test_boards_of_other_symbols_are_another_kind():
    kind = Board(4, (4, 4), "1234", "sudoku")
    kind.require_same(Board(4, (4, 4), "1234").as_dict(), "data")
    with pytest.raises(ValueError, match="symbols of data = ABCD: expected 1234"):
        kind.require_same(Board(4, (4, 4), "ABCD").as_dict(), "data")
    assert kind_from(kind.as_dict(), 4, [4, 4]) == kind


def test_symbols_are_renamed_where_the_rules_allow_it():
    sudoku, plain = Board(4, (4, 4), "1234", "sudoku"), Board(4, (4, 4), "1234")
    for kind, rename, expected in (
        (sudoku, None, True),
        (plain, None, False),
        (sudoku, False, False),
        (plain, True, True),
    ):
        data = DataConfig("board", board=BoardOptions(rename=rename))
        assert (kind.augment(data, None, "cpu") is not None) is expected


def test_each_board_gets_a_permutation_of_its_own_from_the_generator():
    boards = torch.tensor(SHIDOKU, dtype=torch.uint8)
    rename = renamer(4)
    new = rename(boards, None, torch.Generator().manual_seed(0))
    assert new.shape == boards.shape
    assert obey_rules(new).all()
    assert np.array_equal(canonical(new.numpy(), 4), canonical(SHIDOKU, 4))
    names = {tuple(new[i].flatten()[(boards[i] == k).flatten()].unique().item() for k in range(4)) for i in range(200)}
    assert len(names) == 24  # every permutation of four symbols
    assert torch.equal(rename(boards, None, torch.Generator().manual_seed(0)), new)
    assert not torch.equal(rename(boards, None, torch.Generator().manual_seed(1)), new)


def test_boards_have_one_form_up_to_the_names_of_their_symbols():
    boards = np.array([[[2, 0], [2, 1]], [[0, 1], [0, 2]], [[0, 1], [2, 2]]])
    assert canonical(boards, 4).tolist() == [[[0, 1], [0, 2]], [[0, 1], [0, 2]], [[0, 1], [2, 2]]]
