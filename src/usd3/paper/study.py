"""A study: commands of `usd3` that are run one after the other, and go on where they were stopped."""

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

__all__ = ["Settings", "Study", "done_in", "measured_on", "shown"]

_STATE = "study.json"
_DATA = "{data}"
_OF_SEVERAL = ("compare", "cost")  # commands of which some methods may fail
_OF_CODE = ("--model.net", "--method.name", "--trust_code")  # what a run that goes on is told again
_INTERRUPTED = 130


@dataclass(frozen=True)
class Settings:
    """What a study is run with; `limit` is null where the study itself says how much is measured."""

    data: str | None
    budget: float | None
    limit: int | None
    jobs: int
    inception: str | None = None


@dataclass(frozen=True)
class Study:
    """What `studies/NAME.yaml` says.

    Args:
        name: of the file.
        about: what it trains and measures, in a line.
        steps: commands without the word usd3, or a script after the word python. In them {out} stands for the folder
            of the study, {NAME} for that of a study in `needs`, {paper} for the folder of the tables, {data} for what
            `data` says, {budget}, {limit}, {jobs} and {inception} for the options of the same names, {quarter} for a
            quarter of the budget, {precision} and {compile} for what the device is good at.
        results: which of its files and folders have the results, and how they are read: see `usd3.paper.results`.
        budget: minutes of each training, where no others are asked for.
        limit: what {limit} is where nothing is asked for.
        data: by `expected`, in words, what the data are; by other words what {data} is where that word is given, or
            where a file or folder is given, whose {path} it names. {kind} is the word. Empty: it needs no data.
        needs: studies that are run before.
        pictures: those of its files to publish with the results, and to show in its tables.
        files: others of its files to publish.
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
        """From the folder of the tables."""
        file = paper / "studies" / f"{name}.yaml"
        try:
            return cls(name, **read_yaml(file))
        except (OSError, TypeError, ValueError) as error:
            raise ValueError(f"{file}: expected a study ({' '.join(str(error).split())})") from None

    def uses(self, paper: Path, option: str) -> bool:
        """Whether an option of `Settings` changes anything, here or in a study that is needed."""
        names = {f"{{{option}}}"} | ({"{quarter}"} if option == "budget" else set())
        own = any(name in step for name in names for step in self.steps)
        return own or any(Study.read(paper, name).uses(paper, option) for name in self.needs)

    def commands(self, paper: Path, root: Path, settings: Settings) -> list[list[str]]:
        """What is run, word by word; `root` has a folder for each study."""
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
        """A word that the study knows, or the whole path of a file or folder."""
        known = data is None or data in self.data or not os.path.exists(data)
        return data if known else os.path.abspath(str(data))

    def kind(self, given: str | None) -> str | None:
        """The word of the data that are given; None where it needs none."""
        return self._data_words(given)[0] if self.data else None

    def _data_words(self, given: str | None) -> tuple[str, list[str]]:
        """Which kind of data it is, and what the commands are told of them."""
        expected = f"{self.data.get('expected')} (--data says where they are)"
        kinds = {word: shlex.split(told) for word, told in self.data.items() if word != "expected"}
        require(given is not None, "data", given, expected)
        named = [word for word, told in kinds.items() if word == given and "{path}" not in told]
        if named:
            return named[0], kinds[named[0]]
        if not os.path.exists(str(given)):
            raise FileNotFoundError(f"data = {given}: there is no such file; expected {expected}")
        kind = next((word for word, told in kinds.items() if "{path}" in told), "")
        require(bool(kind), "data", given, expected)
        return kind, [os.path.abspath(str(given)) if word == "{path}" else word for word in kinds[kind]]

    def run(self, paper: Path, root: Path, settings: Settings) -> ChildProcessError | None:
        """Run what is not done yet, that of the studies it needs first.

        A study that is done is not run again for another that needs it, whatever its budget was. Where some methods of
        a command failed, the others have results: the error is returned, and the same study tries those again.
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
        """The commands that are not done yet, in a folder that is ours."""
        failed = None
        state = self._state(root, settings)
        _keep(root / self.name, state)
        for number, command in enumerate(commands, start=1):
            if command in state["done"] or _has_output(command, state["done"]):
                continue
            print(f"{self.name} {number}/{len(commands)}: {shown(command)}", file=sys.stderr, flush=True)
            _clear(command, root / self.name)
            state["measured"] = _with(state["measured"], _now())
            _keep(root / self.name, state)
            try:
                _call(_resumed(command))
            except ChildProcessError as error:
                if command[0] not in _OF_SEVERAL:
                    raise
                failed = error
                continue
            state["done"].append(command)
            _keep(root / self.name, state)
        state["measured"] = state["measured"] or [_now()]
        _keep(root / self.name, state | {"finished": failed is None})
        return failed

    def _state(self, root: Path, settings: Settings) -> dict[str, Any]:
        """What was done before, with the same data and the same budget."""
        file = root / self.name / _STATE
        data = None if settings.data is None or not self.data else settings.data
        asked = {"data": data, "budget": settings.budget or self.budget}
        if not file.is_file() or contents(file.parent) == [file]:  # or nothing came of it
            return asked | {"done": [], "measured": []}
        state = _require_same(file, asked)
        return state | {"measured": _places(state)}


