"""usd3 evaluate --sweep: one model with several correctors, in one table."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from usd3._internal.checks import require
from usd3._internal.files import known_folder, new_folder, write_whole
from usd3._internal.processes import gathered, is_main
from usd3.cli.evaluate import EvaluateOptions, Subject, as_json
from usd3.cli.sample import CorrectorOptions, named_as_options
from usd3.cli.sweep_words import Variant, label, variants
from usd3.evaluation.comparison import Row, heading, read_references, read_row
from usd3.evaluation.counting import CountingCorrector, CountingPipeline
from usd3.evaluation.differences import Intervals, differences_csv, paired
from usd3.evaluation.tables import csv_table, latex_table, text_table
from usd3.pipeline.packaged import results_folder
from usd3.pipeline.pipeline import Pipeline

__all__ = ["heading_of", "row_of", "sweep"]

_RESULTS = "sweep.json"


def sweep(options: EvaluateOptions) -> None:
    """Measure the model with each corrector, all with the same seed, and write one table.

    Correctors that an earlier command measured in the same folder are not measured again.
    """
    chosen = variants(str(options.sweep))
    for name, value in (("samples", options.samples), ("save_samples", options.save_samples)):
        require(value is None, name, value, "null with --sweep")
    require(not options.corrector.num_steps, "corrector", options.corrector, "none besides --sweep")
    folder = known_folder(options.out, _RESULTS, "a sweep")
    pipeline = CountingPipeline(
        Pipeline.from_pretrained(
            options.model, trust_code=options.trust_code, device=options.device, compile=options.compile
        )
    )
    possible = pipeline.method.corrects or not any(corrector.num_steps for corrector, _ in chosen)
    method = type(pipeline.method).__name__
    require(possible, "sweep", options.sweep, f"0 for {method}, which has no place for a corrector")
    with named_as_options():
        for steps in {steps for _, steps in chosen if steps is not None}:
            pipeline.diffusion.grid(steps)
    subject = Subject.of(options, pipeline)
    results = _kept(folder, subject)
    folder = new_folder(results_folder(options.model), "sweep") if folder is None and is_main() else folder
    if is_main():
        print(f"results go to {folder}; with --out {folder} the same command goes on", file=sys.stderr)
    for number, variant in enumerate(chosen, start=1):
        if not any(_variant_of(part) == variant for part in results):
            title = f"sampling {number}/{len(chosen)} ({label(variant)})"
            results.append(_measured(subject, pipeline, variant, results, title))
            if is_main():
                write_whole(Path(str(folder)) / _RESULTS, as_json(results))
    if is_main():
        _write(results, chosen, Path(str(folder)))


def _measured(
    subject: Subject, counter: CountingPipeline, variant: Variant, before: Sequence[Any], title: str
) -> dict[str, Any]:
    """The results of one corrector. Reference rows and bounds do not depend on it: they are measured once."""
    corrector, rows = variant.corrector.build(), counter.rows
    moves = None if corrector is None else CountingCorrector(corrector)
    drawn_by = subject if variant.steps is None else subject.with_steps(variant.steps)
    generated, seconds = drawn_by.drawn(moves, title)
    counted = {"calls": counter.rows - rows, "changed": 0 if moves is None else moves.changed}
    objects = sum(tokens.shape[0] * tokens.shape[1] for tokens in generated.values())
    settings = replace(subject.settings, baselines=False, bound_samples=0) if before else subject.settings
    results = subject.task.measure(generated, settings).as_dict()
    if before:
        results["rows"] = before[0]["rows"] | results["rows"]
        results |= {name: before[0][name] for name in ("settings", "bits_per_element")}
    counts = {f"{name}_per_object": sum(gathered(count)) / objects for name, count in counted.items()}
    how = {"corrector": asdict(variant.corrector), "steps": variant.steps}
    return how | subject.about | {"sampling_seconds": seconds} | counts | results


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


def _variant_of(part: dict[str, Any]) -> Variant:
    """What was measured; the files of older versions have no numbers of steps."""
    return Variant(CorrectorOptions(**part["corrector"]), part.get("steps"))


def _steps_of(part: dict[str, Any]) -> int:
    """The number of sampling steps of a corrector: its own, or that of the command."""
    return int(part.get("steps") or part["settings"]["steps"])


def row_of(part: dict[str, Any]) -> Row:
    """The row of one corrector, from the results of a sweep."""
    return read_row(label(_variant_of(part)), part | {"settings": part["settings"] | {"steps": _steps_of(part)}})


def heading_of(results: Sequence[dict[str, Any]]) -> str:
    """The line above the table of a sweep, with the numbers of steps of all correctors."""
    line, steps = heading(results[0]), sorted({_steps_of(part) for part in results})
    shown = f"{steps[0]} to {steps[-1]}" if steps[1:] else f"{steps[0]}"
    return line.replace(f" in {results[0]['settings']['steps']} steps", f" in {shown} steps", 1)


def _write(results: Sequence[dict[str, Any]], chosen: Sequence[Variant], folder: Path) -> None:
    """Write and print the tables: the chosen correctors in their order, then those measured earlier."""
    order = list(chosen)

    def place(part: dict[str, Any]) -> int:
        own = _variant_of(part)
        return order.index(own) if own in order else len(order)

    rows = [row_of(part) for part in sorted(results, key=place)]
    references = read_references(results[0])
    pairs = paired(rows)
    intervals = Intervals.of(rows, pairs)
    text = f"{heading_of(results)}\n\n{text_table(rows, references, intervals)}"
    tables = {
        "sweep.txt": text,
        "sweep.csv": csv_table(rows, references, intervals),
        "sweep.tex": latex_table(rows, references, intervals),
        **({"differences.csv": differences_csv(pairs, rows)} if pairs else {}),
    }
    for name, table in tables.items():
        write_whole(folder / name, table)
    print(f"{text}\n{', '.join(['sweep.json', *tables])} in {folder}")
