"""Results of evaluations, without any evaluation."""

from typing import Any

from usd3._internal.graphs import SETTLED
from usd3.evaluation.comparison import METRICS, Row
from usd3.metrics.summary import Summary

__all__ = ["evaluation_results", "method_rows"]


def method_rows(*means: float, metric: str = "1g_hellinger", std: float = 0.01) -> list[Row]:
    """Rows m0, m1, ... of a table with these means of a metric."""
    return [Row(f"m{i}", {metric: Summary(mean, std)}) for i, mean in enumerate(means)]


def evaluation_results() -> dict[str, Any]:
    """What `usd3 evaluate` writes: a model and one reference row."""
    cells = {key: {"mean": 0.5, "std": 0.25} for key in METRICS if key != "bits_per_element"}
    return {
        "settings": {"runs": 4, "steps": 100},
        "objects": 5,
        "trained": {"parameters": 1234, "steps": 600 + SETTLED, "minutes": 2.0},
        "sampling_seconds": 10.0,
        "rows": {"model": cells, "Markov chain": cells | {"edit_diversity": {"mean": None, "std": None}}},
        "bits_per_element": {"model (upper bound)": None, "Markov chain": 2.5},
    }
