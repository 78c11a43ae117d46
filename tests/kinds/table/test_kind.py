"""Tables from DataFrames and back: dtypes, holes, support, conditions."""

import datetime
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch

from support.tables import adult_text, all_rows, mixed_frame, read_frame, read_text
from usd3.kinds.options import DataConfig
from usd3.kinds.registry import kind_from, kind_of_file, kind_of_objects
from usd3.kinds.table import summary
from usd3.kinds.table.kind import Table


@pytest.fixture(scope="module")
def mixed():
    return read_frame(mixed_frame())


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(17, 91, size=2000) * 1.0,
            "weight": rng.integers(0, 4000, size=2000),
            "sex": rng.choice(["Male", "Female"], size=2000),
            "city": [f"c{min(int(c), 40)}" for c in rng.pareto(1, size=2000) * 3],
            "born": pd.Timestamp("1950-01-01") + pd.to_timedelta(rng.integers(0, 20_000, size=2000), unit="D"),
        }
    )
    frame.loc[::10, "weight"] = np.nan
    with pytest.warns(UserWarning, match="column city has 40 different values; the rarest, 36.0% of the rows"):
        return read_frame(frame, categories=6).kind


# ---- from and to DataFrames ---------------------------------------------------------------------------------------


def test_a_data_frame_comes_back_with_its_columns_and_dtypes(mixed):
    frame, back = mixed_frame(), mixed.kind.objects(torch.from_numpy(all_rows(mixed)))
    assert list(back.columns) == list(frame.columns)
    assert dict(back.dtypes) == dict(frame.dtypes)
    assert len(back) == len(frame)


def test_rows_of_the_data_come_back_exactly(mixed):
    """Also numbers in bins: the rows are read again from where they are."""
    frame = mixed_frame()
    numbers = mixed.parts[1].rows(torch.arange(len(mixed.test))).numpy()
    back = mixed.rows(True, np.arange(len(mixed.test)))
    pd.testing.assert_frame_equal(back, frame.iloc[numbers].reset_index(drop=True), check_exact=False, rtol=1e-7)


def test_tokens_are_the_inverse_of_objects(mixed):
    kind, tokens = mixed.kind, torch.from_numpy(all_rows(mixed)).long()
    again, known = kind.tokens(kind.objects(tokens, seed=3))
    missing = torch.stack([tokens[:, i] >= column.num_values for i, column in enumerate(kind.schema)], dim=1)
    assert torch.equal(known, ~missing)
    assert torch.equal(again[known], tokens[known])
    kept, all_known = kind.tokens(kind.objects(tokens, seed=3), keep_missing=True)
    assert all_known.all()
    assert torch.equal(kept, tokens)


def test_draws_within_bins_depend_on_the_seed_alone(mixed):
    tokens = torch.from_numpy(all_rows(mixed)).long()
    one, same, other = (mixed.kind.objects(tokens, seed) for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one["real"].equals(other["real"])
    assert one["whole"].equals(other["whole"])


def test_the_middle_stands_for_a_bin(mixed):
    kind, tokens = mixed.kind, torch.from_numpy(all_rows(mixed)).long()
    middle = kind.objects(tokens, middle=True)["real"].to_numpy()
    column = kind.schema[kind.column("real")]
    drawn = kind.objects(tokens[:1].expand(400, -1))["real"]
    below = (drawn < middle[0]).mean()
    assert 0.4 < below < 0.6  # a fair coin is outside of it once in 15,000 times
    assert len(np.unique(middle)) == column.num_values


@pytest.mark.filterwarnings("ignore:column .* is kept")
def test_numbers_keep_decimals_and_steps_and_range():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "price": (rng.integers(100, 90_000, size=1000) * 5 - 1) / 100,
            "fives": rng.integers(10, 3000, size=1000) * 5,
            "large": rng.integers(2**53, 2**62, size=1000),
        }
    )
    dataset = read_frame(frame)
    back = dataset.kind.objects(torch.from_numpy(all_rows(dataset)), seed=1)
    cents = (back["price"] * 100).round(6)
    assert (cents == cents.round()).all()
    assert (cents % 5 == 4).all()
    assert (back["fives"] % 5 == 0).all()
    for name in frame:
        assert frame[name].min() <= back[name].min() <= back[name].max() <= frame[name].max()
    assert back["large"].dtype == "int64"


def test_integer_names_of_columns_come_back():
    dataset = read_frame(pd.DataFrame(np.arange(60).reshape(20, 3) % 7))
    assert list(dataset.kind.objects(dataset.test.tokens).columns) == [0, 1, 2]
    assert dataset.kind.tokens(pd.DataFrame({1: [5.0]}))[1].tolist() == [[False, True, False]]


