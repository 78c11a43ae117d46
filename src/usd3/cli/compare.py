"""usd3 compare: several methods under one budget, with the same measures."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from usd3._internal.checks import as_count
from usd3._internal.files import known_folder, new_folder, write_whole
from usd3._internal.locks import locked
from usd3.cli.compare_entries import (
    data_of,
    read_entries,
    require_measurable,
    require_trusted_kind,
    shared_prefix,
    shared_steps,
    with_data_path,
)
from usd3.cli.compare_jobs import measure, require_unchanged, train
from usd3.cli.compare_results import kept_references, reference_measurement, write_results
from usd3.cli.entries import Entry
from usd3.evaluation.settings import EvaluationSettings
from usd3.training.options import Recipe

__all__ = ["CompareOptions", "compare"]

_MARK = "comparison.json"  # the file that marks the folder of a comparison


@dataclass
class CompareOptions(Recipe):
    """Train several methods under one budget, measure all in the same way, and write one table.

    The words are recipes for all methods. The options of `usd3 train` hold for all of them too and come last; the
    budget is --training.minutes, whatever steps a recipe says, or --training.steps without it. The same command with
    the same --out goes on where it stopped.

    Args:
        methods: words, each either recipes joined by +, as in "usd3+discrete", or the folder of a trained model, or
            the name of a packaged one if no recipe has this name. A trained model is only measured. A name for the
            table may stand before a colon: "star:usd3-star+discrete". A number of trainings may stand after a star:
            "usd3+discrete*3". null: all methods.
        out: folder of all runs and results, new or that of an earlier comparison; null: a new one below runs/.
        jobs: number of methods to train or measure at the same time; they share the device.
        repeats: trainings of each method, with the seeds `seed`, `seed` + 1, ...; if there are several, the table has
            their means and standard deviations. A later command with the same --out may ask for more of them.
        evaluation: what to measure, as `usd3 evaluate` does.
        device: "cpu" or "cuda", to measure on; null: a GPU if there is one.
        compile: compile the networks also to measure them, which takes up to a minute at the start of each; pays for
            thousands of objects on a GPU. Training has its own option, --training.compile.
        trust_code: import a kind, network or method that is not ours, if a recipe or a trained model names one. This
            runs its code. Not needed for a class that is named on the command line.
    """

    methods: str | None = None
    out: str | None = None
    jobs: int = 1
    repeats: int = 1
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    device: str | None = None
    compile: bool = False
    trust_code: bool = False


def compare(options: CompareOptions, base: Sequence[str], read: Callable[[Sequence[str]], CompareOptions]) -> None:
    """Train, measure, write the results and print the table.

    Args:
        options: the options of the command line.
        base: the recipes for all methods.
        read: returns the options for a list of recipes.
    """
    as_count(options.jobs, "jobs", 1)
    out = known_folder(options.out, _MARK, "a comparison")
    entries = read_entries(options.methods, as_count(options.repeats, "repeats", 1), base, read)
    # everything that can be refused is refused before anything is trained
    if out is not None:
        for entry in entries:
            require_unchanged(entry, entry.folder(out))
    for entry in entries:
        require_trusted_kind(entry, options.trust_code)
    entries = with_data_path(entries, options.data.path)
    data = data_of(entries[0])
    dataset = data.load()
    prefix = shared_prefix(entries, dataset, options.evaluation.prefix)
    settings = replace(options.evaluation, prefix=prefix, steps=shared_steps(entries, options.evaluation.steps))
    for entry in entries:
        require_measurable(entry, dataset, settings)
    measure_references = reference_measurement(data, dataset, settings, options.device)
    out = new_folder("runs", "compare") if out is None else out
    with locked(out, "comparison", "out"):
        print(f"results go to {out}; with --out {out} the same command goes on", file=sys.stderr)
        write_whole(out / _MARK, json.dumps(_summary(entries, settings), indent=2) + "\n")
        try:
            failed = train(entries, out, options.jobs)
            entries = [entry for entry in entries if entry.label not in failed]
            values = {"device": options.device, "compile": options.compile}
            keep_samples = dataset.kind.is_judged  # for a picture
            failed |= measure(entries, out, settings, values, options.trust_code, keep_samples, options.jobs)
            entries = [entry for entry in entries if entry.label not in failed]
            has_references = settings.baselines and bool(entries)
            references = kept_references(data, settings, out, measure_references) if has_references else {}
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"(the same command with --out {out} goes on)") from None
        if entries:
            write_results(entries, references, out, dataset.kind)
        if failed:
            reasons = "; ".join(f"{label}: {reason}" for label, reason in failed.items())
            raise ChildProcessError(f"{len(failed)} of the methods failed: {reasons}")


def _summary(entries: Sequence[Entry], settings: EvaluationSettings) -> dict[str, Any]:
    trainings: dict[str, list[str]] = {}
    for entry in entries:
        trainings.setdefault(entry.method, []).append(entry.label)
    methods = {entry.label: entry.source for entry in entries}
    return {"methods": methods, "trainings": trainings, "evaluation": asdict(settings)}
