"""usd3 compare: several methods under one budget, with the same measures."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml  # type: ignore[import-untyped]

from usd3._internal.checks import as_count, require
from usd3._internal.files import known_folder, new_folder, write_whole
from usd3._internal.locks import locked
from usd3._internal.progress import say
from usd3._internal.yaml_json import read_yaml
from usd3.cli.entries import Entry, about_method, plain, read_entry, require_names, require_same_recipe
from usd3.cli.entries import method_words as _methods
from usd3.cli.jobs import Job, run_jobs
from usd3.evaluation.comparison import Row, combined, heading, read_references, read_row, require_comparable
from usd3.evaluation.evaluate import Evaluation, HeldOut, evaluate_baselines, shared_prefixes
from usd3.evaluation.free import references_alone, require_free_settings
from usd3.evaluation.plots import metrics_plot, training_plot
from usd3.evaluation.settings import EvaluationSettings
from usd3.evaluation.tables import csv_table, latex_table, text_table
from usd3.kinds.base import Kind
from usd3.kinds.dataset import Dataset
from usd3.kinds.numpy_files import read_arrays
from usd3.kinds.options import DataConfig
from usd3.kinds.registry import require_own_settings
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.trust import foreign_classes, require_trusted
from usd3.training.logs import logs_as_csv
from usd3.training.options import Recipe, TrainingConfig
from usd3.training.run import default_prefix, pipeline_for

__all__ = ["CompareOptions", "compare"]

_ENDLESS = 10_000_000  # steps, where the minutes decide
_SHOWN = 10  # samples of each method in the picture
_MARK = "comparison.json"  # says that a folder is one of a comparison


@dataclass
class CompareOptions(Recipe):
    """Train several methods under one budget, measure all in the same way, and write one table.

    The words are recipes for all methods. The options of `usd3 train` hold for all of them too and come last; the
    budget is --training.minutes, whatever steps a recipe says, or --training.steps without it. The same command with
    the same --out goes on where it stopped.

    Args:
        methods: words, each either recipes joined by +, as in "usd3+discrete", or the folder of a trained model, or
            the name of a packaged one where no recipe has it, which is only measured; with a name before a colon, if
            wanted: "star:usd3-star+discrete". null: all methods.
        out: folder of all runs and results, new or that of an earlier comparison; null: a new one below runs/.
        jobs: methods to train or measure side by side; they share the device.
        repeats: trainings of each method, with the seeds `seed`, `seed` + 1, ...; with several, the table has their
            means and standard deviations. More of them may be asked for later, with the same --out.
        evaluation: what to measure, as `usd3 evaluate` does.
        device: "cpu" or "cuda", to measure on; null: a GPU where there is one.
        compile: compile the networks also to measure them, which takes up to a minute at the start of each; pays for
            thousands of objects on a GPU. Training has its own, --training.compile.
        trust_code: allow a network or method that a recipe or a trained model names, and that is not ours, to be
            imported, which runs its code. Not needed for one that is named on the command line.
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
    """Train, measure, write the results and print the table; `read` makes options of the names of recipes."""
    as_count(options.jobs, "jobs", 1)
    out = known_folder(options.out, _MARK, "a comparison")
    count = as_count(options.repeats, "repeats", 1)
    entries = [other for word in _methods(options.methods) for other in _repeated(_entry(word, base, read), count)]
    require_names(entries)
    if out is not None:
        for entry in entries:
            _require_unchanged(entry, entry.folder(out))
    for entry in entries:
        _require_trusted_kind(entry, options.trust_code)
    entries = _knowing_data(entries, options.data.path)
    data = _data(entries[0])
    dataset = data.load()
    prefix = _shared_prefix(entries, dataset, options.evaluation.prefix)
    settings = replace(options.evaluation, prefix=prefix, steps=_shared_steps(entries, options.evaluation.steps))
    for entry in entries:
        _require_measurable(entry, dataset, settings)  # before anything is trained
    scale = _scale(data, dataset, settings, options.device)
    out = new_folder("runs", "compare") if out is None else out
    with locked(out, "comparison", "out"):
        print(f"results go to {out}; with --out {out} the same command goes on", file=sys.stderr)
        write_whole(out / _MARK, json.dumps(_about(entries, settings), indent=2) + "\n")
        try:
            todo = [job for entry in entries for job in _training(entry, out)]
            _say_done("trained", len(entries) - len(todo), len(entries))
            failed = run_jobs("training", todo, options.jobs)
            entries = [entry for entry in entries if entry.label not in failed]
            failed |= _measure(entries, out, options, settings, keep=dataset.kind.is_judged)
            entries = [entry for entry in entries if entry.label not in failed]
            wanted = settings.baselines and bool(entries)
            references = _references(data, settings, out, scale) if wanted else {}
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"(the same command with --out {out} goes on)") from None
        _write(entries, references, out, dataset.kind)
        if failed:
            reasons = "; ".join(f"{label}: {reason}" for label, reason in failed.items())
            raise ChildProcessError(f"{len(failed)} of the methods failed: {reasons}")