def test_dates_of_python_come_back():
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(days=7 * i) for i in range(100)]
    dataset = read_frame(pd.DataFrame({"day": days, "x": [0, 1] * 50}))
    back = dataset.kind.objects(torch.from_numpy(all_rows(dataset)))
    assert set(back["day"]) <= set(days)


def test_a_data_frame_without_rows_or_columns_is_refused():
    frame = pd.DataFrame({"a": [1, 2]})
    with pytest.raises(ValueError, match="data = a DataFrame without rows: expected at least 2 rows"):
        read_frame(frame[:0])
    with pytest.raises(ValueError, match="data = a DataFrame without columns"):
        read_frame(frame[[]])


def test_objects_refuse_an_impossible_category(mixed):
    tokens = mixed.test.tokens.long().clone()
    tokens[0, mixed.kind.column("flag")] = 5
    with pytest.raises(ValueError, match="a category that its column has not"):
        mixed.kind.objects(tokens)


# ---- the kind -----------------------------------------------------------------------------------------------------


def test_support_has_the_categories_of_each_column(mixed):
    support = mixed.kind.support
    assert tuple(support.shape) == (14, mixed.num_classes)
    assert support.sum(1).tolist() == [column.size for column in mixed.kind.schema]
    assert mixed.num_classes == max(column.size for column in mixed.kind.schema)
    rows = torch.from_numpy(all_rows(mixed)).long()
    assert support[torch.arange(14), rows].all()


def test_filling_never_fills_with_nothing(mixed):
    filling = mixed.kind.filling
    for i, column in enumerate(mixed.kind.schema):
        assert filling[i].sum() == column.num_values
        assert column.has_missing == (column.size > column.num_values)
    empty = _with_an_empty_column()
    assert empty.filling[1].tolist() == [1.0, 0.0]  # nothing else is possible


def _with_an_empty_column():
    with pytest.warns(UserWarning, match="column b has no values; it stays empty"):
        return read_frame(pd.DataFrame({"a": [0, 1] * 10, "b": [None] * 20})).kind


def test_the_kind_survives_its_json(mixed):
    kind = mixed.kind
    again = kind_from(json.loads(json.dumps(kind.as_dict())), kind.num_classes, list(kind.shape))
    assert again == kind
    tokens = mixed.test.tokens
    assert again.objects(tokens, 5).equals(kind.objects(tokens, 5))


def test_a_damaged_kind_is_refused(mixed):
    values = json.loads(json.dumps(mixed.kind.as_dict()))
    with pytest.raises(ValueError, match="type of a column = pictures: expected one of category"):
        kind_from(values | {"schema": [{"type": "pictures"}]}, 2, [1])
    with pytest.raises(ValueError, match="schema = 14 columns"):
        kind_from(values, mixed.num_classes, [3])
    values["schema"][3]["weight"] = [1]
    with pytest.raises(ValueError, match=r"column real = .* pieces"):
        kind_from(values, mixed.num_classes, [14])


def test_files_and_data_frames_are_of_this_kind(tmp_path):
    for name in ("a.csv", "a.TSV", "a.data", "a.parquet"):
        (tmp_path / name).touch()
        assert kind_of_file(tmp_path / name) is Table
    assert kind_of_objects(pd.DataFrame({"a": [1]})) is Table
    assert not Table.claims_objects([1, 2])
    with pytest.raises(TypeError, match="data is a list: expected a DataFrame of pandas, or the path of a file"):
        Table.from_objects([1, 2], DataConfig("table"))


def test_a_table_with_other_columns_is_refused(tmp_path):
    a = read_text(tmp_path, adult_text()).kind
    b = read_text(tmp_path, adult_text(299), "other.csv").kind
    a.require_same(a.as_dict(), "data")
    with pytest.raises(ValueError, match=r"column column_1 of data = .*: expected the same categories and bins"):
        a.require_same(b.as_dict(), "data")
    c = read_text(tmp_path, "x,y\n1,2\n2,1\n" * 2, "c.csv", header=False).kind
    with pytest.raises(ValueError, match="columns of data = column_1, column_2: expected column_1, column_2, column_3"):
        a.require_same(c.as_dict(), "data")


# ---- holes --------------------------------------------------------------------------------------------------------


