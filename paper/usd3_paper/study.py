"""A study: commands of `usd3` that run one after the other, and go on where they stopped."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import torch

from usd3._internal.checks import require
from usd3._internal.files import contents, write_whole
from usd3._internal.locks import locked
from usd3._internal.yaml_json import read_yaml
from usd3.bench.machine import machine
from usd3.cli.jobs import call

__all__ = ["Settings", "Study", "done_in", "measured_on", "typed"]

_STATE = "study.json"
_DATA = "{data}"
_OF_SEVERAL_METHODS = ("compare", "cost")  # if some methods fail, the others have results
_NAMING_CODE = (
    "--data.kind",
    "--model.net",
    "--method.name",
    "--trust_code",
)  # repeated when a run is resumed
_INTERRUPTED = 130


@dataclass(frozen=True)
class Settings:
    """The options of a run: see `usd3.cli.paper.PaperOptions`."""

    data: str | None
    budget: float | None
    limit: int | None
    jobs: int
    inception: str | None = None


@dataclass(frozen=True)
class Study:
    """A study, as `studies/NAME.yaml` describes it.

    Args:
        name: the name of the file.
        about: what it trains and measures, in a line.
        steps: commands without the word usd3, or a script after the word python. In them {out} stands for the folder
            of the study, {NAME} for the folder of a study in `needs`, {paper} for the folder of the tables, {data} for
            the data, {budget}, {limit}, {jobs} and {inception} for the options of the same names, {quarter} for a
            quarter of the budget, {precision} and {compile} for what suits the device.
        results: its files and folders with results, and the command that wrote each: see `usd3_paper.results`.
        budget: minutes of each training by default.
        limit: the default of {limit}.
        data: under "expected" a description of the data. Under each other word, {kind}, what {data} stands for if the
            user gives that word; or, if it contains {path}, if the user gives a file or folder. Empty: it needs no
            data.
        needs: studies to run before this one.
        pictures: files to publish with the results, and to show in the tables.
        files: further files to publish.
    """

    name: str
    about: str
    steps: Sequence[str]
    results: Mapping[str, str]
    budget: float | None = None
    limit: int | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    needs: Sequence[str] = ()
    pictures: Sequence[str] = ()
    files: Sequence[str] = ()

    @classmethod
    def read(cls, paper: Path, name: str) -> "Study":
        """Read a study from the folder of the tables."""
        file = paper / "studies" / f"{name}.yaml"
        try:
            return cls(name, **read_yaml(file))
        except (OSError, TypeError, ValueError) as error:
            raise ValueError(f"{file}: expected a study ({' '.join(str(error).split())})") from None

    def uses(self, paper: Path, option: str) -> bool:
        """Whether a field of `Settings` changes anything in this study or in one that it needs."""
        names = {f"{{{option}}}"} | ({"{quarter}"} if option == "budget" else set())
        used = any(name in step for name in names for step in self.steps)
        return used or any(Study.read(paper, name).uses(paper, option) for name in self.needs)

    def commands(self, paper: Path, root: Path, settings: Settings) -> list[list[str]]:
        """The commands as lists of words; `root` has a folder for each study."""
        budget = settings.budget or self.budget or 0.0
        values = {
            "out": root / self.name,
            **{name: root / name for name in self.needs},
            "paper": paper,
            "budget": f"{budget:g}",
            "quarter": f"{budget / 4:g}",
            "limit": "null" if (limit := settings.limit or self.limit) is None else limit,
            "jobs": settings.jobs,
            "inception": "null" if settings.inception is None else os.path.abspath(settings.inception),
            "precision": "bf16" if torch.cuda.is_available() else "fp32",
            "compile": "true" if torch.cuda.is_available() else "false",
        }
        words = [shlex.split(step) for step in self.steps]
        data: list[str] = []
        if any(_DATA in step for step in words):
            values["kind"], data = self._data_words(settings.data)
        return [
            [part for word in step for part in (data if word == _DATA else [word.format_map(values)])] for step in words
        ]

    def whole_name(self, data: str | None) -> str | None:
        """A word that the study knows, or the absolute path of a file or folder."""
        is_path = data is not None and data not in self.data and os.path.exists(data)
        return os.path.abspath(str(data)) if is_path else data

    def kind(self, given: str | None) -> str | None:
        """The word for the kind of the given data; None if the study needs none."""
        return self._data_words(given)[0] if self.data else None

    def _data_words(self, given: str | None) -> tuple[str, list[str]]:
        """The word for the kind of the given data, and what {data} stands for."""
        expected = f"{self.data.get('expected')} (--data says where they are)"
        kinds = {word: shlex.split(options) for word, options in self.data.items() if word != "expected"}
        require(given is not None, "data", given, expected)
        if given in kinds and "{path}" not in kinds[given]:
            return given, kinds[given]
        if not os.path.exists(str(given)):
            raise FileNotFoundError(f"data = {given}: there is no such file; expected {expected}")
        kind = next((word for word, options in kinds.items() if "{path}" in options), "")
        require(bool(kind), "data", given, expected)
        return kind, [os.path.abspath(str(given)) if word == "{path}" else word for word in kinds[kind]]

    def run(self, paper: Path, root: Path, settings: Settings) -> ChildProcessError | None:
        """Run the commands that are not done yet, those of the needed studies first.

        A needed study that is done does not run again, whatever its budget was. If some methods of a command fail, the
        others have results: then the error is returned, and the next run tries the failed ones again.
        """
        for name in self.needs:
            if not _is_done(root / name):
                Study.read(paper, name).run(paper, root, settings)
            elif settings.data is not None:
                _require_same(root / name / _STATE, {"data": settings.data})
        commands = self.commands(paper, root, settings)
        with locked(root / self.name, "study", "out"):
            return self._run(commands, root, settings)

    def _run(self, commands: list[list[str]], root: Path, settings: Settings) -> ChildProcessError | None:
        """Run the commands that are not done yet. No other process uses the folder."""
        failed = None
        state = self._state(root, settings)
        _keep(root / self.name, state)
        for number, command in enumerate(commands, start=1):
            if command in state["done"] or _has_output(command, state["done"]):
                continue
            print(f"{self.name} {number}/{len(commands)}: {typed(command)}", file=sys.stderr, flush=True)
            _clear(command, root / self.name)
            state["measured"] = _with(state["measured"], _now())
            _keep(root / self.name, state)
            try:
                _call(_resumed(command))
            except ChildProcessError as error:
                if command[0] not in _OF_SEVERAL_METHODS:
                    raise
                failed = error
                continue
            state["done"].append(command)
            _keep(root / self.name, state)
        state["measured"] = state["measured"] or [_now()]
        _keep(root / self.name, state | {"finished": failed is None})
        return failed

    def _state(self, root: Path, settings: Settings) -> dict[str, Any]:
        """What earlier runs with the same data and budget have done."""
        file = root / self.name / _STATE
        data = None if settings.data is None or not self.data else settings.data
        chosen = {"data": data, "budget": settings.budget or self.budget}
        if not file.is_file() or contents(file.parent) == [file]:  # a run that wrote nothing does not count
            return chosen | {"done": [], "measured": []}
        state = _require_same(file, chosen)
        return state | {"measured": _places(state)}


def measured_on(folder: Path) -> dict[str, Any]:
    """Date and machine of the last run that measured something in this folder.

    "earlier" has those of the runs before, if they were on another machine, on another day or with other code.
    """
    measured = _places(json.loads((folder / _STATE).read_text(encoding="utf-8")))
    return measured[-1] | ({"earlier": measured[:-1]} if measured[1:] else {})


def done_in(folder: Path) -> list[list[str]]:
    """The commands that are done for the study in a folder."""
    file = folder / _STATE
    done: list[list[str]] = json.loads(file.read_text(encoding="utf-8"))["done"] if file.is_file() else []
    return done


def _keep(folder: Path, state: Mapping[str, Any]) -> None:
    write_whole(folder / _STATE, json.dumps(state, indent=2) + "\n")


def _now() -> dict[str, Any]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return {"date": date.today().isoformat(), "machine": machine(device)}


def _places(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Dates and machines of the runs of a study, the last one last. The files of older versions have one or none."""
    measured = state.get("measured", [])
    return [measured] if isinstance(measured, dict) else measured