# ---- what is compared ---------------------------------------------------------------------------------------------


def _entry(word: str, base: Sequence[str], read: Callable[[Sequence[str]], CompareOptions]) -> Entry:
    entry = read_entry(word, base, read)
    if entry.recipe is not None and entry.recipe.training.minutes is not None:
        entry.recipe.training.steps = _ENDLESS
    return entry


def _repeated(entry: Entry, count: int) -> list[Entry]:
    """All trainings of a method, each with a seed of its own; a model that is trained already is one."""
    if entry.recipe is None:
        return [entry]
    recipes = [replace(entry.recipe, seed=entry.recipe.seed + i) for i in range(1, count)]
    names = [f"{entry.label}-{i + 2}" for i in range(len(recipes))]
    return [entry, *(replace(entry, label=n, recipe=own, repeats=entry.label) for n, own in zip(names, recipes))]


def _require_measurable(entry: Entry, dataset: Dataset, settings: EvaluationSettings) -> None:
    """Refuse a method that cannot be built, or not drawn from with these settings."""
    if entry.recipe is None:
        dataset.kind.require_same(PipelineConfig.read(entry.folder(Path())).kind, f"data of {entry.label}")
        return
    with about_method(entry.label):
        pipeline = pipeline_for(entry.recipe, dataset)
        pipeline.method.require_temperature(settings.temperature)
        known = pipeline.method.samplers
        fits = settings.sampler in (None, *known)
        own = f"one of {', '.join(known)}, or null and method.sampler in a recipe"
        require(fits, "evaluation.sampler", settings.sampler, own)
        pipeline.diffusion.grid(pipeline.method.grid(int(settings.steps or 0), settings.sampler or known[0]))


def _scale(
    data: DataConfig, dataset: Dataset, settings: EvaluationSettings, device: str | None
) -> Callable[[], Evaluation]:
    """How to measure the reference rows. Refuses what could not be measured, before anything is trained."""
    require_own_settings(dataset.kind, settings)
    if dataset.kind.is_judged:
        require_free_settings(settings)
        judge = dataset.kind.judge(dataset, settings, device, "evaluation.")
        return lambda: references_alone(dataset, judge, settings)
    held_out = HeldOut.after(int(settings.prefix or 0), dataset, settings.limit)
    shared = shared_prefixes(data, dataset, settings, held_out.prefix, option="evaluation.ratios")
    return lambda: evaluate_baselines(dataset, held_out, settings, shared)


def _require_trusted_kind(entry: Entry, trust_code: bool) -> None:
    """Refuse a trained model whose kind is not ours, unless its code is trusted: reading the data would run it."""
    if entry.recipe is None and not trust_code:
        config = PipelineConfig.read(entry.folder(Path()))
        require_trusted(config, {config.model.net, config.method.name})  # these run in a process of their own


def _data(entry: Entry) -> DataConfig:
    if entry.recipe is not None:
        return entry.recipe.data
    data = PipelineConfig.read(entry.folder(Path())).data
    return replace(data, path=entry.data_path or data.path)


def _knowing_data(entries: Sequence[Entry], given: str | None) -> list[Entry]:
    """Models that do not know where their data are, as they were exported, use those of the others, or of an option."""
    paths = [_data(entry).path for entry in entries]
    shared = next((path for path in paths if path is not None), None if given is None else os.path.abspath(given))
    return [replace(entry, data_path=shared) if path is None else entry for entry, path in zip(entries, paths)]