def test_missing_cells_and_absent_columns_are_holes(people):
    frame = pd.DataFrame({"sex": ["Male", None], "weight": [np.nan, 100]}, index=[7, 8])
    _, known = people.tokens(frame)
    names = people.names
    assert {names[i] for i in known[0].nonzero().flatten()} == {"sex"}
    assert {names[i] for i in known[1].nonzero().flatten()} == {"weight"}
    kept, known = people.tokens(frame, keep_missing=True)
    place = people.column("weight")
    assert kept[0, place] == people.schema[place].num_values
    assert known[0, place]
    assert not known[1, people.column("sex")]  # training has no missing cell there


def test_a_category_that_training_never_had_is_refused(people):
    expected = r"sex in row 2 of table = Femal: expected one of (Male, Female|Female, Male) \(is Female meant\?\)"
    with pytest.raises(ValueError, match=expected):
        people.tokens(pd.DataFrame({"sex": ["Male", "Femal"]}))
    with pytest.raises(ValueError, match=r"column of table = sexx: expected one of age, .* \(is sex meant\?\)"):
        people.tokens(pd.DataFrame({"sexx": ["Male"]}))
    with pytest.raises(ValueError, match="age in row 1 of table = old: expected a number"):
        people.tokens(pd.DataFrame({"age": ["old"]}))
    with pytest.raises(ValueError, match=r"born in row 1 of table = x: expected a date such as 2020-12-31"):
        people.tokens(pd.DataFrame({"born": ["x"]}))
    with pytest.raises(TypeError, match="table is a list: expected a DataFrame of pandas"):
        people.tokens([1])


def test_a_rare_category_is_accepted(people):
    column = people.schema[people.column("city")]
    tokens, known = people.tokens(pd.DataFrame({"city": [column.rare[0]]}))
    assert tokens[0, people.column("city")] == len(column.common)
    assert known[0, people.column("city")]


def test_numbers_outside_of_the_range_go_to_the_outermost_bin(people):
    with pytest.warns(UserWarning, match=r"weight in row 2 of table = 99999.*weight has: 7\.0\.\.39.*\(2 such cells\)"):
        tokens, known = people.tokens(pd.DataFrame({"weight": [50, 99_999, -3]}))
    place = people.column("weight")
    assert tokens[1:, place].tolist() == [people.schema[place].num_values - 1, 0]
    assert known[:, place].all()


def test_filled_keeps_known_cells_and_the_index(people):
    frame = pd.DataFrame({"weight": [1234.0, np.nan], "sex": [None, "Male"]}, index=["x", "y"])
    tokens, known = people.tokens(frame)
    filled = people.filled(frame, torch.where(known, tokens, 1), seed=4)
    assert list(filled.index) == ["x", "y"]
    assert list(filled.columns) == people.names
    assert filled["weight"].tolist()[0] == 1234
    assert filled["sex"].tolist()[1] == "Male"
    assert filled.notna().all().all()


def test_filled_copies_columns_that_the_model_left_out():
    frame = pd.DataFrame({"a": [0.0, 1] * 10, "note": ["x"] * 20, "b": [3, 4] * 10})
    kind = read_frame(frame, columns={"note": "ignore"}).kind
    table = pd.DataFrame({"note": ["y", None], "a": [1.0, None]}, index=[3, 8])
    filled = kind.filled(table, torch.zeros(2, 2, dtype=torch.long))
    expected = pd.DataFrame({"a": [1.0, 0.0], "note": ["y", None], "b": [3, 3]}, index=[3, 8])
    pd.testing.assert_frame_equal(filled, expected)


def test_what_tokens_call_a_hole_is_filled():
    """Infinite numbers, and marks of missing cells with spaces around them."""
    frame = pd.DataFrame({"a": [0.5, 1.5] * 10, "b": ["x", "?"] * 10})
    kind = read_frame(frame, missing=["?"]).kind
    table = pd.DataFrame({"a": [np.inf, 1.5, -np.inf], "b": [" ? ", "?", "x"]})
    tokens, known = kind.tokens(table)
    assert known.tolist() == [[False, False], [True, False], [False, True]]
    filled = kind.filled(table, torch.where(known, tokens, 0))
    assert filled["a"].tolist() == [0.5, 1.5, 0.5]
    assert filled["b"].tolist() == ["x", "x", "x"]


def test_a_known_cell_that_the_dtype_cannot_hold_stays():
    kind = read_frame(pd.DataFrame({"a": [1, 2, 3] * 10})).kind
    filled = kind.filled(pd.DataFrame({"a": [1.5, None]}), torch.zeros(2, 1, dtype=torch.long))
    assert filled["a"].dtype == "float64"
    assert filled["a"].tolist() == [1.5, 1.0]


