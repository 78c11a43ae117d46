"""TableModel: laws against enumeration, dtypes and cells, folders, messages."""

import functools
import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import usd3
from support.runs import tiny_recipe
from support.statistics import chi_square_p_value
from support.tables import mixed_frame, read_frame
from usd3.core.options import DiffusionConfig
from usd3.pipeline.config import PipelineConfig
from usd3.training.run import pipeline_for

FALSE_ALARM = 1e-6  # of each test of a law

# ---- a table whose law is known -------------------------------------------------------------------------------------

ROWS = pd.DataFrame(  # all rows that there are; each bin of `weight` has ten numbers, which are equally likely
    itertools.product(["red", "green", "blue", None], [1, 2, 3], range(40)), columns=["colour", "grade", "weight"]
)
KIND = read_frame(ROWS, columns={"weight": "number"}, bins=4).kind
TOKENS, K = KIND.tokens(ROWS, keep_missing=True)[0], KIND.num_classes
SIZES = [column.size for column in KIND.schema]
CORRELATED = np.random.default_rng(2).dirichlet(np.full(np.prod(SIZES), 0.5)).reshape(SIZES)
INDEPENDENT = np.einsum("a,b,c->abc", *(np.random.default_rng(3).dirichlet(np.ones(size)) for size in SIZES))


class Exact(nn.Module):
    """p(x_0 | x_t, given) of each cell by enumeration, to a power: with one above 1 it is too sure."""

    def __init__(self, law, noise, power):
        super().__init__()
        self.states = torch.tensor(list(itertools.product(*map(range, SIZES))))  # (S, D)
        self.law, self.m = torch.from_numpy(law).flatten(), noise.probs.expand(len(SIZES), -1)
        self.power, self.mask = power, noise.mask
        self.ignores_time = noise.is_absorbing
        self.anchor = nn.Parameter(torch.zeros(()))

    def forward(self, x_t, t, given):
        kept = (1 - t.double())[:, None, None] if self.mask is None else 0.5  # with masks, any share says the same
        seen = nn.functional.one_hot(x_t, self.m.shape[-1]).double()  # (B, D, K)
        likely = torch.where(given[..., None], seen, kept * seen + (1 - kept) * (self.m * seen).sum(-1, keepdim=True))
        each = torch.stack([likely[:, d, self.states[:, d]] for d in range(len(SIZES))])  # (D, B, S)
        posterior = self.law * each.prod(0)
        of_cells = nn.functional.one_hot(self.states, self.m.shape[-1]).double()  # (S, D, K)
        f = torch.einsum("bs,sdk->bdk", posterior, of_cells) / posterior.sum(-1)[:, None, None].clamp(min=1e-300)
        return self.power * f.clamp(min=1e-300).log()


@functools.cache
def exact_model(noise, correlated=True, power=1.0):
    """A model that knows a law, and the probability of each of ROWS.

    With noise that is not absorbing, a few steps are exact only where the columns are independent.
    """
    marginal = np.random.default_rng(5).dirichlet(np.ones(K), size=len(SIZES)) * KIND.support.numpy()
    diffusion = DiffusionConfig(noise, "linear", num_steps=None if noise == "absorbing" else 4, t_min=0.02)
    config = PipelineConfig(
        K,
        [len(SIZES)],
        diffusion,
        kind=KIND.as_dict(),
        marginal=(marginal / marginal.sum(1, keepdims=True)).tolist() if noise == "marginal" else None,
    )
    law = CORRELATED if correlated else INDEPENDENT
    network = Exact(law, config.build_diffusion(KIND.support).noise, power)
    return usd3.TableModel(usd3.Pipeline(config, network)), law[tuple(TOKENS.T)] / 10


def numbers(table):
    """The number of each row in ROWS."""
    colours = table["colour"].map({"red": 0, "green": 1, "blue": 2}).fillna(3)
    return ((colours * 3 + table["grade"] - 1) * 40 + table["weight"]).astype(int)


