"""Tables read in chunks: splits, files of tokens, rows of the file again, rows of another file."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from support.runs import memory_below
from support.tables import adult_text, all_rows, mixed_frame, read_frame, read_text
from usd3.kinds.mapped import MappedRows
from usd3.kinds.options import DataConfig
from usd3.kinds.splits import is_test_row
from usd3.kinds.table import files, reading, sniff, summary
from usd3.kinds.table.options import TableOptions


@pytest.fixture
def tiny_chunks(monkeypatch):
    """Files are read some rows at a time, and kept on the disk."""
    monkeypatch.setattr(files, "_CHUNK", 50)
    monkeypatch.setattr(reading, "_LARGE", 1000)


def test_chunks_change_nothing(tmp_path, tiny_chunks, monkeypatch):
    large = read_text(tmp_path, adult_text(), "adult.data")
    monkeypatch.undo()
    small = read_text(tmp_path, adult_text(), "adult.data")
    assert isinstance(large.train, MappedRows)
    assert large.kind == small.kind
    for name in ("train", "test"):
        assert torch.equal(getattr(large, name).tokens.long(), getattr(small, name).tokens.long())


def test_the_columns_of_a_large_file_are_remembered(tmp_path, tiny_chunks, monkeypatch):
    monkeypatch.setenv("USD3_CACHE", str(tmp_path / "cache"))
    first = read_text(tmp_path, adult_text(), "adult.data")
    (stored,) = (tmp_path / "cache" / "tables").iterdir()
    monkeypatch.setattr(reading, "summarised", lambda source: pytest.fail("read again"))
    again = DataConfig("table", str(tmp_path / "adult.data")).load()
    assert again.kind == first.kind
    monkeypatch.undo()
    monkeypatch.setenv("USD3_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(reading, "_LARGE", 1000)
    stored.write_text("damaged")
    assert DataConfig("table", str(tmp_path / "adult.data")).load().kind == first.kind
    assert json.loads(stored.read_text())["rows"] == 300


def test_the_splits_are_rows_of_the_file(tmp_path, tiny_chunks):
    dataset = read_text(tmp_path, adult_text(), "adult.data")
    cells = np.array([line.split(", ") for line in adult_text().strip().splitlines()])
    is_test = is_test_row(300, 0.1, 0)
    for test in (False, True):
        back = dataset.rows(test, np.array([4, 0, 2]))
        lines = cells[is_test == test][[4, 0, 2]]
        assert back["column_3"].tolist() == [int(line[2]) for line in lines]
        assert back["column_9"].tolist() == [line[8] for line in lines]


@pytest.mark.filterwarnings("ignore:column .* is kept")
def test_memory_stays_bounded_while_a_file_is_read(tmp_path, monkeypatch):
    """A file of 1.7 MB with columns of many numbers and of many words; its cells as Python texts take 10 MB."""
    for module, name, size in (
        (files, "_CHUNK", 2**12),
        (files, "_BLOCK", 2**16),
        (sniff, "_BLOCK", 2**16),
        (sniff, "_SAMPLE", 2**16),
        (reading, "_LARGE", 2**18),
        (summary, "_SAMPLED_ROWS", 2**12),
        (summary, "_MOST_COUNTED", 2**12),
    ):
        monkeypatch.setattr(module, name, size)
    rng = np.random.default_rng(0)
    numbers, words = rng.integers(0, 10**9, size=50_000), (rng.pareto(1, size=50_000) * 50).astype(int)
    lines = [f"{number},word{word},{'ab'[number % 2]},2020-01-01\n" for number, word in zip(numbers, words)]
    (tmp_path / "large.csv").write_text("number,word,letter,day\n" + "".join(lines))
    (tmp_path / "small.csv").write_text("number,word,letter,day\n" + "".join(lines[:100]))
    DataConfig("table", str(tmp_path / "small.csv")).load()  # imports take memory too
    del lines, numbers, words
    with memory_below(4e6), pytest.warns(UserWarning, match="column word has .* different values"):
        dataset = DataConfig("table", str(tmp_path / "large.csv")).load()
    assert (len(dataset.train), len(dataset.test)) == (45_000, 5000)
    assert isinstance(dataset.train, MappedRows)
    assert [column.size for column in dataset.kind.schema] == [200, 1000, 2, 1]
    shares = np.bincount(dataset.test.tokens[:, 0].numpy(), minlength=200) / 5000
    assert shares.max() < 0.015  # bins from a sample of the rows
    assert dataset.kind.schema[1].rare
    assert (dataset.test.tokens[:, 1] == 999).float().mean() > 0.01


def test_estimates_of_many_values_are_close(tmp_path, monkeypatch):
    monkeypatch.setattr(summary, "_MOST_COUNTED", 2**12)
    column = summary.ColumnSummary("x", frozenset(), most=2**12)
    for part in np.split(np.arange(60_000), 6):
        column.add(pd.Series(part % 50_000))
    assert column.pruned
    assert abs(column.distinct / 50_000 - 1) < 0.16  # five standard errors of an estimate by 1,024 hashes


def test_values_that_were_not_counted_are_rare_ones_however_many_categories_are_asked_for(monkeypatch):
    monkeypatch.setattr(summary, "_MOST_COUNTED", 2**12)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"word": pd.Series(rng.integers(8000, size=50_000)).map("w{}".format)})
    with pytest.warns(UserWarning, match="share one category .so many cannot be counted"):
        dataset = read_frame(frame, categories=50_000)
    column = dataset.kind.schema[0]
    assert (column.has_missing, len(column.rare)) == (False, 1)
    words = dataset.kind.objects(torch.from_numpy(all_rows(dataset)))["word"]
    assert words.notna().all()
    assert set(words) == {*column.common, *column.rare}


def test_a_sample_is_fair():
    """Each row is kept with the same chance: the mean of the kept numbers is off by 5 standard errors once in 10^6."""
    sample = summary._Sample(500)
    for part in np.split(np.arange(10_000), 20):
        sample.add(pd.DataFrame({"x": part}))
    kept = sample.frame()["x"]
    assert len(kept) == 500
    assert abs(kept.mean() - 5000) < 5 * 10_000 / (12 * 500) ** 0.5


# ---- held-out rows of another file --------------------------------------------------------------------------------


def with_test(folder, text):
    (folder / "test.csv").write_text(text)
    return read_text(folder, adult_text(), "adult.data", test_path=str(folder / "test.csv"))


def test_held_out_rows_may_be_in_another_file(tmp_path):
    lines = adult_text().splitlines()[:20]
    dataset = with_test(tmp_path, "\n".join(lines))
    assert (len(dataset.train), len(dataset.test)) == (300, 20)
    assert torch.equal(dataset.test.tokens, dataset.train.tokens[:20])
    assert dataset.rows(True, np.arange(3))["column_3"].tolist() == [int(line.split(", ")[2]) for line in lines[:3]]
    data = DataConfig("table", table=TableOptions(test_path="x"))
    assert dataset.kind.describe_split(data) == "the rows of another file"


def test_held_out_rows_that_training_cannot_have_are_left_out(tmp_path):
    lines = adult_text().splitlines()[:20]
    lines[4] = lines[4].replace("Masters", "Doctorate")
    lines[7] = lines[7].replace("40", "?")
    expected = "2 rows are left out, as training has no such cells: column_4 in row 5 of test.csv is Doctorate"
    with pytest.warns(UserWarning, match=expected):
        dataset = with_test(tmp_path, "\n".join(lines))
    assert len(dataset.test) == 18
    assert len(dataset.rows(True, np.arange(18))) == 18


def test_a_held_out_file_of_other_rows_is_refused(tmp_path):
    dotted = adult_text().replace("50K", "50K.")
    with pytest.raises(ValueError, match=r"none that training could have.*column_9 in row 1 of test\.csv is <=50K\."):
        with_test(tmp_path, dotted)
    with pytest.raises(ValueError, match=r"columns of test\.csv = .*: expected also column_9"):
        with_test(tmp_path, "\n".join(line.rpartition(",")[0] for line in adult_text().strip().splitlines()))


def test_the_file_of_held_out_rows_is_found_from_every_folder_and_shared_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = DataConfig("table", "train.csv", table=TableOptions(test_path="held/out.csv"))
    data.make_absolute()
    assert data.table.test_path == str(tmp_path / "held" / "out.csv")
    assert data.without_places().table.test_path == "out.csv"
    data = DataConfig("table", "train.csv")
    data.make_absolute()
    assert data.table.test_path is None
    assert data.without_places().table.test_path is None


# ---- scrambled ----------------------------------------------------------------------------------------------------


def test_categories_of_columns_are_not_renamed():
    """The support says which categories a column has, by their own names."""
    from usd3.kinds.scramble import scramble

    with pytest.raises(ValueError, match=r"data\.scramble = 3: expected null for rows, as each element has categories"):
        scramble(read_frame(mixed_frame()), 3)