# ---- conditions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where",
    [
        "sex=Female,weight=100..250",
        {"sex": "Female", "weight": (100, 250)},
        "sex=Female,weight=100..250|3000..,city!=c0",
        "weight=..50,weight!=7,age=30..40|55",
        {"weight": [(None, 50), 300, (500, 700)], "city": ["c0", "c3", "c17"]},
        "born=1960..1969,weight!=",
        {"born": (datetime.date(1960, 1, 1), datetime.date(1969, 12, 31)), "weight": (0, None)},
        "city!=c1|c9,sex=Male",
    ],
)
def test_weights_are_the_shares_that_draws_within_bins_have(where, people):
    """Each share is compared with 400 draws of its category: one of all is off by 0.15 once in 100,000 times."""
    weights = people.weights(where)
    assert (weights[~people.support] == 0).all()
    for i, column in enumerate(people.schema):
        for category in range(column.size):
            rows = torch.zeros(400, len(people.schema), dtype=torch.long)
            rows[:, i] = category
            share = _meets(people.objects(rows, seed=category)[column.name], column.name, where).mean()
            assert abs(share - float(weights[i, category])) < 0.15


def _meets(series, name, where):
    """A second reading of the conditions, in Python."""
    conditions = {
        "sex": lambda v: v == ("Female" if "Female" in str(where) else "Male") or "sex" not in str(where),
        "age": lambda v: "age" not in str(where) or 30 <= v <= 40 or v == 55,
        "born": lambda v: "born" not in str(where) or 1960 <= v.year <= 1969,
        "city": lambda v: _city(v, str(where)),
        "weight": lambda v: _weight(v, str(where)),
    }
    return np.array([bool(conditions[name](value)) for value in series])


def _city(value, where):
    if "city!=c0" in where:
        return value != "c0"
    if "city!=c1|c9" in where:
        return value not in ("c1", "c9")
    return "city" not in where or value in ("c0", "c3", "c17")


def _weight(value, where):
    if "weight" not in where:
        return True
    if pd.isna(value):
        return False
    if "100" in where:
        return 100 <= value <= 250 or ("3000" in where and value >= 3000)
    if "!=7" in where:
        return value <= 50 and value != 7
    if "500" in where:
        return value <= 50 or value == 300 or 500 <= value <= 700
    return True


def test_objects_are_drawn_within_the_condition(people):
    where = "weight=101..113,born=1960-03..1960-05,city!=c0"
    allowed = people.weights(where) > 0
    rng = np.random.default_rng(0)
    rows = np.stack([rng.choice(np.flatnonzero(allowed[i]), size=500) for i in range(len(people.schema))], axis=1)
    back = people.objects(torch.from_numpy(rows), seed=2, where=where)
    assert back["weight"].between(101, 113).all()
    assert back["born"].between("1960-03-01", "1960-05-31").all()
    assert (back["city"] != "c0").all()
    texts = people.texts(torch.from_numpy(rows), seed=2, where=where)
    assert [float(text) for text in texts["weight"]] == back["weight"].tolist()


def test_a_large_integer_in_a_condition_is_exact():
    """Floats cannot tell 2^60 + 3 from 2^60."""
    kind = read_frame(pd.DataFrame({"x": 2**60 + np.arange(5000)}), columns={"x": "number"}, bins=10).kind
    for where in (f"x={2**60 + 3}", {"x": 2**60 + 3}, {"x": (2**60 + 3, 2**60 + 3)}):
        rows = kind.weights(where)[0].nonzero().repeat(20, 1)
        assert set(kind.objects(rows, where=where)["x"]) == {2**60 + 3}


def test_objects_outside_of_the_condition_are_refused(people):
    with pytest.raises(ValueError, match="weight outside of the condition: expected rows that meet it"):
        people.objects(torch.zeros(1, 5, dtype=torch.long), where="weight=3900..")


def test_missing_cells_can_be_asked_for(people):
    place = people.column("weight")
    column = people.schema[place]
    assert people.weights("weight=")[place].nonzero().flatten().tolist() == [column.num_values]
    assert people.weights({"weight": None})[place].nonzero().flatten().tolist() == [column.num_values]
    assert people.weights("weight!=")[place, column.num_values] == 0
    assert people.weights("weight=..10|")[place, column.num_values] == 1


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("sexx=Female", r"column in where = sexx: expected one of age, weight, sex, city, born \(is sex meant\?\)"),
        ("sex=Femal", r"sex in where = Femal: expected one of .* \(is Female meant\?\)"),
        ("sex=a..b", "where = sex=a..b: expected a value, as sex has categories and no ranges"),
        ("age=old", r"where = age=old: expected numbers, as age has: 17\.\.90|17\.0\.\.90\.0"),
        ("age=200..300", "where = age=200..300: expected something that age has: 17"),
        ("age=40..30", "where = age=40..30: expected a range with the smaller number first"),
        ("sex=", "where = sex=: expected something that sex has"),
        ("born=yesterdayish", "where = born=yesterdayish: expected dates, as born has"),
        ("age=..", "where = age=..: expected a range such as"),
        ("age", "where = age: expected conditions such as"),
        ('sex="Female', 'where = sex="Female: expected a second "'),
        ({"age": (None, None)}, r"where\[age\] = \(None, None\): expected \(low, high\)"),
        ({"age": []}, r"where\[age\] = \[\]: expected at least one value"),
        ({"age": True}, "where = age=True: expected numbers"),
    ],
)
def test_a_condition_that_cannot_be_met_or_understood_is_refused(where, message, people):
    with pytest.raises(ValueError, match=message):
        people.weights(where)


