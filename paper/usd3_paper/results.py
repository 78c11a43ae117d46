"""What a study gave: one file with the numbers, the commands, the machine and the versions."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from usd3.bench.cost_tables import cost_heading
from usd3.cli.sample import CorrectorOptions
from usd3.cli.sweep import label
from usd3.evaluation.comparison import Row, heading, read_references, read_row
from usd3_paper.study import Study, measured_on, shown

__all__ = ["collect"]

Cells = dict[str, dict[str, float | None]]


def collect(
    study: Study, folder: Path, budget: float | None, commands: Sequence[Sequence[str]], replaced: Mapping[str, str]
) -> dict[str, Any] | None:
    """The results of a study in its folder, as far as there are any; None where there are none yet.

    The study says by the name of a file or folder how it is read: "compare", "evaluate", "sweep", "cost" or "file". The
    keys of `replaced`, folders of this machine, are written as its values.
    """
    found: dict[str, Any] = {"rows": {}, "references": {}}
    for place, kind in study.results.items():
        part = _READERS[kind](folder / place) if (folder / place).exists() else {}
        found["rows"] |= part.pop("rows", {})
        found["references"] |= part.pop("references", {})
        found |= part
    if not found["rows"]:
        return None
    return {
        "study": study.name,
        "budget_minutes": study.budget if budget is None else budget,
        "commands": [shown(command) for command in _replaced(commands, replaced)],
        **measured_on(folder),
        **_replaced(found, replaced),
    }


def _replaced(value: Any, replaced: Mapping[str, str]) -> Any:
    """With other names for folders, in every text."""
    if isinstance(value, Mapping):
        return {key: _replaced(part, replaced) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(part, replaced) for part in value]
    if isinstance(value, str):
        for folder, name in replaced.items():
            value = value.replace(folder, name)
    return value


def _compare(folder: Path) -> dict[str, Any]:
    """Of `usd3 compare`."""
    labels = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))["methods"]
    files = {name: folder / name / "comparison.json" for name in labels}
    there = {name: file for name, file in files.items() if file.is_file()}  # or it failed
    found = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in there.items()}
    if not found:
        return {}
    scale = folder / "references.json"
    references = read_references(json.loads(scale.read_text(encoding="utf-8"))) if scale.is_file() else []
    return {
        "about": heading(next(iter(found.values()))),
        "recipes": labels,
        "rows": {name: _cells(read_row(name, results)) | _distances(results) for name, results in found.items()},
        "references": {row.label: _cells(row) for row in references},
    }


def _evaluate(file: Path) -> dict[str, Any]:
    """Of `usd3 evaluate`: one row, "model"."""
    found = json.loads(file.read_text(encoding="utf-8"))
    references = read_references(found)
    return {
        "about": heading(found),
        "rows": {"model": _cells(read_row("model", found))},
        "references": {row.label: _cells(row) for row in references},
    }


def _sweep(folder: Path) -> dict[str, Any]:
    """Of `usd3 evaluate --sweep`."""
    results = json.loads((folder / "sweep.json").read_text(encoding="utf-8"))
    rows = [read_row(label(CorrectorOptions(**found["corrector"])), found) for found in results]
    return {
        "about": heading(results[0]),
        "rows": {row.label: _cells(row) for row in rows},
        "references": {row.label: _cells(row) for row in read_references(results[0])},
    }


def _cost(folder: Path) -> dict[str, Any]:
    """Of `usd3 cost`."""
    found = json.loads((folder / "cost.json").read_text(encoding="utf-8"))
    return {"about": "; ".join(cost_heading(found)), "recipes": found["recipes"], "rows": found["rows"]}


def _file(file: Path) -> dict[str, Any]:
    """A file that has the rows already."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _cells(row: Row) -> Cells:
    """Metrics and costs alike, as mean and standard deviation; nothing that is not known."""
    known = {key: dict(summary._asdict()) for key, summary in row.metrics.items() if math.isfinite(summary.mean)}
    costs = {key: {"mean": value, "std": 0.0} for key, value in row.costs.items() if math.isfinite(value)}
    return {key: {part: _finite(v) for part, v in cell.items()} for key, cell in (known | costs).items()}


def _distances(results: Mapping[str, Any]) -> Cells:
    """What the train-to-test ratios are made of: the distances to the held-out object and to the training objects."""
    return {
        f"{name.lower().replace(' ', '_')}_{side}": {"mean": _finite(found[side]), "std": _finite(found[f"{side}_std"])}
        for name, found in results.get("parroting", {}).items()
        for side in ("to_test", "to_train")
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


_READERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "compare": _compare,
    "evaluate": _evaluate,
    "sweep": _sweep,
    "cost": _cost,
    "file": _file,
}
