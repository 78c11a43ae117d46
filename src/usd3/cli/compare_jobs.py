"""The jobs of `usd3 compare`: it trains and measures the methods in processes of their own."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from usd3._internal.files import write_whole
from usd3._internal.progress import say
from usd3._internal.yaml_json import read_yaml
from usd3.cli.entries import Entry, plain, require_same_recipe
from usd3.cli.jobs import Job, run_jobs
from usd3.evaluation.settings import EvaluationSettings
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.trust import foreign_classes
from usd3.training.options import TrainingConfig

__all__ = ["has_settings", "is_finished", "measure", "require_unchanged", "results_file", "samples_file", "train"]


# ---- training -----------------------------------------------------------------------------------------------------


def require_unchanged(entry: Entry, folder: Path) -> None:
    """Raise an error if a run was begun with another recipe: the methods would not have the same budget."""
    file = folder / "recipe.yaml"
    if entry.recipe is not None and file.is_file():
        require_same_recipe(entry.label, entry.recipe, read_yaml(file), file)


def train(entries: Sequence[Entry], out: Path, at_once: int) -> dict[str, str]:
    """Train the methods whose training is not finished; the reason of each failure, by label.

    Args:
        entries: the methods.
        out: the folder of the comparison.
        at_once: number of methods to train at the same time.
    """
    unfinished = [entry for entry in entries if not _is_trained(entry, out)]
    _say_done("trained", len(entries) - len(unfinished), len(entries))
    return run_jobs("training", [_training_job(entry, out) for entry in unfinished], at_once)


def _is_trained(entry: Entry, out: Path) -> bool:
    return entry.recipe is None or is_finished(entry.folder(out), entry.recipe.training)


def is_finished(folder: Path, training: TrainingConfig) -> bool:
    """Whether the run in a folder has done its steps or used up its minutes."""
    has_config = (folder / "config.json").is_file()
    return has_config and PipelineConfig.read(folder).has_trained(training.steps, training.minutes)


def _training_job(entry: Entry, out: Path) -> Job:
    """The command that trains a method, or continues its training."""
    assert entry.recipe is not None
    folder = entry.folder(out)
    trust = ["--trust_code", "true"] if foreign_classes(entry.recipe) else []  # the user trusts it, or typed its name
    if (folder / "recipe.yaml").is_file():
        arguments = ["train", "--resume", str(folder)]
    else:
        file = out / f"{entry.label}.yaml"
        write_whole(file, yaml.safe_dump(plain(entry.recipe), sort_keys=False))
        arguments = ["train", str(file), "--run", str(folder)]
    return Job(entry.label, [*arguments, *trust], out / f"{entry.label}.log")


# ---- measuring ----------------------------------------------------------------------------------------------------


def measure(
    entries: Sequence[Entry],
    out: Path,
    settings: EvaluationSettings,
    options: Mapping[str, Any],
    trust_code: bool,
    keep_samples: bool,
    at_once: int,
) -> dict[str, str]:
    """Measure the methods that have no results with these settings; the reason of each failure, by label.

    Args:
        entries: the methods.
        out: the folder of the comparison.
        settings: what to measure. Reference rows are left out: they do not depend on the method.
        options: further options of `usd3 evaluate`.
        trust_code: whether the user trusts the code that trained models name.
        keep_samples: also keep the samples that were measured.
        at_once: number of methods to measure at the same time.
    """
    settings = replace(settings, baselines=False)
    unmeasured = [entry for entry in entries if not _is_measured(entry, out, settings)]
    _say_done("measured", len(entries) - len(unmeasured), len(entries))
    jobs = [
        _measuring_job(
            entry, out, settings, {**options, "trust_code": trust_code or _is_trusted(entry, out)}, keep_samples
        )
        for entry in unmeasured
    ]
    try:
        return run_jobs("measuring", jobs, at_once)
    finally:  # also after an interruption
        for entry in unmeasured:
            new = _new_results_file(entry, out)
            if new.is_file():  # the command writes it last, so the samples are complete
                if keep_samples:
                    os.replace(new.with_suffix(".npz"), samples_file(entry, out))
                if new.with_suffix("").is_dir():  # pictures, of kinds that have some
                    _replace_folder(new.with_suffix(""), results_file(entry, out).with_suffix(""))
                os.replace(new, results_file(entry, out))


def _replace_folder(new: Path, old: Path) -> None:
    """Give the folder `new` the name of the folder `old`, which is removed if it exists."""
    shutil.rmtree(old, ignore_errors=True)
    os.replace(new, old)


def results_file(entry: Entry, out: Path) -> Path:
    """The file of a method's results."""
    return out / entry.label / "comparison.json"


def samples_file(entry: Entry, out: Path) -> Path:
    """The file of the samples that were measured, if they are kept."""
    return results_file(entry, out).with_suffix(".npz")


def _new_results_file(entry: Entry, out: Path) -> Path:
    """The file that a running job writes; earlier results stay until it is complete."""
    return out / entry.label / "comparison-new.json"


def _is_measured(entry: Entry, out: Path, settings: EvaluationSettings) -> bool:
    """Whether there are results with these settings of the present weights. The weights may be gone by now."""
    file, weights = results_file(entry, out), entry.folder(out) / "model.safetensors"
    if not file.is_file() or (weights.is_file() and file.stat().st_mtime < weights.stat().st_mtime):
        return False
    results = json.loads(file.read_text(encoding="utf-8"))
    return has_settings(results, settings) and bool(results["model"] == os.path.abspath(entry.folder(out)))


def has_settings(results: Mapping[str, Any], settings: EvaluationSettings) -> bool:
    """Whether results were measured with these settings. A setting that older results lack had its default."""
    used: dict[str, Any] = asdict(EvaluationSettings()) | results["settings"]
    return used == asdict(settings)


def _measuring_job(
    entry: Entry, out: Path, settings: EvaluationSettings, options: Mapping[str, Any], keep_samples: bool
) -> Job:
    """The command that measures a method."""
    file = _new_results_file(entry, out)
    samples = file.with_suffix(".npz")
    for old in (file, samples):
        old.unlink(missing_ok=True)
    shutil.rmtree(file.with_suffix(""), ignore_errors=True)
    arguments = ["evaluate", os.path.abspath(entry.folder(out)), "--out", str(file)]
    arguments += ["--save_samples", str(samples)] if keep_samples else []
    arguments += [] if entry.data_path is None else ["--data_path", entry.data_path]
    for name, value in (_flat(asdict(settings)) | dict(options)).items():
        arguments.append(f"--{name}={value if isinstance(value, str) else json.dumps(value)}")
    return Job(entry.label, arguments, out / f"{entry.label}.log")


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options with those of their sections beside them: {"images": {"num": 4}} becomes {"images.num": 4}."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= {f"{name}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _is_trusted(entry: Entry, out: Path) -> bool:
    """Whether a model names code that is not ours, and only code that its recipe names, which the user trusts."""
    trusted = set() if entry.recipe is None else foreign_classes(entry.recipe)
    return bool(trusted) and foreign_classes(PipelineConfig.read(entry.folder(out))) <= trusted


def _say_done(what: str, done: int, count: int) -> None:
    if done:
        say(f"{done} of {count} are {what} already")