def _shared_prefix(entries: Sequence[Entry], dataset: Dataset, wanted: int | None) -> int:
    """The prefix to measure with; refuses methods that do not share it, their data and their split.

    Kinds with a judge, such as images, are drawn from nothing, however a model was trained.
    """
    length = torch.Size(dataset.shape).numel()
    wanted = 0 if wanted is None and dataset.kind.is_judged else wanted

    def prefix(entry: Entry) -> int:
        if wanted is not None:
            return wanted
        own = entry.recipe
        return PipelineConfig.read(entry.folder(Path())).prefix if own is None else default_prefix(own.training, length)

    require_comparable({entry.label: (_data(entry), prefix(entry)) for entry in entries})
    return prefix(entries[0])


def _shared_steps(entries: Sequence[Entry], wanted: int | None) -> int:
    """Sampling steps of all methods: where none are set, as many as each of them can take."""
    recipes = [entry.recipe or PipelineConfig.read(entry.folder(Path())) for entry in entries]
    return min(recipe.diffusion.usual_steps for recipe in recipes) if wanted is None else wanted


def _about(entries: Sequence[Entry], settings: EvaluationSettings) -> dict[str, Any]:
    return {"methods": {entry.label: entry.source for entry in entries}, "evaluation": asdict(settings)}


# ---- training -----------------------------------------------------------------------------------------------------


def _require_unchanged(entry: Entry, folder: Path) -> None:
    """A run that was begun goes on as it began, or the methods would not have the same budget."""
    file = folder / "recipe.yaml"
    if entry.recipe is None or not file.is_file():
        return
    require_same_recipe(entry.label, entry.recipe, read_yaml(file), file)


def _training(entry: Entry, out: Path) -> list[Job]:
    """What is still to be trained."""
    folder = entry.folder(out)
    if entry.recipe is None or _is_finished(folder, entry.recipe.training):
        return []
    trust = ["--trust_code", "true"] if foreign_classes(entry.recipe) else []  # it is trusted, or was typed
    if (folder / "recipe.yaml").is_file():  # the same recipe
        arguments = ["train", "--resume", str(folder)]
    else:
        file = out / f"{entry.label}.yaml"
        write_whole(file, yaml.safe_dump(plain(entry.recipe), sort_keys=False))
        arguments = ["train", str(file), "--run", str(folder)]
    return [Job(entry.label, [*arguments, *trust], out / f"{entry.label}.log")]


def _is_finished(folder: Path, training: TrainingConfig) -> bool:
    """Whether a run has done its steps, or its minutes are over."""
    there = (folder / "config.json").is_file()
    return there and PipelineConfig.read(folder).has_trained(training.steps, training.minutes)


# ---- measuring ----------------------------------------------------------------------------------------------------


def _measure(
    entries: Sequence[Entry], out: Path, options: CompareOptions, settings: EvaluationSettings, keep: bool
) -> dict[str, str]:
    """Measure what was not measured so already; by label, why those that failed did. `keep` keeps the samples."""
    settings = replace(settings, baselines=False)  # they do not depend on the method, and are measured once
    todo = [entry for entry in entries if not _is_measured(entry, out, settings)]
    jobs = [_measuring(entry, out, options, settings, keep) for entry in todo]
    _say_done("measured", len(entries) - len(todo), len(entries))
    try:
        return run_jobs("measuring", jobs, options.jobs)
    finally:  # also where it was interrupted
        for new, found in ((_new(entry, out), _found(entry, out)) for entry in todo):
            if new.is_file():  # it is written last
                if keep:
                    os.replace(new.with_suffix(".npz"), found.with_suffix(".npz"))
                os.replace(new, found)


def _say_done(what: str, done: int, count: int) -> None:
    if done:
        say(f"{done} of {count} are {what} already")


def _found(entry: Entry, out: Path) -> Path:
    return out / entry.label / "comparison.json"


def _new(entry: Entry, out: Path) -> Path:
    return out / entry.label / "comparison-new.json"


def _is_measured(entry: Entry, out: Path, settings: EvaluationSettings) -> bool:
    """Whether there are results of these weights, which may be gone since, with these settings."""
    file, weights = _found(entry, out), entry.folder(out) / "model.safetensors"
    if not file.is_file() or (weights.is_file() and file.stat().st_mtime < weights.stat().st_mtime):
        return False
    found = json.loads(file.read_text(encoding="utf-8"))
    return _same_settings(found, settings) and bool(found["model"] == os.path.abspath(entry.folder(out)))


def _same_settings(found: dict[str, Any], settings: EvaluationSettings) -> bool:
    """Whether results were made with these settings; one that was unknown then had its default."""
    used: dict[str, Any] = asdict(EvaluationSettings()) | found["settings"]
    return used == asdict(settings)