def has_law(table, probs):
    """Whether the rows of a table could be drawn from probabilities of ROWS, up to a factor."""
    counts = np.bincount(numbers(table), minlength=len(ROWS))
    return chi_square_p_value(counts, len(table) * probs / probs.sum()) > FALSE_ALARM


def as_known(row):
    """Which rows of ROWS are like a row in its known cells."""
    alike = [(ROWS[name] == value).to_numpy() for name, value in row.items() if pd.notna(value)]
    return np.logical_and.reduce([np.ones(len(ROWS), dtype=bool), *alike])


NOISES = [("absorbing", True), ("uniform", False), ("marginal", False)]
CONDITIONS = {
    "none": (None, lambda row: True),
    "one value": ({"colour": "red"}, lambda row: row.colour == "red"),
    "a missing cell": ({"colour": None, "grade": 2}, lambda row: row.colour is None and row.grade == 2),
    "several values": (
        {"colour": ["red", None], "grade": [1, 3]},
        lambda row: row.colour in ("red", None) and row.grade != 2,
    ),
    "a range": ({"grade": (2, None)}, lambda row: row.grade >= 2),
    "ranges that cut bins": (
        {"weight": [(5, 23), 38], "grade": (None, 2)},
        lambda row: (5 <= row.weight <= 23 or row.weight == 38) and row.grade <= 2,
    ),
    "a text": (
        "weight=12..14|30..,colour!=green,grade=1|2",
        lambda row: (12 <= row.weight <= 14 or row.weight >= 30) and row.colour != "green" and row.grade <= 2,
    ),
}
PLAIN = [row._replace(colour=None if pd.isna(row.colour) else row.colour) for row in ROWS.itertuples()]


@pytest.mark.parametrize(("noise", "correlated"), NOISES)
@pytest.mark.parametrize(("where", "meets"), CONDITIONS.values(), ids=CONDITIONS)
def test_rows_have_the_law_of_those_that_meet_the_condition(noise, correlated, where, meets):
    model, probs = exact_model(noise, correlated)
    drawn = model.sample(3_000, where=where, seed=1)
    assert len(drawn) == 3_000
    assert has_law(drawn, probs * np.array([meets(row) for row in PLAIN]))


HOLES = [{"grade": 2}, {"colour": "red", "weight": 17}, {"weight": 31}, {}]


@pytest.mark.parametrize(("noise", "correlated"), NOISES)
def test_missing_cells_are_drawn_together_given_the_known_ones(noise, correlated):
    """Rows with different holes in one table; "missing" is a category of the data, and no hole is filled with it."""
    model, probs = exact_model(noise, correlated)
    n, table = 1_500, pd.DataFrame([{"colour": None, "grade": None, "weight": None} | row for row in HOLES])
    filled = model.impute(pd.concat([table] * n, ignore_index=True), seed=2)
    for i, known in enumerate(HOLES):
        assert has_law(filled[i :: len(HOLES)], probs * as_known(known) * ROWS["colour"].notna())


@pytest.mark.parametrize("grades", [[1, 2, 3], [2, 3]])
def test_a_colder_model_draws_what_it_finds_likely(grades):
    """Half the temperature squares conditional probabilities; here one column is open, alone or under a condition."""
    model, probs = exact_model("absorbing")
    where = {"colour": "red", "weight": (30, 39), "grade": grades}
    drawn = model.sample(3_000, where=where, temperature=0.5, seed=3)
    meets = ((ROWS["colour"] == "red") & (ROWS["weight"] >= 30) & ROWS["grade"].isin(grades)).to_numpy()
    assert has_law(drawn, probs**2 * meets)
    assert not has_law(drawn, probs * meets)


# ---- predictions ----------------------------------------------------------------------------------------------------

