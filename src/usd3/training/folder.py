"""The folder of a run: who has it, what it is about, and what is left of it where it fails."""

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
from usd3._internal.plain import read_json, read_yaml
from usd3._internal.processes import leads_run
from usd3.training.checkpoints import find_checkpoints, step_of

__all__ = ["RECIPE", "begin", "own_folder", "read_recipe", "require_same_data"]

RECIPE, _DATA = "recipe.yaml", "data.json"


@contextmanager
def own_folder(folder: Path, resume: bool) -> Iterator[None]:
    """Inside, a run has its folder to itself; several processes of one run share it, and the first has it for all.

    A new run that fails leaves nothing behind but what is of use, a log or a checkpoint.
    """
    option = "resume" if resume else "run"
    if resume:
        read_recipe(folder)
    elif leads_run():
        require_free(folder, "run")
    with locked(folder, "run", option) if leads_run() else nullcontext():
        if not resume and leads_run():
            require_free(folder, "run")  # again: another may have been faster
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
            then = f"--resume {folder} goes on from step {step}" if begun else "start it anew"
            raise OSError(f"{option} = {folder}: expected room on its disk ({full}); make some, then {then}") from error


def read_recipe(folder: Path) -> dict[str, Any]:
    """What a run was begun with."""
    file = folder / RECIPE
    if not file.is_file():
        raise FileNotFoundError(f"{folder}: expected the folder of a run, with its recipe.yaml")
    found: dict[str, Any] = read_yaml(file)
    return found


def begin(folder: Path, recipe: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """Write what a run is begun with: its recipe, with which it can be resumed, and what is known of its data."""
    write_whole(folder / RECIPE, yaml.safe_dump(dict(recipe), sort_keys=False))
    write_whole(folder / _DATA, json.dumps(data, indent=2) + "\n")


def require_same_data(data: Mapping[str, Any], folder: Path, what: str) -> None:
    """Refuse other data than those the run was begun with; an older run knows less, what its config.json says."""
    file = next((file for file in (folder / _DATA, folder / "config.json") if file.is_file()), None)
    before = {} if file is None else read_json(file)
    for name, now in data.items():
        kept = before.get(name, now)
        require(now == kept, f"{name} of {what}", now, f"{kept}, as those that the run had; start a new run")


def _is_of_use(folder: Path) -> bool:
    """Whether there is something to look at or to go on with."""
    return any(any(folder.glob(kind)) for kind in ("checkpoints/*.ckpt", "logs/*/metrics.csv", "model.safetensors"))


def _clear(folder: Path) -> None:
    """Remove what every run begins with."""
    with suppress(OSError):
        for name in ("logs", "checkpoints"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in (RECIPE, _DATA):
            (folder / name).unlink(missing_ok=True)