def test_the_split_is_that_of_the_recipe():
    frame = pd.DataFrame({"a": np.arange(100) % 7, "b": np.arange(100) % 3})
    dataset = Table.from_objects(frame, DataConfig("table", test_fraction=0.25, seed=3))
    assert (len(dataset.train), len(dataset.test)) == (75, 25)
    again = Table.from_objects(frame, DataConfig("table", test_fraction=0.25, seed=4))
    assert not torch.equal(dataset.test.tokens, again.test.tokens)
    assert Table.describe_split(DataConfig("table")) == "0.1 held out of the rows, seed 0"


def test_a_kind_says_what_it_is(people):
    assert people.describe() == "rows of 5 columns"
    assert people.sample_examples("none", 0)[0] == " --num 1000 --out new.csv"


def test_times_of_python_and_pandas_are_conditions(people):
    place = people.column("born")
    expected = people.weights("born=1960-03-01..1960-03-31")[place]
    for low, high in (
        (pd.Timestamp("1960-03-01"), pd.Timestamp("1960-03-31")),
        (datetime.datetime(1960, 3, 1), np.datetime64("1960-03-31")),
        ("1960-03", "1960-03"),
    ):
        assert torch.equal(people.weights({"born": (low, high)})[place], expected)
    single = people.weights({"born": pd.Timestamp("1960-03-01", tz="UTC")})[place]
    assert 0 < single.sum() < expected.sum()
    with pytest.raises(ValueError, match=r"where = born=<object .*: expected dates"):
        people.weights({"born": object()})


def test_dates_in_a_prompt_may_be_objects_of_python(people):
    frame = pd.DataFrame({"born": pd.Series([datetime.date(1960, 3, 1), None], dtype="object")})
    tokens, known = people.tokens(frame)
    same, _ = people.tokens(pd.DataFrame({"born": ["1960-03-01"]}))
    assert known[:, people.column("born")].tolist() == [True, False]
    assert tokens[0, people.column("born")] == same[0, people.column("born")]


def test_cells_of_other_types_become_texts_or_numbers():
    frame = pd.DataFrame(
        {
            "price": [Decimal("1.50"), Decimal("2.25")] * 20,
            "flag": pd.Series([True, False, None, True] * 10, dtype="object"),
            "span": pd.to_timedelta([1, 2] * 20, unit="D"),
            "period": pd.period_range("2020-01", periods=2, freq="M").tolist() * 20,
        }
    )
    dataset = read_frame(frame)
    types = [(column.type, column.size) for column in dataset.kind.schema]
    assert types == [("ordered", 2), ("category", 3), ("duration", 2), ("date", 2)]
    back = dataset.kind.objects(torch.from_numpy(all_rows(dataset)))
    assert set(back["price"]) == {1.5, 2.25}
    assert set(back["period"].map(str)) == {"2020-01", "2020-02"}
    assert set(back["span"]) == set(frame["span"])
    assert dataset.kind.tokens(frame, keep_missing=True)[1].all()


def test_very_many_numbers_and_times_are_told_from_a_sample(monkeypatch):
    monkeypatch.setattr(summary, "_MOST_COUNTED", 2**12)
    monkeypatch.setattr(summary, "_SAMPLED_ROWS", 2**12)
    rng = np.random.default_rng(0)
    times = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 10**9, size=20_000), unit="s")
    dataset = read_frame(pd.DataFrame({"x": rng.normal(size=20_000), "time": times}))
    assert [(column.type, column.size) for column in dataset.kind.schema] == [("number", 141), ("date", 141)]
    shares = np.bincount(all_rows(dataset)[:, 0], minlength=141) / 20_000
    assert 0.2 / 141 < shares.min() < shares.max() < 2.5 / 141