def measured_on(folder: Path) -> dict[str, Any]:
    """When and on what machine the study in a folder was run last; "earlier", where it was begun elsewhere, or on
    another day, or with other code.

    What is only shown again stays as it is.
    """
    measured = _places(json.loads((folder / _STATE).read_text(encoding="utf-8")))
    return measured[-1] | ({"earlier": measured[:-1]} if measured[1:] else {})


def done_in(folder: Path) -> list[list[str]]:
    """The commands that were run for the study in a folder."""
    file = folder / _STATE
    found: list[list[str]] = json.loads(file.read_text(encoding="utf-8"))["done"] if file.is_file() else []
    return found


def _keep(folder: Path, state: Mapping[str, Any]) -> None:
    write_whole(folder / _STATE, json.dumps(state, indent=2) + "\n")


def _now() -> dict[str, Any]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return {"date": date.today().isoformat(), "machine": machine(device)}


def _places(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All that a study was run on, the last one last; older runs have one alone, or none."""
    measured = state.get("measured", [])
    return [measured] if isinstance(measured, dict) else measured


def _with(measured: list[Any], now: Any) -> list[Any]:
    """Those places and the present one, which is the last; each once."""
    return [*(other for other in measured if other != now), now]


def _require_same(file: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says about a study; refuses one that was run in another way."""
    state: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    for name, value in asked.items():
        require(value == state[name], name, value, f"{state[name]}, as in {file}; or another --out")
    return state


def _is_done(folder: Path) -> bool:
    file = folder / _STATE
    return file.is_file() and bool(json.loads(file.read_text(encoding="utf-8")).get("finished"))


def _option(command: Sequence[str], name: str) -> Path | None:
    return Path(command[command.index(name) + 1]) if name in command else None


def _has_output(command: Sequence[str], done: Sequence[Sequence[str]]) -> bool:
    """Whether it writes one file, which is there: files appear whole or not at all. Refuses one of another command."""
    out = _option(command, "--out")
    if out is None or not out.suffix or not out.is_file():
        return False
    for other in done:
        if _option(other, "--out") == out:
            raise ValueError(f"{out} was made by `{shown(other)}`: expected the same options, or another --out")
    return True


def _clear(command: Sequence[str], own: Path) -> None:
    """Samples of which only a part was written are drawn again; other commands go on by themselves."""
    out = _option(command, "--out")
    if command[0] == "sample" and out is not None and out.is_dir() and own in out.parents:
        shutil.rmtree(out)


def _resumed(command: list[str]) -> list[str]:
    """A training that was begun goes on."""
    run = _option(command, "--run")
    if run is None or not (run / "recipe.yaml").is_file():
        return command
    trusted = [word for name in _OF_CODE if name in command for word in command[command.index(name) :][:2]]
    return [command[0], "--resume", str(run), *trusted]


def shown(command: Sequence[str]) -> str:
    """As one types it."""
    return shlex.join(command if command[0] == "python" else ["usd3", *command])


def _call(command: Sequence[str]) -> None:
    """In a process of its own, which is interrupted with us."""
    words = command[1:] if command[0] == "python" else ["-m", "usd3", *command]
    try:
        status = call([sys.executable, *words])
    except KeyboardInterrupt:
        status = _INTERRUPTED
    if status == _INTERRUPTED:
        raise KeyboardInterrupt("(the same command goes on)")
    if status:
        raise ChildProcessError(f"`{shown(command)}` failed; the same command goes on from there")
