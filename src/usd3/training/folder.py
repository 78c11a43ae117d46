"""The folder of a run: its lock, its recipe and data, and what stays of it where it fails."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from usd3._internal.checks import require
from usd3._internal.files import full_disk, require_free, write_whole
from usd3._internal.locks import locked
from usd3._internal.processes import leads_run
from usd3._internal.yaml_json import read_json, read_yaml
from usd3.training.checkpoints import find_checkpoints, step_of

__all__ = ["RECIPE", "begin", "own_folder", "read_recipe", "require_same_data"]

RECIPE, _DATA = "recipe.yaml", "data.json"


@contextmanager
def own_folder(folder: Path, resume: bool) -> Iterator[None]:
    """Inside, one run uses the folder, and no other. The first of its processes holds the lock for all.

    A new run that fails leaves nothing behind, unless it has a log or a checkpoint.
    """
    option = "resume" if resume else "run"
    if resume:
        read_recipe(folder)
    elif leads_run():
        require_free(folder, "run")
    with locked(folder, "run", option) if leads_run() else nullcontext():
        if not resume and leads_run():
            require_free(folder, "run")  # again: another run may have begun meanwhile
        try:
            yield
        except BaseException as error:
            if not resume and leads_run() and not _is_of_use(folder):
                _clear(folder)
            full = full_disk(error)
            if full is None:
                raise
            saved, begun = find_checkpoints(folder / "checkpoints"), (folder / RECIPE).is_file()
            step = step_of(saved[0]) if saved else 0
            then = f"--resume {folder} goes on from step {step}" if begun else "start it again"
            raise OSError(f"{option} = {folder}: expected room on its disk ({full}); make some, then {then}") from error


def read_recipe(folder: Path) -> dict[str, Any]:
    """The recipe with which a run began."""
    file = folder / RECIPE
    if not file.is_file():
        raise FileNotFoundError(f"{folder}: expected the folder of a run, with its recipe.yaml")
    recipe: dict[str, Any] = read_yaml(file)
    return recipe


def begin(folder: Path, recipe: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """Write the recipe of a run, with which it can be resumed, and the facts by which its data are recognised."""
    write_whole(folder / RECIPE, yaml.safe_dump(dict(recipe), sort_keys=False))
    write_whole(folder / _DATA, json.dumps(data, indent=2) + "\n")


def require_same_data(data: Mapping[str, Any], folder: Path, what: str) -> None:
    """Refuse other data than those of the run. An older run has fewer facts, in its config.json.

    Args:
        data: facts on the data.
        folder: of the run.
        what: the data, in the message.
    """
    file = next((file for file in (folder / _DATA, folder / "config.json") if file.is_file()), None)
    before = {} if file is None else read_json(file)
    for name, now in data.items():
        kept = before.get(name, now)
        require(now == kept, f"{name} of {what}", now, f"{kept}, as those that the run had; start a new run")


def _is_of_use(folder: Path) -> bool:
    """Whether there is a log, a checkpoint or a model."""
    return any(any(folder.glob(kind)) for kind in ("checkpoints/*.ckpt", "logs/*/metrics.csv", "model.safetensors"))


def _clear(folder: Path) -> None:
    """Remove the files with which every run begins."""
    with suppress(OSError):
        for name in ("logs", "checkpoints"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in (RECIPE, _DATA):
            (folder / name).unlink(missing_ok=True)
