"""The judge of tables: good rows score well, bad rows do not, copies are seen; and its report."""

import csv
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from support.tables import read_frame
from usd3.kinds.dataset import Dataset, Sequences
from usd3.kinds.table.judge import TableJudge
from usd3.kinds.table.measuring import Measured
from usd3.kinds.table.options import TableSettings
from usd3.kinds.table.reading import TableDataset


def people(rows, seed):
    """Columns that hang together, one of them with holes."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, size=rows)
    income = np.exp(rng.normal(7 + age / 60, 0.5)).clip(900, 9000).round(0)
    return pd.DataFrame(
        {
            "age": age,
            "income": np.where(rng.random(rows) < 0.1, np.nan, income),
            "job": np.where(age > 65, "retired", rng.choice(["cook", "smith", "clerk"], size=rows)),
            "since": pd.Timestamp("2020-01-01") - pd.to_timedelta(age * 100 + rng.integers(0, 99, size=rows), unit="D"),
        }
    )


@pytest.fixture(scope="module")
def dataset():
    frame = people(3000, 0)
    return read_frame(frame, bins=20)


@pytest.fixture(scope="module")
def judge(dataset):
    return TableJudge(dataset, TableSettings(), None, 0)


def test_as_many_rows_are_drawn_as_are_held_out(dataset, judge):
    assert judge.num == 300
    assert TableJudge(dataset, TableSettings(), 50, 0).num == 50
    assert TableJudge(dataset, TableSettings(num=77, train=100), 50, 0).about == {
        "held_out_rows": 50,
        "training_rows": 2700,
        "training_rows_compared": 100,
    }
    with pytest.raises(ValueError, match="held-out rows = 3: expected at least 4: a larger --limit"):
        TableJudge(dataset, TableSettings(), 3, 0)
    few = read_frame(people(30, 0), bins=5)
    expected = (
        r"held-out rows = 3: expected at least 4: train with a larger --data\.test_fraction, or with --data\.table"
    )
    with pytest.raises(ValueError, match=expected):
        TableJudge(few, TableSettings(), None, 0)
    split = Sequences(torch.zeros(4, 2, dtype=torch.long))
    other = Dataset("x", 2, split, split)
    with pytest.raises(ValueError, match="data = x: expected a table"):
        TableJudge(other, TableSettings(), None, 0)


@pytest.mark.filterwarnings("ignore:since in row")
def test_rows_of_the_same_law_score_well_and_others_do_not(dataset, judge):
    fresh, _ = dataset.kind.tokens(people(2000, 5), keep_missing=True)
    good = judge.scores(fresh)
    assert good["shape"] > 0.93
    assert good["trend"] > 0.9
    assert good["told_apart"] < 0.58
    assert 0.4 < good["nearer_to_training"] < 0.6
    rng = np.random.default_rng(1)
    apart = torch.stack([column[torch.from_numpy(rng.permutation(len(fresh)))] for column in fresh.T], dim=1)
    bad = judge.scores(apart)
    assert bad["shape"] > 0.93
    assert bad["trend"] < good["trend"] - 0.1
    assert bad["told_apart"] > 0.85
    shifted = judge.scores(torch.where(torch.arange(4) == 0, (fresh + 20).clamp(max=71), fresh))
    assert shifted["shape"] < good["shape"] - 0.05


@pytest.mark.filterwarnings("ignore:since in row")
def test_copies_of_training_rows_are_seen(dataset, judge):
    copies = judge.scores(dataset.train.tokens[:1000].long())
    assert copies["copies"] == 1.0
    fresh, _ = dataset.kind.tokens(people(1000, 5), keep_missing=True)
    assert judge.scores(fresh)["copies"] < 0.8
    settings = TableSettings(train=300)
    near = TableJudge(dataset, settings, None, 0)
    assert near.scores(near.train.tokens)["nearer_to_training"] > 0.7


def test_reference_rows_show_the_scale(judge):
    rows = judge.references(300)
    assert list(rows) == ["training rows", "held-out rows", "columns permuted", "Gaussian copula"]
    told = {name: row["told_apart"].mean for name, row in rows.items() if "told_apart" in row}
    assert told["training rows"] < 0.6 < told["columns permuted"]
    assert set(rows["held-out rows"]) == {"copies"}
    assert rows["columns permuted"]["trend"].mean < rows["Gaussian copula"]["trend"].mean
    entropies = [_entropy(column) for column in judge.held_out.tokens.T]
    assert rows["columns permuted"]["bits_per_element"].mean == pytest.approx(np.mean(entropies), rel=0.1)


def _entropy(column):
    shares = torch.bincount(column).double() / len(column)
    return float(torch.special.entr(shares).sum() / np.log(2))


def test_the_order_of_the_file_does_not_matter():
    """In a sorted file, the first rows of training and of the held-out rows are of one class."""
    rng = np.random.default_rng(0)
    kind = np.repeat(list("abcd"), 1000)
    frame = pd.DataFrame({"kind": kind, "size": rng.normal(10.0 * (kind == "d"), 1.0), "width": rng.normal(size=4000)})
    dataset = read_frame(frame, bins=20)
    judge = TableJudge(dataset, TableSettings(), 100, 0)
    assert set(judge.held_out.frame["kind"]) == set("abcd")
    assert judge.references(100)["training rows"]["shape"].mean > 0.85
    others = dataset.train.tokens[torch.from_numpy(rng.permutation(3600)[:1000])].long()
    assert 0.35 < judge.scores(others)["nearer_to_training"] < 0.65


def test_held_out_rows_have_their_own_numbers(dataset, judge):
    """Not numbers that were drawn within bins."""
    income = judge.held_out.frame["income"].dropna()
    assert set(income) <= set(people(3000, 0)["income"].dropna())
    bare = TableDataset(**{**vars(dataset), "sources": None, "parts": (None, None)})
    drawn = TableJudge(bare, TableSettings(), None, 0).held_out.frame["income"].dropna()
    assert not set(drawn) <= set(people(3000, 0)["income"].dropna())


def test_a_missing_number_is_another_category(dataset, judge):
    rows = judge.held_out.rows(slice(20))
    features = judge.features.for_distances(rows)
    assert torch.isfinite(features.numbers).all()
    missing = torch.tensor(rows.frame["income"].isna().tolist())
    assert torch.equal(features.categories[:, -2].bool(), missing)
    assert torch.isfinite(judge.features.for_classifier(rows)).all()


def test_the_report_has_pictures_and_the_worst_first(judge, dataset, tmp_path):
    tokens = dataset.train.tokens[:500].long()
    files = judge.report(tokens, tmp_path / "report")
    assert files == ["marginals.png", "trends.png", "pairs.png", "columns.csv", "pairs.csv"]
    assert {file.name for file in (tmp_path / "report").iterdir()} == set(files)
    with open(tmp_path / "report" / "pairs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    similarities = [float(row["similarity"]) for row in rows]
    assert similarities == sorted(similarities)
    assert np.mean([float(row["trend"]) for row in rows]) == pytest.approx(judge.scores(tokens)["trend"])
    single = read_frame(people(200, 0)[["job"]])
    alone = TableJudge(single, TableSettings(), None, 0)
    assert alone.report(single.test.tokens.long(), tmp_path / "one") == ["marginals.png", "columns.csv"]
    assert np.isnan(alone.scores(single.test.tokens.long())["trend"])


def test_numbers_whose_range_is_infinite_are_measured(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.uniform(-1.7, 1.7, size=400) * 1e308
    dataset = read_frame(pd.DataFrame({"x": values, "y": values / 1e308, "letter": np.where(values > 0, "a", "b")}))
    judge = TableJudge(dataset, TableSettings(), None, 0)
    tokens = dataset.train.tokens.long()
    scores = judge.scores(tokens)
    assert scores["shape"] > 0.8
    assert scores["trend"] > 0.7
    assert "pairs.png" in judge.report(tokens, tmp_path / "report")


def test_rows_are_measured_as_numbers_also_where_they_are_texts():
    frame = people(300, 0).astype({"age": "str"})
    dataset = read_frame(replace_dates(frame))
    rows = Measured.drawn(dataset.kind, dataset.test.tokens.long())
    assert set(rows.numbers) == {"age", "income", "since"}
    assert rows.frame["age"].dtype == "float64"


def replace_dates(frame):
    """The frame with its dates as texts."""
    return frame.assign(since=frame["since"].dt.strftime("%d.%m.%Y"))


@pytest.mark.parametrize(("settings", "message"), [({"num": 3}, "tables.num = 3"), ({"train": 0}, "tables.train = 0")])
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        replace(TableSettings(), **settings)
