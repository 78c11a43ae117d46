"""What the runs of a study have done, and on which machines: the file study.json in its folder."""

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import torch

from usd3._internal.checks import require
from usd3._internal.files import contents, write_whole
from usd3.bench.machine import machine

__all__ = ["STATE", "done_in", "is_done", "keep", "measured_on", "now", "require_same", "state_of", "with_last"]

STATE = "study.json"


def state_of(folder: Path, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What earlier runs in a folder have done; refuses those with other data, steps or minutes than the chosen ones."""
    file = folder / STATE
    if not file.is_file() or contents(folder) == [file]:  # a run that wrote nothing does not count
        return dict(chosen) | {"done": [], "measured": []}
    state = require_same(folder, chosen)
    return state | {"measured": _places(state)}


def measured_on(folder: Path) -> dict[str, Any]:
    """Date and machine of the last run that measured something in this folder.

    "earlier" has those of the runs before, if they were on another machine, on another day or with other code.
    """
    measured = _places(json.loads((folder / STATE).read_text(encoding="utf-8")))
    return measured[-1] | ({"earlier": measured[:-1]} if measured[1:] else {})


def done_in(folder: Path) -> list[list[str]]:
    """The commands that are done for the study in a folder."""
    file = folder / STATE
    done: list[list[str]] = json.loads(file.read_text(encoding="utf-8"))["done"] if file.is_file() else []
    return done


def keep(folder: Path, state: Mapping[str, Any]) -> None:
    """Write the state of the study in a folder."""
    write_whole(folder / STATE, json.dumps(state, indent=2) + "\n")


def now() -> dict[str, Any]:
    """Date and machine."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return {"date": date.today().isoformat(), "machine": machine(device)}


def _places(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Dates and machines of the runs of a study, the last one last. The files of older versions have one or none."""
    measured = state.get("measured", [])
    return [measured] if isinstance(measured, dict) else measured


def with_last(measured: list[Any], now: Any) -> list[Any]:
    """Each one once, such as a date and machine, the present one last."""
    return [*(other for other in measured if other != now), now]


def require_same(folder: Path, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a study; refuses one that was run with other data, steps or minutes."""
    file = folder / STATE
    state: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    for name, value in chosen.items():
        before = state.get(name)  # older files have no steps
        require(value == before, name, value, f"{before}, as in {file}; or another --out")
    return state


def is_done(folder: Path) -> bool:
    """Whether all commands of the study in a folder are done."""
    file = folder / STATE
    return file.is_file() and bool(json.loads(file.read_text(encoding="utf-8")).get("finished"))
