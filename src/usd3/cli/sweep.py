"""usd3 evaluate --sweep: one model with several correctors, in one table."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from usd3._internal.checks import require
from usd3._internal.files import known_folder, new_folder, write_whole
from usd3._internal.processes import is_main
from usd3.cli.evaluate import EvaluateOptions, Subject, as_json
from usd3.cli.sample import CorrectorOptions
from usd3.evaluation.comparison import heading, read_references, read_row
from usd3.evaluation.differences import Intervals, differences_csv, paired
from usd3.evaluation.tables import csv_table, latex_table, text_table
from usd3.pipeline.packaged import results_folder
from usd3.pipeline.pipeline import Pipeline

__all__ = ["correctors", "label", "sweep"]

_RESULTS = "sweep.json"
_PAPER = ["0", *(f"{moves},{last}" for last in (10, 20) for moves in ("2,0.001", "2,0.005", "5,0.001", "5,0.002"))]


def correctors(words: str) -> list[CorrectorOptions]:
    """The correctors that the words of --sweep name, in their order."""
    chosen = [_corrector(word) for word in (_PAPER if words.strip() == "paper" else words.split())]
    require(len(chosen) > 0, "sweep", words, 'words NUM_STEPS,STEP_SIZE,LAST with spaces between them, 0 or "paper"')
    twice = next((label(corrector) for corrector in chosen if chosen.count(corrector) > 1), None)
    require(twice is None, "sweep", twice, "correctors that differ")
    return chosen


def _corrector(word: str) -> CorrectorOptions:
    if word == "0":
        return CorrectorOptions(0, last=None)
    try:
        moves, size, last = word.split(",")
        corrector = CorrectorOptions(
            int(moves), "auto" if size == "auto" else float(size), None if last == "all" else int(last)
        )
        corrector.build()
        require(corrector.num_steps > 0, "num_steps", corrector.num_steps, "a number > 0, or the word 0 alone")
    except ValueError as error:
        expected = "NUM_STEPS,STEP_SIZE,LAST, as in 2,0.001,10 (STEP_SIZE may be auto, LAST all), or 0"
        raise ValueError(f"sweep = {word}: expected {expected} ({error})") from None
    return corrector


def label(corrector: CorrectorOptions) -> str:
    """The name of a corrector in the tables."""
    if not corrector.num_steps:
        return "no corrector"
    last = "all steps" if corrector.last is None else f"last {corrector.last}"
    return f"N = {corrector.num_steps}, Δn = {corrector.step_size}, {last}"


def sweep(options: EvaluateOptions) -> None:
    """Measure the model with each corrector, all with the same seed, and write one table.

    Correctors that an earlier command measured in the same folder are not measured again.
    """
    chosen = correctors(str(options.sweep))
    for name, value in (("samples", options.samples), ("save_samples", options.save_samples)):
        require(value is None, name, value, "null with --sweep")
    require(not options.corrector.num_steps, "corrector", options.corrector, "none besides --sweep")
    folder = known_folder(options.out, _RESULTS, "a sweep")
    pipeline = Pipeline.from_pretrained(
        options.model, trust_code=options.trust_code, device=options.device, compile=options.compile
    )
    possible = pipeline.method.corrects or not any(corrector.num_steps for corrector in chosen)
    method = type(pipeline.method).__name__
    require(possible, "sweep", options.sweep, f"0 for {method}, which has no place for a corrector")
    subject = Subject.of(options, pipeline)
    results = _kept(folder, subject)
    folder = new_folder(results_folder(options.model), "sweep") if folder is None and is_main() else folder
    if is_main():
        print(f"results go to {folder}; with --out {folder} the same command goes on", file=sys.stderr)
    for number, corrector in enumerate(chosen, start=1):
        if not any(CorrectorOptions(**measured["corrector"]) == corrector for measured in results):
            title = f"sampling {number}/{len(chosen)} ({label(corrector)})"
            results.append(_measured(subject, corrector, results, title))
            if is_main():
                write_whole(Path(str(folder)) / _RESULTS, as_json(results))
    if is_main():
        _write(results, chosen, Path(str(folder)))


def _measured(subject: Subject, corrector: CorrectorOptions, before: Sequence[Any], title: str) -> dict[str, Any]:
    """The results of one corrector. Reference rows and bounds do not depend on it: they are measured once."""
    generated, seconds = subject.drawn(corrector, title)
    settings = replace(subject.settings, baselines=False, bound_samples=0) if before else subject.settings
    results = subject.task.measure(generated, settings).as_dict()
    if before:
        results["rows"] = before[0]["rows"] | results["rows"]
        results |= {name: before[0][name] for name in ("settings", "bits_per_element")}
    return {"corrector": asdict(corrector)} | subject.about | {"sampling_seconds": seconds} | results


def _kept(folder: Path | None, subject: Subject) -> list[dict[str, Any]]:
    """The results of an earlier command in this folder. Raises an error if model or settings were others."""
    if folder is None or not (file := folder / _RESULTS).is_file():
        return []
    try:
        results: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
        before, about = results[0]["settings"], {name: results[0][name] for name in subject.about}
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{file}: expected the results of a sweep ({error})") from None
    for name in ("model", "data", "trained"):
        require(about[name] == subject.about[name], name, subject.about[name], f"{about[name]}, as in {file}")
    for name, value in asdict(subject.settings).items():
        same = before.get(name) == value or (name == "prefix" and value is None)
        require(same, name, value, f"{before.get(name)}, as in {file}; or another --out")
    return results


def _write(results: Sequence[dict[str, Any]], chosen: Sequence[CorrectorOptions], folder: Path) -> None:
    """Write and print the tables: the chosen correctors in their order, then those measured earlier."""
    order = list(chosen)

    def place(part: dict[str, Any]) -> int:
        own = CorrectorOptions(**part["corrector"])
        return order.index(own) if own in order else len(order)

    ordered = sorted(results, key=place)
    rows = [read_row(label(CorrectorOptions(**part["corrector"])), part) for part in ordered]
    references = read_references(results[0])
    pairs = paired(rows)
    intervals = Intervals.of(rows, pairs)
    text = f"{heading(results[0])}\n\n{text_table(rows, references, intervals)}"
    tables = {
        "sweep.txt": text,
        "sweep.csv": csv_table(rows, references, intervals),
        "sweep.tex": latex_table(rows, references, intervals),
        **({"differences.csv": differences_csv(pairs, rows)} if pairs else {}),
    }
    for name, table in tables.items():
        write_whole(folder / name, table)
    print(f"{text}\n{', '.join(['sweep.json', *tables])} in {folder}")