def _with(measured: list[Any], now: Any) -> list[Any]:
    """Each date and machine once, the present one last."""
    return [*(other for other in measured if other != now), now]


def _require_same(file: Path, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a study; refuses one that was run with other data or another budget."""
    state: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    for name, value in chosen.items():
        require(value == state[name], name, value, f"{state[name]}, as in {file}; or another --out")
    return state


def _is_done(folder: Path) -> bool:
    file = folder / _STATE
    return file.is_file() and bool(json.loads(file.read_text(encoding="utf-8")).get("finished"))


def _option(command: Sequence[str], name: str) -> Path | None:
    return Path(command[command.index(name) + 1]) if name in command else None


def _has_output(command: Sequence[str], done: Sequence[Sequence[str]]) -> bool:
    """Whether the one file that the command writes is there; files appear whole or not at all.

    Refuses a file that another command wrote.
    """
    out = _option(command, "--out")
    if out is None or not out.suffix or not out.is_file():
        return False
    for other in done:
        if _option(other, "--out") == out:
            raise ValueError(f"{out} was made by `{typed(other)}`: expected the same options, or another --out")
    return True


def _clear(command: Sequence[str], folder: Path) -> None:
    """Remove a part of the samples of `usd3 sample`, to draw all again; other commands go on by themselves."""
    out = _option(command, "--out")
    if command[0] == "sample" and out is not None and out.is_dir() and folder in out.parents:
        shutil.rmtree(out)


def _resumed(command: list[str]) -> list[str]:
    """The command that resumes a training, if it has begun; else the command itself."""
    run = _option(command, "--run")
    if run is None or not (run / "recipe.yaml").is_file():
        return command
    code = [word for name in _NAMING_CODE if name in command for word in command[command.index(name) :][:2]]
    return [command[0], "--resume", str(run), *code]


def typed(command: Sequence[str]) -> str:
    """A command as a user types it."""
    return shlex.join(command if command[0] == "python" else ["usd3", *command])


def _call(command: Sequence[str]) -> None:
    """Run a command in a process of its own, which an interruption of this one ends too."""
    words = command[1:] if command[0] == "python" else ["-m", "usd3", *command]
    try:
        status = call([sys.executable, *words])
    except KeyboardInterrupt:
        status = _INTERRUPTED
    if status == _INTERRUPTED:
        raise KeyboardInterrupt("(the same command goes on)")
    if status:
        raise ChildProcessError(f"`{typed(command)}` failed; the same command goes on from there")