def _measuring(entry: Entry, out: Path, options: CompareOptions, settings: EvaluationSettings, keep: bool) -> Job:
    trusted = options.trust_code or _is_trusted(entry, entry.folder(out))
    values = asdict(settings) | {"device": options.device, "compile": options.compile, "trust_code": trusted}
    values |= {f"images.{name}": value for name, value in values.pop("images").items()}
    file, samples = _new(entry, out), _new(entry, out).with_suffix(".npz")
    for old in (file, samples):
        old.unlink(missing_ok=True)
    arguments = ["evaluate", os.path.abspath(entry.folder(out)), "--out", str(file)]
    arguments += ["--save_samples", str(samples)] if keep else []
    arguments += [] if entry.data_path is None else ["--data_path", entry.data_path]
    arguments += [
        f"--{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in values.items()
    ]
    return Job(entry.label, arguments, out / f"{entry.label}.log")


def _is_trusted(entry: Entry, folder: Path) -> bool:
    """Whether the code that a model names is that of its recipe, which is trusted, or was typed."""
    own = set() if entry.recipe is None else foreign_classes(entry.recipe)
    return bool(own) and foreign_classes(PipelineConfig.read(folder)) <= own


def _references(
    data: DataConfig, settings: EvaluationSettings, out: Path, measured: Callable[[], Evaluation]
) -> dict[str, Any]:
    """What shows the scale, measured once for all methods."""
    file, about = out / "references.json", {"data": asdict(data)}
    if file.is_file():
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if _same_settings(kept, settings) and kept["data"] == about["data"]:
            return kept
    found = about | measured().as_dict()
    write_whole(file, json.dumps(found, indent=2, allow_nan=False) + "\n")
    return found


# ---- results ------------------------------------------------------------------------------------------------------


def _write(entries: Sequence[Entry], references: dict[str, Any], out: Path, kind: Kind) -> None:
    """The tables and pictures of what was measured."""
    if not entries:
        return
    found = {entry.label: json.loads(_found(entry, out).read_text(encoding="utf-8")) for entry in entries}
    trainings: dict[str, list[Row]] = {}
    for entry in entries:
        trainings.setdefault(entry.method, []).append(read_row(entry.method, found[entry.label]))
    rows = [combined(several) for several in trainings.values()]
    scale = read_references(references) if references else []
    about = next(iter(found.values()))
    text = f"{heading(about)}{_repeats(trainings)}\n\n{text_table(rows, scale)}"
    write_whole(out / "table.txt", text)
    write_whole(out / "table.csv", csv_table(rows, scale))
    write_whole(out / "table.tex", latex_table(rows, scale))
    metrics_plot(rows, out / "metrics.png", scale)
    files = ["table.txt", "table.csv", "table.tex", "metrics.png"]
    if "compared_with" in about:
        files += _picture(entries, kind, about["compared_with"], out)
    runs = {entry.label: entry.folder(out) for entry in entries}
    if training_plot(runs, out / "training.png"):
        write_whole(out / "training.csv", logs_as_csv(runs))
        files += ["training.png", "training.csv"]
    else:
        print("no training.png: no log has held-out bits; see training.validate_every", file=sys.stderr)
    print(f"{text}\n{', '.join(files)} in {out}")


def _repeats(trainings: Mapping[str, Sequence[Row]]) -> str:
    """How often the methods were trained, where it is not once."""
    counts = {label: len(rows) for label, rows in trainings.items()}
    if max(counts.values()) == 1:
        return ""
    told = ", ".join(f"{label} {count}" for label, count in counts.items())
    return f"; trainings: {told}; ± is over these where there are several"


def _picture(entries: Sequence[Entry], kind: Kind, compared_with: Mapping[str, Any], out: Path) -> list[str]:
    """A row of samples of each method whose samples are still there."""
    files = {entry.label: _found(entry, out).with_suffix(".npz") for entry in entries if entry.repeats is None}
    samples = {label: read_arrays(file)["tokens"][0] for label, file in files.items() if file.is_file()}
    tokens = {label: torch.as_tensor(rows[:_SHOWN].astype(np.int64)) for label, rows in samples.items()}
    drawn = bool(tokens) and kind.picture_methods(tokens, compared_with, out / "samples.png")
    return ["samples.png"] if drawn else []