LABELS = {  # of each row of ROWS, what a category of the column is called
    "colour": ROWS["colour"].astype(object),
    "grade": ROWS["grade"].astype(str),
    "weight": ROWS["weight"].map(lambda number: f"{number // 10 * 10}..{number // 10 * 10 + 9}"),
}
QUESTIONS = pd.DataFrame(
    {
        "colour": ["red", "blue", None, "green", None],
        "grade": [1, 2, 1, None, None],
        "weight": [7, 25, 3, 12, None],  # in the third row, a missing colour is the likeliest
    },
    index=list("abcde"),
)


def conditional(probs, row, column):
    """p(value | the other cells) by enumeration: {label: probability}. A missing colour is a value of the data."""
    alike = as_known(row.drop(column))
    if column != "colour" and pd.isna(row["colour"]):
        alike &= ROWS["colour"].isna().to_numpy()
    found = pd.Series(probs * alike).groupby(LABELS[column]).sum()
    return found / found.sum()


@pytest.mark.parametrize("noise", ["absorbing", "uniform", "marginal"])
@pytest.mark.parametrize("column", ["colour", "grade", "weight"])
def test_a_prediction_is_the_distribution_given_the_other_cells(noise, column):
    model, probs = exact_model(noise)
    for table in (QUESTIONS, QUESTIONS.drop(columns=column)):
        found = model.predict_proba(table, column)
        assert list(found.index) == list("abcde")
        for name, row in QUESTIONS.iterrows():
            expected = conditional(probs, row, column)
            np.testing.assert_allclose(found.loc[name, expected.index], expected, atol=1e-5)
            assert len(found.columns) == len(expected)


def likeliest(found, column):
    """The likeliest label of a category, and of numbers the one in the middle."""
    return found.idxmax() if column == "colour" else found.index[(found.cumsum() < 0.5 * found.sum()).sum()]


def label(value, column):
    return LABELS[column][(ROWS[column] == value).argmax()]


@pytest.mark.parametrize("column", ["colour", "grade", "weight"])
def test_the_predicted_value_is_the_mode_or_the_median(column):
    model, probs = exact_model("absorbing")
    found = model.predict(QUESTIONS, column)
    assert found.name == column
    assert list(found.index) == list("abcde")
    for name, row in QUESTIONS.iterrows():
        assert label(found[name], column) == likeliest(conditional(probs, row, column), column)


def test_the_mode_fills_each_hole_by_itself():
    """Given the known cells, and not the other holes; the seed does not matter."""
    model, probs = exact_model("absorbing")
    filled = model.impute(QUESTIONS, how="mode")
    pd.testing.assert_frame_equal(filled, model.impute(QUESTIONS, how="mode", seed=1))
    for name, row in QUESTIONS.iterrows():
        for column, value in row.items():
            each = pd.Series(probs * as_known(row)).groupby(LABELS[column]).sum()
            expected = likeliest(each, column) if pd.isna(value) else label(value, column)
            assert label(filled.loc[name, column], column) == expected


# ---- probabilities --------------------------------------------------------------------------------------------------

COMPLETE = ROWS[(ROWS["weight"] % 10 == 3) & (CORRELATED[tuple(TOKENS.T)] > 0.01)]  # one of each bin that is likely


def with_mean(values):
    """The values, and after them their mean."""
    return np.append(values, np.mean(values))


def log_probs(model, seed=0):
    """log_prob of each row of COMPLETE and of their mean, and the errors, from 100 copies of each row."""
    found = model.log_prob(pd.concat([COMPLETE] * 100), num_samples=8, repeats=8, seed=seed)
    variance = (found["error"] ** 2).groupby(level=0).mean() / 100
    found = found["log_prob"].groupby(level=0).mean()
    return with_mean(found), np.append(variance, variance.mean() / len(COMPLETE)) ** 0.5


