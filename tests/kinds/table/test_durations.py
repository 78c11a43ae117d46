"""Columns of timedeltas: numbers that come back as timedeltas."""

import datetime
import json

import numpy as np
import pandas as pd
import pytest
import torch

from support.tables import all_rows, read_frame
from usd3.kinds.registry import kind_from
from usd3.kinds.table.judge import TableJudge
from usd3.kinds.table.options import TableSettings


def spans(rows=400, dtype="timedelta64[ns]"):
    """Different durations of whole seconds, beside a column of letters."""
    seconds = np.random.default_rng(0).permutation(10 * rows)[:rows] * 60
    return pd.DataFrame({"span": pd.to_timedelta(seconds, unit="s").astype(dtype), "letter": ["a", "b"] * (rows // 2)})


def drawn(dataset, seed=1):
    return dataset.kind.objects(torch.from_numpy(all_rows(dataset)), seed=seed)


@pytest.mark.parametrize("dtype", ["timedelta64[ns]", "timedelta64[us]", "timedelta64[s]", "duration[us][pyarrow]"])
def test_different_durations_are_learnt_and_come_back(dtype):
    frame = spans(dtype=dtype)
    dataset = read_frame(frame)
    column = dataset.kind.schema[0]
    assert (column.type, column.num_values, column.dtype) == ("duration", 20, str(frame["span"].dtype))
    back = drawn(dataset)["span"]
    assert back.dtype == frame["span"].dtype
    assert frame["span"].min() <= back.min() < back.max() <= frame["span"].max()
    assert not (back.astype("timedelta64[us]").dt.total_seconds() % 60).any()  # whole minutes stay so


def test_missing_durations_are_a_category():
    frame = spans()
    frame.loc[::4, "span"] = pd.NaT
    dataset = read_frame(frame)
    assert dataset.kind.schema[0].has_missing
    assert drawn(dataset)["span"].isna().sum() == 100


def test_durations_of_python_are_durations():
    frame = pd.DataFrame({"span": pd.Series([datetime.timedelta(minutes=i * i) for i in range(60)], dtype="object")})
    dataset = read_frame(frame)
    assert dataset.kind.schema[0].type == "duration"
    assert drawn(dataset)["span"].max() <= pd.Timedelta(minutes=59 * 59)


def test_durations_survive_json_and_become_tokens_again():
    dataset = read_frame(spans())
    kind = dataset.kind
    again = kind_from(json.loads(json.dumps(kind.as_dict())), kind.num_classes, list(kind.shape))
    assert again == kind
    tokens = torch.from_numpy(all_rows(dataset)).long()
    rows = kind.objects(tokens, seed=3)
    for frame in (rows, rows.astype({"span": "timedelta64[s]"}), rows.assign(span=rows["span"].astype(object))):
        assert torch.equal(again.tokens(frame)[0], tokens)
    values = kind.as_dict()
    values["schema"][0]["unit"] = "weeks"
    with pytest.raises(ValueError, match="unit of column span = weeks: expected one of s, ms, us, ns"):
        kind_from(values, kind.num_classes, list(kind.shape))


def test_durations_are_written_as_texts_that_are_understood(tmp_path):
    dataset = read_frame(spans())
    tokens = torch.from_numpy(all_rows(dataset)).long()
    dataset.kind.write(tokens, tmp_path / "new.csv")
    texts = pd.read_csv(tmp_path / "new.csv", dtype=str)
    assert texts["span"].str.fullmatch(r"\d days \d\d:\d\d:00").all()
    assert torch.equal(dataset.kind.tokens(texts)[0], tokens)
    with pytest.raises(ValueError, match="span in row 1 of table = long: expected a duration such as 1 days 02:30:00"):
        dataset.kind.tokens(pd.DataFrame({"span": ["long"]}))
    with pytest.raises(ValueError, match="span in row 1 of table = 7: expected a duration"):
        dataset.kind.tokens(pd.DataFrame({"span": [7]}))


def test_conditions_take_durations():
    kind = read_frame(spans()).kind
    expected = kind.weights("span=1 days..2 days")
    assert 0 < expected[0].sum() < kind.schema[0].num_values
    for low, high in (
        (datetime.timedelta(days=1), pd.Timedelta("48h")),
        (np.timedelta64(1, "D"), "2D"),
    ):
        assert torch.equal(kind.weights({"span": (low, high)}), expected)
    with pytest.raises(ValueError, match="where = span=7: expected durations, as span has: 0 days"):
        kind.weights("span=7")


def test_the_user_chooses_how_durations_are_learnt():
    assert read_frame(spans(), columns={"span": "ordered"}).kind.schema[0].num_values == 400
    assert read_frame(spans(), columns={"span": "ignore"}).kind.names == ["letter"]
    with pytest.raises(ValueError, match=r"columns\.span = category: expected number, ordered or ignore for a column"):
        read_frame(spans(), columns={"span": "category"})


def test_durations_are_measured_as_numbers(tmp_path):
    dataset = read_frame(spans())
    judge = TableJudge(dataset, TableSettings(), None, 0)
    assert judge.held_out.numbers == ("span",)
    assert judge.scores(dataset.train.tokens.long())["shape"] > 0.7
    assert "marginals.png" in judge.report(dataset.train.tokens.long(), tmp_path / "report")
