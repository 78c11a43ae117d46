"""Shape and Trend against values computed by hand, and against those of sdmetrics 0.24.0."""

import math

import numpy as np
import pandas as pd
import pytest

from usd3.metrics import pair_trends, shapes
from usd3.metrics.tables import (
    contingency_similarity,
    correlation_similarity,
    kolmogorov_smirnov_complement,
    pair_similarities,
    total_variation_complement,
)

NAN = math.nan


def test_the_distance_of_distribution_functions_by_hand():
    """F jumps to 1/4, 1/2, 3/4, 1 at 1..4; G to 1/2 at 2 and to 1 at 5: the largest difference is 1/2, at 4."""
    real, generated = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 5.0])
    assert kolmogorov_smirnov_complement(real, generated) == 0.5
    assert kolmogorov_smirnov_complement(np.append(real, NAN), np.append(generated, [NAN, NAN])) == 0.5
    assert kolmogorov_smirnov_complement(real, real[::-1]) == 1.0
    assert kolmogorov_smirnov_complement(real, real + 10) == 0.0
    assert math.isnan(kolmogorov_smirnov_complement(real, np.array([NAN])))


def test_the_distance_of_frequencies_by_hand():
    """(1/2, 1/4, 1/4) against (1/2, 0, 0, 1/2): half of 0 + 1/4 + 1/4 + 1/2 is 1/2."""
    real, generated = np.array([0, 0, 1, 2]), np.array([0, 3])
    assert contingency_similarity(real, generated) == 0.5
    assert total_variation_complement(np.append(real, -1), generated) == 0.5  # missing cells do not count
    assert contingency_similarity(np.append(real, -1), generated) == pytest.approx(0.4)
    assert math.isnan(total_variation_complement(np.array([-1]), generated))


def test_the_difference_of_correlations_by_hand():
    x = np.array([0.0, 1.0, 2.0])
    assert correlation_similarity((x, x), (x, -x)) == pytest.approx(0.0)
    assert correlation_similarity((x, 3 * x + 1), (x, x)) == pytest.approx(1.0)
    # (0, 1, 2) and (0, 1, 0) are not correlated
    assert correlation_similarity((x, x), (x, np.array([0.0, 1.0, 0.0]))) == pytest.approx(0.5)
    holes = np.array([0.0, 1.0, 2.0, NAN]), np.array([0.0, 1.0, 2.0, -50.0])
    assert correlation_similarity(holes, (x, x)) == pytest.approx(1.0)
    assert math.isnan(correlation_similarity((x, np.ones(3)), (x, x)))


@pytest.fixture
def tables():
    """A real and a generated table of numbers with holes, dates and categories."""
    rng = np.random.default_rng(0)
    made = []
    for rows, shift in ((60, 0.0), (50, 0.4)):
        x = rng.normal(shift, 1, size=rows).round(2)
        made.append(
            pd.DataFrame(
                {
                    "x": np.where(rng.random(rows) < 0.1, np.nan, x),
                    "y": (x + rng.normal(size=rows)).round(1),
                    "day": pd.Timestamp("2020-01-01") + pd.to_timedelta((x * 20).round(), unit="D"),
                    "letter": np.where(x > 0, "a", rng.choice(["b", "c"], size=rows)),
                    "word": pd.Series(rng.choice(["u", "v", None], size=rows), dtype="object"),
                }
            )
        )
    return made


# ColumnShapes and ColumnPairTrends of sdmetrics 0.24.0 for these two tables
SHAPES = {"x": 0.86918239, "y": 0.893333333, "day": 0.91, "letter": 0.94, "word": 0.868421053}
TRENDS = {
    ("x", "y"): 0.97298687,
    ("x", "day"): 0.999979102,
    ("x", "letter"): 0.653333333,
    ("x", "word"): 0.64,
    ("y", "day"): 0.977326717,
    ("y", "letter"): 0.683333333,
    ("y", "word"): 0.623333333,
    ("day", "letter"): 0.626666667,
    ("day", "word"): 0.646666667,
    ("letter", "word"): 0.83,
}


def test_shapes_are_those_of_sdmetrics(tables):
    found = shapes(*tables, numbers={"x", "y", "day"})
    assert found == pytest.approx(SHAPES, abs=1e-6)


def test_trends_are_those_of_sdmetrics(tables):
    found = pair_trends(*tables, numbers={"x", "y", "day"})
    assert found == pytest.approx(TRENDS, abs=1e-6)


def test_a_table_is_like_itself_and_permuted_columns_have_its_shapes_alone(tables):
    real = tables[0]
    assert set(shapes(real, real, ["x", "y", "day"]).values()) == {1.0}
    assert set(pair_trends(real, real, ["x", "y", "day"]).values()) == {1.0}
    rng = np.random.default_rng(1)
    permuted = pd.DataFrame({name: real[name].to_numpy()[rng.permutation(60)] for name in real})
    assert set(shapes(real, permuted, ["x", "y", "day"]).values()) == {1.0}
    trends = pair_trends(real, permuted, ["x", "y", "day"])
    assert min(trends.values()) < 0.8


def test_tables_of_other_columns_are_refused(tables):
    with pytest.raises(ValueError, match="columns of generated = x, y: expected those of real"):
        shapes(tables[0], tables[1][["x", "y"]], ["x"])
    with pytest.raises(ValueError, match="generated = no rows: expected at least one row"):
        pair_trends(tables[0], tables[1].iloc[:0], ["x"])


def test_one_large_number_moves_the_bins_of_trend_and_not_the_common_ones():
    """By hand: 1 of 100 pairs differs, so the similarity in common bins is 0.99; Trend finds the others moved, too."""
    x = np.arange(100) / 100
    real = pd.DataFrame({"x": x, "half": np.where(x < 0.5, "low", "high")})
    generated = real.assign(x=np.append(5.0, x[1:]))
    assert pair_similarities(real, generated, ["x"])["x", "half"] == pytest.approx(0.99)
    assert pair_trends(real, generated, ["x"])["x", "half"] < 0.3


def test_similarities_compare_missing_cells_and_categories(tables):
    real, generated = tables
    numbers = ["x", "y", "day"]
    assert set(pair_similarities(real, real, numbers).values()) == {1.0}
    trends, found = pair_trends(real, generated, numbers), pair_similarities(real, generated, numbers)
    assert found["x", "y"] == trends["x", "y"]
    assert found["letter", "word"] == trends["letter", "word"]
    holes = real.assign(x=real["x"].where(real["x"] < 1))
    assert pair_similarities(real, holes, numbers)["x", "letter"] == pytest.approx(1 - (real["x"] >= 1).mean())
    empty = real.assign(x=np.nan)
    assert 0 <= pair_similarities(empty, real, numbers)["x", "letter"] < 0.2