@pytest.mark.parametrize(("noise", "correlated"), NOISES)
def test_log_prob_is_that_of_the_row_where_the_network_is_exact(noise, correlated):
    """The bound is tight then, but for t_min^2. One of 24 normal numbers is above 6 once in 10^7 times."""
    model, probs = exact_model(noise, correlated)
    found, error = log_probs(model)
    np.testing.assert_array_less(np.abs(found - with_mean(np.log(10 * probs[COMPLETE.index]))), 6 * error)
    assert error[-1] < 0.02


def test_log_prob_is_a_lower_bound_where_the_network_is_not_exact():
    """By enumeration of the orders in which cells are drawn: the mean of logs, which is below the log of the mean."""
    model, _ = exact_model("absorbing", power=4.0)
    tokens, of_orders = TOKENS[COMPLETE.index], []
    for order in itertools.permutations(range(len(SIZES))):
        known, log_p = torch.zeros_like(tokens, dtype=torch.bool), torch.zeros(len(tokens))
        for d in order:
            log_p = log_p + model.pipeline.predict(tokens, known)[torch.arange(len(tokens)), d, tokens[:, d]].log()
            known[:, d] = True
        of_orders.append(log_p.double().numpy())
    found, error = log_probs(model)
    np.testing.assert_array_less(np.abs(found - with_mean(np.mean(of_orders, 0))), 6 * error)
    assert found[-1] + error[-1] < np.log(np.mean(np.exp(of_orders), 0)).mean()  # the gap is 7 errors wide


def test_the_error_of_log_prob_is_the_spread_of_other_seeds():
    """Of 23 rows and 20 seeds, the ratio has a standard deviation of 0.05, measured with 12 other sets of seeds."""
    model, _ = exact_model("absorbing")
    found = [model.log_prob(COMPLETE, num_samples=4, seed=seed) for seed in range(20)]
    spread = np.stack([one["log_prob"] for one in found]).var(0, ddof=1).mean() ** 0.5
    said = np.stack([one["error"] ** 2 for one in found]).mean() ** 0.5
    assert 0.7 < said / spread < 1.4
    assert found[0].equals(model.log_prob(COMPLETE, num_samples=4, seed=0))


# ---- DataFrames -----------------------------------------------------------------------------------------------------

TINY = {
    "model": {"dim": 16, "depth": 1, "heads": 2, "mlp": 16, "time_dim": 8},
    "training": {"steps": 4, "batch_size": 4, "warmup": 0, "accelerator": "cpu"},
    "progress": False,
}
COLUMNS = {"zip": "category", "note": "ignore"}


def frame():
    """A column of each dtype, one of numbers that are names, and one that is left out."""
    mixed = mixed_frame()
    mixed.insert(3, "note", [f"row {i}" for i in range(len(mixed))])
    return mixed.assign(zip=10115 + np.arange(len(mixed)) % 7)


@pytest.fixture(scope="module")
def model():
    return usd3.TableModel().fit(frame(), columns=COLUMNS, **TINY)


def test_columns_have_the_types_that_the_user_says(model):
    types = {column.name: column.type for column in model.kind.schema}
    assert types["zip"] == "category"
    assert types["whole"] == "ordered"
    assert "note" not in types
    with pytest.raises(ValueError, match=r"where = zip=1\.\.2: expected a value, as zip has categories and no ranges"):
        model.sample(where="zip=1..2")


def test_drawn_rows_have_the_columns_and_dtypes_of_the_data(model):
    data = frame().drop(columns="note")
    drawn = model.sample(7)
    assert len(drawn) == 7
    assert dict(drawn.dtypes) == dict(data.dtypes)
    assert list(drawn.columns) == list(data.columns)
    assert drawn.equals(model.sample(7, seed=0))
    assert not drawn.equals(model.sample(7, seed=1))


