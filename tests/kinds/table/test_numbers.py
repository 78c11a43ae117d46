"""Numbers that are very large: integers keep all their digits, and no width is infinite."""

import numpy as np
import pandas as pd
import pytest
import torch

from support.tables import all_rows, read_frame, read_text
from usd3.kinds.table.cells import as_texts, is_number, number_of, parse_numbers
from usd3.kinds.table.grid import Grid, grid_of

LARGEST = 2**63 - 1


def table(folder, cells, **options):
    """The data of a file with these cells beside a column of two letters."""
    return read_text(folder, "x,y\n" + "".join(f"{cell},{'ab'[i % 2]}\n" for i, cell in enumerate(cells)), **options)


def written(dataset, folder):
    """The first cell of each new row in a file; the rows have the tokens of the data."""
    path = folder / f"new{len(list(folder.iterdir()))}.csv"
    dataset.kind.write(torch.from_numpy(all_rows(dataset)).long(), path)
    return [line.split(",")[0] for line in path.read_text().splitlines()[1:]]


# ---- integers -----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:column x is kept")
def test_nanoseconds_stay_integers(tmp_path):
    stamps = 17 * 10**17 + np.random.default_rng(0).integers(0, 10**15, size=500)
    dataset = table(tmp_path, stamps)
    column = dataset.kind.schema[0]
    assert (column.type, column.dtype, column.grid.is_real) == ("number", "int64", False)
    drawn = [int(text) for text in written(dataset, tmp_path)]
    assert stamps.min() <= min(drawn) <= max(drawn) <= stamps.max()
    assert len({number % 256 for number in drawn}) > 100  # float64 has only multiples of 256 there


@pytest.mark.parametrize(
    "cells",
    [
        [LARGEST, LARGEST - 1, LARGEST - 3],
        [-(2**63), -(2**63) + 1, 5 - 2**63],
        [0, 1, LARGEST],  # a mark for "no value" that many programs write
        [2**53 + 1, 2**53 + 3, 7],
    ],
)
def test_integers_up_to_the_largest_come_back_exactly(cells, tmp_path):
    dataset = table(tmp_path, cells * 10)
    assert set(written(dataset, tmp_path)) == {str(cell) for cell in cells}
    frame = read_frame(pd.DataFrame({"x": cells * 10}))
    assert set(frame.kind.objects(torch.from_numpy(all_rows(frame)))["x"]) == set(cells)


def test_integers_all_over_the_range_are_written_as_integers(tmp_path):
    cells = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, size=300).tolist()
    cells[:2] = [-(2**63), LARGEST]
    with pytest.warns(UserWarning, match="column x is kept"):
        dataset = table(tmp_path, cells)
    assert dataset.kind.schema[0].dtype == "int64"
    drawn = [int(text) for text in written(dataset, tmp_path)]
    assert -(2**63) <= min(drawn) < -(2**62) < 2**62 < max(drawn) <= LARGEST


def test_integers_beyond_int64_are_names(tmp_path):
    cells = [str(10**24 + i) for i in range(3)]
    column = table(tmp_path, cells * 10).kind.schema[0]
    assert (column.type, set(column.common)) == ("category", set(cells))
    with pytest.warns(UserWarning, match="column x is left out: 100 of 100 texts differ"):
        assert table(tmp_path, [10**24 + i * i for i in range(100)]).kind.names == ["y"]


def test_real_numbers_that_came_without_an_exponent_have_none(tmp_path):
    plain = table(tmp_path, ["1700529119320476672.5", "0.0000000125", "3"] * 10)
    assert set(written(plain, tmp_path)) == {"1700529119320476672", "0.0000000125", "3"}
    short = table(tmp_path, ["1.5e300", "2"] * 10)
    assert set(written(short, tmp_path)) == {"1.5e+300", "2.0"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (str(LARGEST), True),
        (str(LARGEST + 1), False),
        (str(-(2**63)), True),
        (str(-(2**63) - 1), False),
        ("9" * 5000, False),
        ("99999999999999999999.5", True),
        ("1e30", True),
    ],
)
def test_an_integer_is_a_number_if_int64_holds_it(text, expected):
    assert is_number(as_texts([text, "1"])).tolist() == [expected, True]


def test_integers_are_parsed_exactly():
    numbers = parse_numbers(as_texts([str(LARGEST), "-5", "+7"]))
    assert (numbers.dtype, numbers.tolist()) == (np.int64, [LARGEST, -5, 7])
    assert parse_numbers(as_texts(["1", "2.5"])).dtype == np.float64


