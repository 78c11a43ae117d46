"""The results of `usd3 compare`: reference rows, tables and pictures."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from usd3._internal.files import write_whole
from usd3.cli.compare_jobs import has_settings, results_file, samples_file
from usd3.cli.entries import Entry
from usd3.evaluation.comparison import Row, combined, heading, read_references, read_row, trainings_note
from usd3.evaluation.differences import Intervals, Pairs, differences_csv, paired
from usd3.evaluation.evaluate import evaluate_references
from usd3.evaluation.free import evaluate_real_sets, require_free_settings
from usd3.evaluation.held_out import HeldOut
from usd3.evaluation.plots import Look, metrics_plot, training_plot
from usd3.evaluation.ratios import shared_prefixes
from usd3.evaluation.results import Evaluation
from usd3.evaluation.settings import EvaluationSettings
from usd3.evaluation.tables import csv_table, latex_table, text_table
from usd3.kinds.base import Kind
from usd3.kinds.dataset import Dataset
from usd3.kinds.numpy_files import read_arrays
from usd3.kinds.options import DataConfig
from usd3.kinds.registry import require_own_settings
from usd3.pipeline.config import PipelineConfig
from usd3.training.logs import logs_as_csv

__all__ = ["kept_references", "reference_measurement", "write_results"]

_MOST_SAMPLES = 10  # of each method in the picture


# ---- reference rows -----------------------------------------------------------------------------------------------


def reference_measurement(
    data: DataConfig, dataset: Dataset, settings: EvaluationSettings, device: str | None
) -> Callable[[], Evaluation]:
    """A function that measures the reference rows. Settings that cannot be measured raise an error now."""
    require_own_settings(dataset.kind, settings)
    if dataset.kind.is_judged:
        require_free_settings(settings)
        judge = dataset.kind.judge(dataset, settings, device, "evaluation.")
        return lambda: evaluate_real_sets(dataset, judge, settings)
    held_out = HeldOut.after(int(settings.prefix or 0), dataset, settings.limit)
    shared = shared_prefixes(data, dataset, settings, held_out.prefix, option="evaluation.ratios")
    return lambda: evaluate_references(dataset, held_out, settings, shared)


def kept_references(
    data: DataConfig, settings: EvaluationSettings, out: Path, measurement: Callable[[], Evaluation]
) -> dict[str, Any]:
    """The results of the reference rows, from an earlier command or measured now, once for all methods."""
    file, about = out / "references.json", {"data": asdict(data)}
    if file.is_file():
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if has_settings(kept, settings) and asdict(DataConfig(**kept["data"])) == about["data"]:
            return kept
    results = about | measurement().as_dict()
    write_whole(file, json.dumps(results, indent=2, allow_nan=False) + "\n")
    return results


# ---- tables and pictures ------------------------------------------------------------------------------------------


def write_results(entries: Sequence[Entry], references: dict[str, Any], out: Path, kind: Kind) -> None:
    """Write the tables and pictures of the measured methods and print the table.

    Args:
        entries: the measured methods.
        references: the results of the reference rows; {}: there are none.
        out: the folder of the comparison.
        kind: the kind of the data.
    """
    results = {entry.label: json.loads(results_file(entry, out).read_text(encoding="utf-8")) for entry in entries}
    trainings: dict[str, list[Row]] = {}
    for entry in entries:
        trainings.setdefault(entry.method, []).append(read_row(entry.method, results[entry.label]))
    rows = [combined(rows) for rows in trainings.values()]
    reference_rows = read_references(references) if references else []
    first = next(iter(results.values()))
    pairs = paired(rows)
    intervals = Intervals.of(rows, pairs)
    repeats = trainings_note({label: len(rows) for label, rows in trainings.items()})
    text = f"{heading(first)}{repeats}\n\n{text_table(rows, reference_rows, intervals)}"
    write_whole(out / "table.txt", text)
    write_whole(out / "table.csv", csv_table(rows, reference_rows, intervals))
    write_whole(out / "table.tex", latex_table(rows, reference_rows, intervals))
    files = ["table.txt", "table.csv", "table.tex", *_differences(pairs, rows, out), "metrics.png"]
    looks = {entry.label: _look(entry) for entry in entries}
    metrics_plot(rows, out / "metrics.png", reference_rows, looks)
    if "compared_with" in first:
        files += _picture(entries, kind, first["compared_with"], out)
    runs = {entry.label: entry.folder(out) for entry in entries}
    if training_plot(runs, out / "training.png", looks):
        write_whole(out / "training.csv", logs_as_csv(runs))
        files += ["training.png", "training.csv"]
    else:
        print("no training.png: no log has held-out bits; see training.validate_every", file=sys.stderr)
    print(f"{text}\n{', '.join(files)} in {out}")


def _look(entry: Entry) -> Look:
    """Methods whose recipes differ in the kind of time alone are a family."""
    family = "+".join(part for part in entry.source.split("+") if part not in ("discrete", "continuous"))
    config = entry.recipe or PipelineConfig.read(entry.folder(Path()))
    return Look(family, config.diffusion.num_steps is not None)


def _differences(pairs: Pairs, rows: Sequence[Row], out: Path) -> list[str]:
    """Write differences.csv; its name, or nothing without pairs that can be compared object by object."""
    file = out / "differences.csv"
    file.unlink(missing_ok=True)  # that of other methods
    if pairs:
        write_whole(file, differences_csv(pairs, rows))
    return [file.name] if pairs else []


def _picture(entries: Sequence[Entry], kind: Kind, compared_with: Mapping[str, Any], out: Path) -> list[str]:
    """Draw samples.png, a row of samples for each method that has some; the names of the files written."""
    files = {entry.label: samples_file(entry, out) for entry in entries if entry.repeats is None}
    samples = {label: read_arrays(file)["tokens"][0] for label, file in files.items() if file.is_file()}
    tokens = {label: torch.as_tensor(rows[:_MOST_SAMPLES].astype(np.int64)) for label, rows in samples.items()}
    is_drawn = bool(tokens) and kind.picture_methods(tokens, compared_with, out / "samples.png")
    return ["samples.png"] if is_drawn else []