def with_holes():
    """Six rows: the first two without any value, the third with all, the others with every second column."""
    table = frame().iloc[20:26].set_axis(list("abcdef"), axis=0)
    keep = {name: np.array([False, False, True, *[i % 2 == 0] * 3]) for i, name in enumerate(table)}
    return pd.DataFrame({name: table[name].where(keep[name] | (name == "note")) for name in table})


@pytest.mark.parametrize("how", ["draw", "mode"])
def test_filled_tables_keep_their_cells_and_their_index_and_have_the_dtypes_of_the_data(model, how):
    table = with_holes()
    before = table.copy()
    filled = model.impute(table, how=how)
    pd.testing.assert_frame_equal(table, before)
    assert list(filled.index) == list("abcdef")
    assert dict(filled.dtypes) == dict(frame().dtypes)
    assert list(filled.columns) == list(frame().columns)  # also the one that the model left out
    assert filled.notna().all(axis=None)
    for name in table:
        known = table[name].notna()
        assert filled.loc[known, name].tolist() == table.loc[known, name].tolist()


def test_columns_that_a_table_lacks_are_added_in_their_place(model):
    filled = model.impute(pd.DataFrame({"text": ["red", "blue"], "whole": [3, 4]}, index=[7, 5]))
    data = frame().drop(columns="note")
    assert dict(filled.dtypes) == dict(data.dtypes)
    assert list(filled.columns) == list(data.columns)
    assert list(filled.index) == [7, 5]
    assert filled["text"].tolist() == ["red", "blue"]
    assert filled["whole"].tolist() == [3, 4]
    assert filled.notna().all(axis=None)


def test_several_filled_tables_differ_in_the_holes_alone(model):
    table = with_holes()
    first, second = model.impute(table, n=2)
    assert not first.equals(second)
    for name in table:
        known = table[name].notna()
        assert first.loc[known, name].equals(second.loc[known, name])
    assert first.equals(model.impute(table))
    assert len(model.impute(table, n=1)) == 1


def test_predictions_have_the_labels_and_dtypes_of_their_column(model):
    table = frame().head(4)
    assert set(model.predict_proba(table, "text").columns) == {"red", "green", "blue"}
    assert set(model.predict_proba(table, "maybe").columns) == {"True", "False"}
    for name in ("nullable", "time", "level", "flag", "zip"):
        assert model.predict(table, name).dtype == frame()[name].dtype
        np.testing.assert_allclose(model.predict_proba(table, name).sum(axis=1), 1, atol=1e-6)


def test_the_cells_of_the_predicted_column_are_not_read(model):
    table = frame().head(4)
    found = model.predict_proba(table, "text")
    assert found.equals(model.predict_proba(table.assign(text="never seen"), "text"))


def test_columns_may_have_numbers_as_names(tmp_path):
    """Also where the table of a question has the numbers as texts."""
    data = read_frame(pd.DataFrame({0: range(90), 1: ["a", "b"] * 45}), columns={"0": "number"})
    model = usd3.TableModel(pipeline_for(tiny_recipe(tmp_path), data))
    for zero, one in ((0, 1), ("0", "1")):
        table = pd.DataFrame({zero: [15, 16, 17]})
        assert model.predict(table, one).isin(["a", "b"]).all()
        assert set(model.predict_proba(table, one).columns) == {"a", "b"}
        filled = model.impute(table)
        assert list(filled.columns) == [0, 1]
        assert filled[0].tolist() == [15, 16, 17]


# ---- folders --------------------------------------------------------------------------------------------------------


def test_a_saved_model_draws_the_same_rows(model, tmp_path):
    model.save(tmp_path / "people")
    again = usd3.TableModel.load(tmp_path / "people", device="cpu")
    assert again.kind == model.kind
    for call in (
        lambda one: one.sample(5, seed=3, where={"flag": True}),
        lambda one: one.impute(with_holes(), seed=3),
        lambda one: one.predict_proba(frame().head(3), "text"),
        lambda one: one.log_prob(frame().head(3), num_samples=2, repeats=2),
    ):
        pd.testing.assert_frame_equal(call(again), call(model))


