"""Hidden cells of a table: what is hidden, how guesses are measured, and who fills them."""

import importlib
import json
import sys

import numpy as np
import pandas as pd
import pytest

from support.places import ROOT
from support.tables import mushroom_text

ADULT = (
    "39, State-gov, {}, Bachelors, 13, Separated, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, ?, <=50K{}",
    "50, ?, {}, HS-grad, 9, Divorced, ?, Husband, White, Female, 0, 0, 13, United-States, >50K{}",
    "28, Private, {}, Bachelors, 13, Divorced, Sales, Wife, Black, Female, 0, 1902, 40, Cuba, <=50K{}",
)
TINY = """
model: {dim: 16, depth: 1, heads: 2}
training: {steps: 20, batch_size: 32, warmup: 2, validate_every: 20, checkpoint_every: 20}
"""
COMPETITORS = ["boosting", "boosting-3", "column", "iterative", "random"]


@pytest.fixture
def imputation(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module("imputation")
    for name in ("imputation", "imputers", "adult"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with files in the form of UCI's."""
    folder = tmp_path_factory.mktemp("tables")
    (folder / "agaricus-lepiota.data").write_text(mushroom_text())
    for part, rows, dot in (("data", 150, ""), ("test", 60, ".")):
        lines = [ADULT[i % 3].format(1000 * (i % 50), dot) for i in range(rows)]
        (folder / f"adult.{part}").write_text("\n".join(lines) + "\n\n")
    return folder


@pytest.fixture
def hidden(imputation, data, tmp_path):
    """Hides cells of a table, and returns the folder."""

    def hide(table, *options):
        folder = tmp_path / table
        imputation.main(["hide", "--data", str(data), "--table", table, "--out", str(folder), *options])
        return folder

    return hide


def texts(path):
    return pd.read_csv(path, dtype=str, keep_default_na=False)


# ---- holes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("table", "train", "held_out"), [("mushroom", 160, 40), ("adult", 150, 60)])
def test_a_share_of_the_known_cells_is_hidden_and_the_others_stay(hidden, table, train, held_out):
    folder = hidden(table, "--share", "0.3")
    truth, holes, mask = (texts(folder / f"{name}.csv") for name in ("truth", "holes", "mask"))
    is_hidden = mask == "1"
    assert (len(texts(folder / "train.csv")), len(truth)) == (train, held_out)
    assert ((holes == "") == (is_hidden | (truth == ""))).all(axis=None)
    assert ((holes == truth) | is_hidden).all(axis=None)
    assert not (is_hidden & (truth == "")).any(axis=None)  # what the data lack does not count
    assert not is_hidden.get("veil-type", pd.Series(False)).any()  # one value: nothing to guess
    count = (truth != "").drop(columns="veil-type", errors="ignore").to_numpy().sum()
    assert abs(is_hidden.to_numpy().sum() / count - 0.3) < 4 * (0.3 * 0.7 / count) ** 0.5  # false alarm: 1 in 16,000


def test_held_out_mushrooms_are_not_among_the_training_rows(hidden, data):
    folder = hidden("mushroom")
    parts = [texts(folder / f"{name}.csv") for name in ("train", "truth")]
    everything = texts(data / "agaricus-lepiota.data").replace("?", "")
    assert sorted(map(tuple, pd.concat(parts).to_numpy())) == sorted(map(tuple, everything.to_numpy()))


def test_the_seed_chooses_rows_and_cells_and_rows_are_capped(imputation, hidden, data, tmp_path):
    folder = hidden("adult", "--rows", "20", "--seed", "3")
    assert set(texts(folder / "truth.csv").income) <= {"<=50K", ">50K"}  # without the dot of the file
    for seed, same in (("3", True), ("4", False)):
        again = tmp_path / f"again-{seed}"
        options = ["--table", "adult", "--rows", "20", "--seed", seed, "--out", str(again)]
        imputation.main(["hide", "--data", str(data), *options])
        for name in ("truth.csv", "mask.csv"):
            assert len(texts(again / name)) == 20
            assert ((again / name).read_bytes() == (folder / name).read_bytes()) == same
    with pytest.raises(FileExistsError):
        hidden("adult")


def test_rows_with_a_category_that_training_lacks_are_left_out(imputation, data, tmp_path, capsys):
    (tmp_path / "adult.data").write_text((data / "adult.data").read_text())
    test = (data / "adult.test").read_text().replace("Cuba", "Holland", 1)
    (tmp_path / "adult.test").write_text(test)
    imputation.main(["hide", "--data", str(tmp_path), "--table", "adult", "--out", str(tmp_path / "out")])
    assert "1 rows left out" in capsys.readouterr().out
    truth = texts(tmp_path / "out" / "truth.csv")
    assert len(truth) == 59
    assert "Holland" not in set(truth["native-country"])


# ---- scores -------------------------------------------------------------------------------------------------------


def small_tables():
    truth = pd.DataFrame({"a": list("xxyyz"), "b": list("uvuvu"), "n": [1.0, 2.0, 3.0, 4.0, np.nan], "c": ["k"] * 5})
    mask = pd.DataFrame({"a": [1, 1, 1, 1, 0], "b": [1, 0, 0, 1, 0], "n": [0, 0, 1, 1, 0], "c": [0] * 5}).astype(bool)
    return truth, mask


def test_measures_are_those_computed_by_hand(imputation):
    truth, mask = small_tables()
    filled = truth.assign(a=list("xyyyq"), b=list("vvuuu"), n=[9.0, 9.0, 4.0, 4.0, 9.0])  # only hidden cells count
    train = pd.DataFrame({"n": [0.0, 4.0] * 5})
    guesses = imputation.guesses_of(filled, truth, mask, train, ["n"])
    found = {name: values[0] for name, values in guesses.measures(np.ones((1, 5))).items()}
    assert found == pytest.approx(
        {
            "accuracy_columns": (3 / 4 + 0) / 2,
            "accuracy_cells": 3 / 6,
            "error": (1 + 0) / 2 / train.n.std(),
            "total_variation": (1 / 4 + 0 + 0) / 3,  # a: x, y, y, y for x, x, y, y; b: the same values in another order
        }
    )
    twice = guesses.measures(np.array([[0.0, 2, 0, 1, 0]]))  # the second row twice and the fourth
    assert twice["accuracy_cells"][0] == 1 / 4
    assert twice["accuracy_columns"][0] == (1 / 3 + 0) / 2


def test_numbers_are_compared_as_distributions_in_the_deciles_of_training(imputation):
    truth = pd.DataFrame({"gain": [0.0, 0.0, 0.0, 500.0]})
    train, mask = pd.DataFrame({"gain": [0.0] * 95 + [500.0] * 5}), truth.notna()
    for guesses, distance in ((0.0, 1 / 4), ([0.0, 0.0, 300.0, 0.0], 0), ([7.0, 7.0, 300.0, 0.0], 1 / 2)):
        found = imputation.guesses_of(truth.assign(gain=guesses), truth, mask, train, ["gain"])
        assert found.measures(np.ones((1, 4)))["total_variation"][0] == distance


def test_a_hidden_cell_without_a_guess_is_refused(imputation):
    truth, mask = small_tables()
    with pytest.raises(ValueError, match="column b of the filled table: expected a value in each hidden cell"):
        imputation.guesses_of(truth.assign(b=None), truth, mask, truth, ["n"])


def test_the_interval_is_that_of_a_mean_over_rows(imputation):
    """A share of 0.7 of 400 rows. The spread of 1,000 resamplings has a relative error of 1 / sqrt(2000)."""
    truth = pd.DataFrame({"a": ["x"] * 400})
    filled = truth.assign(a=["x"] * 280 + ["y"] * 120)
    guesses = imputation.guesses_of(filled, truth, truth.notna(), truth, [])
    values = imputation._with_interval(imputation._resampled(guesses)["accuracy_cells"], "value")
    expected = 1.96 * (0.7 * 0.3 / 400) ** 0.5
    assert values["value"] == pytest.approx(0.7)
    assert values["value_high"] - 0.7 == pytest.approx(expected, rel=4 / 2000**0.5)
    assert 0.7 - values["value_low"] == pytest.approx(expected, rel=4 / 2000**0.5)


def write_filled(imputation, folder, name, competitor, **changes):
    truth = texts(folder / "truth.csv")
    made = {"competitor": competitor, "fill_seconds": 0.5, "versions": {"python": "3"}}
    imputation.write(folder, name, truth.replace("", "0").assign(**changes), made)


def test_each_measure_is_compared_with_its_best_competitor(imputation, hidden, capsys):
    folder = hidden("adult")
    truth = texts(folder / "truth.csv")
    wrong = {"sex": ["Female" if cell == "Male" else "Male" for cell in truth.sex]}
    older = {"age": truth.age.astype(int) + 5}
    write_filled(imputation, folder, "mode", False, **wrong)
    write_filled(imputation, folder, "one", True, **wrong)
    write_filled(imputation, folder, "two", True, **older)
    imputation.main(["score", "--out", str(folder)])
    scores = pd.read_csv(folder / "scores.csv").set_index(["measure", "filler"])
    assert set(scores.table) == {"adult"}
    assert set(scores.versions) == {"python 3"}
    assert set(scores.fill_seconds) == {0.5}
    cells, error = scores.loc[("accuracy_cells", "mode")], scores.loc[("error", "mode")]
    assert (cells.best_competitor, error.best_competitor) == ("two", "one")
    assert cells.difference == pytest.approx(cells.value - 1)
    assert cells.difference_low < cells.difference < cells.difference_high < 0
    assert (error.difference, error.difference_low, error.difference_high) == (0, 0, 0)  # pairs: the same in each row
    assert scores.loc[("accuracy_columns", "mode")].value == pytest.approx(8 / 9)
    assert "minus two" in capsys.readouterr().out


# ---- fillers ------------------------------------------------------------------------------------------------------


def require_filled(folder, name):
    filled, holes, train = (texts(folder / f"{file}.csv") for file in (f"filled-{name}", "holes", "train"))
    numbers = json.loads((folder / "hide.json").read_text())["numbers"]
    for column in holes:
        known = holes[column] != ""
        assert (filled[column] != "").all()
        if column in numbers:
            assert (filled[column].astype(float) == holes[column].replace("", "nan").astype(float))[known].all()
        else:
            assert (filled[column] == holes[column])[known].all()
            assert set(filled[column]) <= set(train[column]) - {""}


@pytest.mark.parametrize("table", ["mushroom", "adult"])
def test_a_model_fills_all_holes_and_so_does_its_run(imputation, hidden, tmp_path, capsys, table):
    folder, recipe, run = hidden(table), tmp_path / "tiny.yaml", tmp_path / "run"
    recipe.write_text(TINY)
    imputation.main(["fill", "--out", str(folder), "--recipes", "small", str(recipe), "--run", str(run)])
    assert "mode: trained in" in capsys.readouterr().out
    first = {name: texts(folder / f"filled-{name}.csv") for name in ("mode", "draw")}
    for name in first:
        require_filled(folder, name)
    imputation.main(["fill", "--out", str(folder), "--model", str(run)])
    for name, table in first.items():
        pd.testing.assert_frame_equal(texts(folder / f"filled-{name}.csv"), table)
    imputation.main(["score", "--out", str(folder)])
    assert set(pd.read_csv(folder / "scores.csv").filler) == {"mode", "draw"}  # without a competitor, too


@pytest.mark.filterwarnings("ignore")  # scikit-learn's own, of tiny tables
@pytest.mark.parametrize("table", ["mushroom", "adult"])
def test_competitors_fill_all_holes(imputation, hidden, table):
    pytest.importorskip("sklearn")
    folder = hidden(table)
    imputation.main(["compete", "--out", str(folder)])
    assert sorted(path.stem.removeprefix("filled-") for path in folder.glob("filled-*.csv")) == COMPETITORS
    for name in COMPETITORS:
        require_filled(folder, name)
