"""The results of a study: one dictionary with the numbers, the commands, the machine and the versions."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from usd3.bench.cost_tables import cost_heading
from usd3.cli.sweep import heading_of, row_of
from usd3.evaluation.comparison import Row, combined, heading, read_references, read_row, trainings_note
from usd3.evaluation.differences import Intervals, paired
from usd3.metrics.summary import Summary, summarise
from usd3_paper.processes import typed
from usd3_paper.state import measured_on
from usd3_paper.study import Settings, Study

__all__ = ["collect"]

Cells = dict[str, dict[str, float | None]]


def collect(
    study: Study, folder: Path, settings: Settings, commands: Sequence[Sequence[str]], replaced: Mapping[str, str]
) -> dict[str, Any] | None:
    """The results of a study so far; None if there are none yet.

    Args:
        study: says which files and folders have results, and which command wrote them: "compare", "evaluate",
            "sweep", "cost", or "file" for a file that has the form of these results already.
        folder: of the study.
        settings: the options of the run, with the steps and minutes of each training.
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
        "budget_minutes": None if study.steps else settings.budget or study.budget,
        "budget_steps": settings.steps or study.steps,
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
    """Of `usd3 compare`; a training that failed has no file."""
    about = _read(folder / "comparison.json")
    trainings = about.get("trainings") or {name: [name] for name in about["methods"]}  # older ones do not group them
    parts: dict[str, list[Any]] = {}
    for method, names in trainings.items():
        files = [folder / name / "comparison.json" for name in names]
        if found := [_read(file) for file in files if file.is_file()]:
            parts[method] = found
    if not parts:
        return {}
    rows = [combined([read_row(method, part) for part in found]) for method, found in parts.items()]
    repeats = trainings_note({method: len(found) for method, found in parts.items()})
    file = folder / "references.json"
    references = read_references(_read(file)) if file.is_file() else []
    return {
        "about": f"{heading(next(iter(parts.values()))[0])}{repeats}",
        "recipes": {method: about["methods"][method] for method in trainings},
        "rows": {row.label: _cells(row) | _distances(parts[row.label]) for row in rows},
        "references": {row.label: _cells(row) for row in references},
        **_intervals(rows),
    }


def _intervals(rows: Sequence[Row]) -> dict[str, Any]:
    """What the paired intervals show, for the marks of the tables; nothing if only means are known."""
    intervals = Intervals.of(rows, paired(rows))
    return {"intervals": asdict(intervals)} if intervals.worse else {}


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
        **_intervals(rows),
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


def _distances(trainings: Sequence[Mapping[str, Any]]) -> Cells:
    """The two distances in each train-to-test ratio: to the held-out object, and to the training objects.

    Their standard deviations are over the trainings; of a single training over its runs.
    """
    cells = {}
    for name in trainings[0].get("parroting", {}):
        parts = [training["parroting"][name] for training in trainings if name in training.get("parroting", {})]
        for side in ("to_test", "to_train"):
            means = [_number(part[side]) for part in parts]
            summary = summarise(np.array(means)) if parts[1:] else Summary(means[0], _number(parts[0][f"{side}_std"]))
            cell = {part: _finite(value) for part, value in summary._asdict().items()}
            cells[f"{name.lower().replace(' ', '_')}_{side}"] = cell
    return cells


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