def test_a_folder_with_files_is_not_written_to(model, tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ValueError, match=r"folder = .*: expected a folder that is new or empty"):
        model.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_model_of_another_kind_is_refused(tmp_path):
    recipe = tiny_recipe(tmp_path)
    pipeline_for(recipe, recipe.data.load()).save_pretrained(tmp_path / "array")
    with pytest.raises(TypeError, match="pipeline is a Array: expected a model of a table"):
        usd3.TableModel.load(tmp_path / "array")
    with pytest.raises(TypeError, match="pipeline is a DataFrame: expected a model of a table; fit trains one"):
        usd3.TableModel(ROWS)


# ---- messages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model.sample(),
        lambda model: model.impute(ROWS),
        lambda model: model.predict(ROWS, "grade"),
        lambda model: model.predict_proba(ROWS, "grade"),
        lambda model: model.log_prob(ROWS),
        lambda model: model.save("nowhere"),
    ],
)
def test_a_model_says_that_it_must_be_trained_first(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError, match=r"the model is not trained yet: call fit, or TableModel\.load"):
        call(usd3.TableModel())
    assert list(tmp_path.iterdir()) == []


def test_a_model_says_what_it_is(model):
    assert repr(usd3.TableModel()) == "TableModel()"
    assert repr(model).startswith("TableModel(Pipeline(usd3, rows of 15 columns, ")


@pytest.mark.parametrize(
    ("data", "columns", "message"),
    [
        (ROWS, {"grade": "categry"}, r"columns\.grade = categry: expected one of .* \(is category meant\?\)"),
        (ROWS, {"grad": "category"}, r"columns = grad: expected one of colour, .* \(is grade meant\?\)"),
        ([[1, 2]], None, "data is a list: expected a DataFrame of pandas"),
        ("nothing.csv", None, "nothing.csv: no such file"),
    ],
    ids=str,
)
def test_what_cannot_be_fitted_is_refused(data, columns, message):
    with pytest.raises((TypeError, ValueError, FileNotFoundError), match=message):
        usd3.TableModel().fit(data, columns=columns, **TINY)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.impute(ROWS, how="mean"), "how = mean: expected draw or mode"),
        (lambda m: m.impute(ROWS, n=0), "n = 0: expected an integer >= 1"),
        (lambda m: m.impute(ROWS, how="mode", n=2), "n = 2: expected None for the mode"),
        (lambda m: m.impute([1]), "table is a list: expected a DataFrame of pandas"),
        (lambda m: m.impute(ROWS[:0]), "table = no rows: expected at least one row"),
        (lambda m: m.impute(ROWS.assign(note=1)), "column of table = note: expected one of colour, grade, weight"),
        (lambda m: m.predict(ROWS, "grad"), r"column = grad: expected one of .* \(is grade meant\?\)"),
        (lambda m: m.predict_proba(ROWS, "grad"), r"column = grad: expected one of .* \(is grade meant\?\)"),
        (lambda m: m.predict_proba([1], "grade"), "table is a list: expected a DataFrame of pandas"),
        (lambda m: m.predict(ROWS.assign(colour="pink"), "grade"), "colour in row 1 of table = pink: expected one of"),
        (lambda m: m.sample(where={"colour": "pink"}), "colour in where = pink: expected one of blue, green, red"),
        (lambda m: m.sample(0), "num = 0: expected an integer >= 1"),
        (lambda m: m.log_prob(QUESTIONS), "table = missing cells in grade, weight: expected complete rows; impute"),
        (lambda m: m.log_prob(ROWS[["grade"]]), "table = missing cells in colour, weight: expected complete rows"),
        (lambda m: m.log_prob(ROWS, repeats=1), "repeats = 1: expected an integer >= 2"),
    ],
)
def test_what_cannot_be_answered_is_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(exact_model("absorbing")[0])
