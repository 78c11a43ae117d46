"""The results of a study: one dictionary with the numbers, the commands, the machine and the versions."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from usd3.bench.cost_tables import cost_heading
from usd3.cli.sweep import heading_of, row_of
from usd3.evaluation.comparison import Row, heading, read_references, read_row
from usd3_paper.study import Study, measured_on, typed

__all__ = ["collect"]

Cells = dict[str, dict[str, float | None]]


def collect(
    study: Study, folder: Path, budget: float | None, commands: Sequence[Sequence[str]], replaced: Mapping[str, str]
) -> dict[str, Any] | None:
    """The results of a study so far; None if there are none yet.

    Args:
        study: says which files and folders have results, and which command wrote them: "compare", "evaluate",
            "sweep", "cost", or "file" for a file that has the form of these results already.
        folder: of the study.
        budget: minutes of each training; None: as the study says.
        commands: what was run.
        replaced: the names to write in place of folders of this machine.
    """
    results: dict[str, Any] = {"rows": {}, "references": {}}
    for place, command in study.results.items():
        part = _READERS[command](folder / place) if (folder / place).exists() else {}
        results["rows"] |= part.pop("rows", {})
        results["references"] |= part.pop("references", {})
        results |= part
    if not results["rows"]:
        return None
    return {
        "study": study.name,
        "budget_minutes": study.budget if budget is None else budget,
        "commands": [typed(command) for command in _replaced(commands, replaced)],
        **measured_on(folder),
        **_replaced(results, replaced),
    }


def _replaced(value: Any, replaced: Mapping[str, str]) -> Any:
    """The same value with other names for folders, in every text."""
    if isinstance(value, Mapping):
        return {key: _replaced(part, replaced) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(part, replaced) for part in value]
    if isinstance(value, str):
        for folder, name in replaced.items():
            value = value.replace(folder, name)
    return value


def _compare(folder: Path) -> dict[str, Any]:
    """Of `usd3 compare`; a method that failed has no file."""
    recipes = _read(folder / "comparison.json")["methods"]
    files = {name: folder / name / "comparison.json" for name in recipes}
    results = {name: _read(file) for name, file in files.items() if file.is_file()}
    if not results:
        return {}
    file = folder / "references.json"
    references = read_references(_read(file)) if file.is_file() else []
    return {
        "about": heading(next(iter(results.values()))),
        "recipes": recipes,
        "rows": {name: _cells(read_row(name, part)) | _distances(part) for name, part in results.items()},
        "references": {row.label: _cells(row) for row in references},
    }


def _evaluate(file: Path) -> dict[str, Any]:
    """Of `usd3 evaluate`: one row, "model"."""
    results = _read(file)
    return {
        "about": heading(results),
        "rows": {"model": _cells(read_row("model", results))},
        "references": {row.label: _cells(row) for row in read_references(results)},
    }


def _sweep(folder: Path) -> dict[str, Any]:
    """Of `usd3 evaluate --sweep`: a row for each corrector."""
    results = _read(folder / "sweep.json")
    rows = [row_of(part) for part in results]
    return {
        "about": heading_of(results),
        "rows": {row.label: _cells(row) for row in rows},
        "references": {row.label: _cells(row) for row in read_references(results[0])},
    }


def _cost(folder: Path) -> dict[str, Any]:
    """Of `usd3 cost`."""
    results = _read(folder / "cost.json")
    return {"about": "; ".join(cost_heading(results)), "recipes": results["recipes"], "rows": results["rows"]}


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


_READERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "compare": _compare,
    "evaluate": _evaluate,
    "sweep": _sweep,
    "cost": _cost,
    "file": _read,
}


def _cells(row: Row) -> Cells:
    """Mean and standard deviation of metrics and costs, without unknown values."""
    metrics = {key: dict(summary._asdict()) for key, summary in row.metrics.items() if math.isfinite(summary.mean)}
    costs = {key: {"mean": value, "std": 0.0} for key, value in row.costs.items() if math.isfinite(value)}
    return {key: {part: _finite(v) for part, v in cell.items()} for key, cell in (metrics | costs).items()}


def _distances(results: Mapping[str, Any]) -> Cells:
    """The two distances in each train-to-test ratio: to the held-out object, and to the training objects."""
    return {
        f"{name.lower().replace(' ', '_')}_{side}": {"mean": _finite(part[side]), "std": _finite(part[f"{side}_std"])}
        for name, part in results.get("parroting", {}).items()
        for side in ("to_test", "to_train")
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