@pytest.mark.parametrize(
    ("text", "comma", "expected"),
    [
        ("30", False, 30),
        (" 1.5 ", False, 1.5),
        ("1,5", True, 1.5),
        ("1.5", True, 1.5),
        (str(2**60 + 1), False, 2**60 + 1),
    ],
)
def test_one_number_is_read(text, comma, expected):
    found = number_of(text, comma)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("text", "comma"), [("1,5", False), ("1.000,5", True), ("old", False), ("007", False), ("1e999", False)]
)
def test_what_is_no_number_is_none(text, comma):
    assert number_of(text, comma) is None


def test_a_condition_on_large_integers_is_exact(tmp_path):
    kind = table(tmp_path, [2**60, 2**60 + 1, 2**60 + 2, 2**60 + 3] * 10).kind
    assert kind.weights(f"x={2**60 + 1}")[0].tolist() == [0, 1, 0, 0]
    assert kind.weights(f"x={2**60 + 2}..")[0].tolist() == [0, 0, 1, 1]
    assert kind.weights(f"x=..{10**25}")[0].tolist() == [1, 1, 1, 1]


def test_a_number_far_outside_of_the_range_goes_to_the_nearest_end(tmp_path):
    kind = table(tmp_path, [2**60, 2**60 + 1, 2**60 + 2] * 10).kind
    with pytest.warns(UserWarning, match="treated as the nearest"):
        tokens, _ = kind.tokens(pd.DataFrame({"x": [-(2**63), LARGEST]}))
    assert tokens[:, 0].tolist() == [0, 2]


def test_the_nearest_place_of_a_grid_is_found():
    grid = grid_of(np.array([3, 8, 18]), 0)
    assert grid == Grid(3, 5, 0)
    assert grid.raw(np.array([0, 1, 5, 6, 7, 8, 10, 11])).tolist() == [-1, 0, 0, 1, 1, 1, 1, 2]


# ---- real numbers -------------------------------------------------------------------------------------------------


def test_numbers_whose_range_is_infinite_are_learnt():
    rng = np.random.default_rng(0)
    values = rng.uniform(-1.7, 1.7, size=600) * 1e308
    frame = pd.DataFrame({"x": values, "few": np.array([-1.7e308, 0.5, 1.7e308] * 200)})
    dataset = read_frame(frame)
    drawn = dataset.kind.objects(torch.from_numpy(all_rows(dataset)), seed=1)
    assert np.isfinite(drawn["x"]).all()
    assert values.min() <= drawn["x"].min() < -1e308 < 1e308 < drawn["x"].max() <= values.max()
    assert abs((drawn["x"] < 0).mean() - (values < 0).mean()) < 0.02
    assert set(drawn["few"]) == {-1.7e308, 0.5, 1.7e308}
    weights = dataset.kind.weights({"x": (0, None)})[0]
    assert abs(float(weights.sum()) / len(weights) - 0.5) < 0.05
    whole = read_frame(pd.DataFrame({"x": np.linspace(-1.7, 1.7, 50) * 1e308}))  # integers, all of them different
    assert whole.kind.names == ["x"]


def test_long_integers_that_all_differ_are_kept_with_a_warning(tmp_path):
    with pytest.warns(
        UserWarning, match=r"column x is kept, although .* name persons \(--data\.table\.columns '\{\"x\""
    ):
        dataset = table(tmp_path, [6_000_000 + 7919 * i for i in range(50)])
    assert dataset.kind.schema[0].type == "number"
    phones = pd.Series([555_0000_000.0 + 7919 * i for i in range(50)]).where(np.arange(50) % 9 > 0)  # with gaps
    with pytest.warns(UserWarning, match="column phone is kept"):
        assert read_frame(pd.DataFrame({"phone": phones})).kind.names == ["phone"]


def test_durations_come_back_and_can_be_asked_for():
    spans = pd.to_timedelta(np.arange(300) * 61, unit="s")
    dataset = read_frame(pd.DataFrame({"span": spans, "n": np.arange(300) % 3}))
    column = dataset.kind.schema[0]
    assert (column.type, column.name) == ("duration", "span")
    tokens, known = dataset.kind.tokens(pd.DataFrame({"span": spans}))
    back = dataset.kind.objects(tokens)
    assert known[:, 0].all()
    assert back["span"].dtype == spans.dtype
    assert back["span"].between(spans.min(), spans.max()).all()
    weights = dataset.kind.weights({"span": (pd.Timedelta(0), pd.Timedelta("1h"))})[0]
    assert 0 < float(weights.sum()) < column.size
