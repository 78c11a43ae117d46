"""A study: commands of `usd3` that run one after the other, and go on where they stopped."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from usd3._internal.checks import require
from usd3._internal.locks import locked
from usd3._internal.yaml_json import read_yaml
from usd3_paper.processes import Deadline, option, run_command, typed
from usd3_paper.state import done_in, is_done, keep, now, require_same, state_of, with_last

__all__ = ["Settings", "Study", "precision"]

_DATA = "{data}"
_OF_SEVERAL_METHODS = ("compare", "cost")  # if some methods fail, the others have results


@dataclass(frozen=True)
class Settings:
    """The options of a run: see `usd3.cli.paper.PaperOptions`."""

    data: str | None
    budget: float | None
    limit: int | None
    jobs: int
    inception: str | None = None
    steps: int | None = None
    trainings: int | None = None


@dataclass(frozen=True)
class Study:
    """A study, as `studies/NAME.yaml` describes it.

    Args:
        name: the name of the file.
        about: what it trains and measures, in a line.
        stages: commands without the word usd3, or a script after the word python. In them {out} stands for the folder
            of the study, {NAME} for the folder of a study in `needs`, {paper} for the folder of the tables, {data} for
            the data, {steps}, {budget}, {limit}, {jobs} and {inception} for the options of the same names, {quarter}
            for a quarter of the steps, {precision} and {compile} for what suits the device.
        results: its files and folders with results, and the command that wrote each: see `usd3_paper.results`.
        words: parts that commands share; {NAME} in a command, or in an earlier part, stands for the part of that name.
        steps: of each training by default.
        budget: minutes of each training by default.
        trainings: how many trainings each method has by default. {NAME} stands for the number of that name, so that
            some methods can have more trainings than others; the option `trainings` sets all of them.
        limit: the default of {limit}.
        objects: the objects of each kind of data, of which an estimate draws random ones: "shape", "categories" and how
            many are "held_out".
        data: under "expected" a description of the data. Under each other word, {kind}, what {data} stands for if the
            user gives that word; or, if it contains {path}, if the user gives a file or folder. Empty: it needs no
            data.
        needs: studies to run before this one.
        pictures: files to publish with the results, and to show in the tables.
        files: further files to publish.
    """

    name: str
    about: str
    stages: Sequence[str]
    results: Mapping[str, str]
    words: Mapping[str, str] = field(default_factory=dict)
    steps: int | None = None
    budget: float | None = None
    trainings: Mapping[str, int] = field(default_factory=dict)
    limit: int | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    objects: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
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

    def uses(self, paper: Path, setting: str) -> bool:
        """Whether a field of `Settings` changes anything in this study or in one that it needs."""
        names = {f"{{{setting}}}"} | ({"{quarter}"} if setting == "steps" else set())
        used = any(name in stage for name in names for stage in self._stages())
        used |= setting == "trainings" and bool(self.trainings)
        return used or any(Study.read(paper, name).uses(paper, setting) for name in self.needs)

    def uses_precision(self) -> bool:
        """Whether its trainings have the precision of the machine."""
        return any("{precision}" in stage for stage in self._stages())

    def _stages(self) -> list[str]:
        """The commands with the parts that they share."""
        stages = list(self.stages)
        for name, part in self.words.items():
            stages = [stage.replace(f"{{{name}}}", part) for stage in stages]
        return stages

    def commands(self, paper: Path, root: Path, settings: Settings) -> list[list[str]]:
        """The commands as lists of words; `root` has a folder for each study."""
        budget, steps = settings.budget or self.budget or 0.0, settings.steps or self.steps or 0
        values = {
            "out": root / self.name,
            **{name: root / name for name in self.needs},
            "paper": paper,
            "budget": f"{budget:g}",
            "steps": steps,
            "quarter": max(1, steps // 4),
            **{name: settings.trainings or count for name, count in self.trainings.items()},
            "limit": "null" if (limit := settings.limit or self.limit) is None else limit,
            "jobs": settings.jobs,
            "inception": "null" if settings.inception is None else os.path.abspath(settings.inception),
            "precision": precision(),
            "compile": "true" if torch.cuda.is_available() else "false",
        }
        words = [shlex.split(stage) for stage in self._stages()]
        data: list[str] = []
        if any(_DATA in stage for stage in words):
            values["kind"], data = self._data_words(settings.data)
        return [
            [part for word in stage for part in (data if word == _DATA else [word.format_map(values)])]
            for stage in words
        ]

    def whole_name(self, data: str | None) -> str | None:
        """A word that the study knows, or the absolute path of a file or folder."""
        is_path = data is not None and not self._is_word(data) and os.path.exists(data)
        return os.path.abspath(str(data)) if is_path else data

    def _is_word(self, given: str | None) -> bool:
        """Whether it stands for data by itself, as bach does; the name of a kind that is a file does not."""
        return given in self.kinds() and "{path}" not in self.data[given]

    def kind(self, given: str | None) -> str | None:
        """The word for the kind of the given data; None if the study needs none."""
        return self._data_words(given)[0] if self.data else None

    def kinds(self) -> list[str]:
        """The words for the kinds of data that it knows."""
        return [kind for kind in self.data if kind != "expected"]

    def placeholder(self) -> str:
        """A word in place of data that are not given: the first kind that is a file, in capitals."""
        return next((kind for kind, words in self.data.items() if "{path}" in words), "data").upper()

    def require_data(self, given: str | None) -> None:
        """Raise an error if the study needs data and these do not exist."""
        if self.kind(given) is not None and not self._is_word(given) and not os.path.exists(str(given)):
            expected = f"{self.data.get('expected')} (--data says where they are)"
            raise FileNotFoundError(f"data = {given}: there is no such file; expected {expected}")

    def _data_words(self, given: str | None) -> tuple[str, list[str]]:
        """The word for the kind of the given data, and what {data} stands for."""
        expected = f"{self.data.get('expected')} (--data says where they are)"
        kinds = {kind: shlex.split(self.data[kind]) for kind in self.kinds()}
        require(given is not None, "data", given, expected)
        if given is not None and self._is_word(given):
            return given, kinds[given]
        kind = next((word for word, options in kinds.items() if "{path}" in options), "")
        require(bool(kind), "data", given, expected)
        return kind, [os.path.abspath(str(given)) if word == "{path}" else word for word in kinds[kind]]

    def run(self, paper: Path, root: Path, settings: Settings, deadline: Deadline) -> ChildProcessError | None:
        """Run the commands that are not done yet, those of the needed studies first.

        A needed study that is done does not run again, whatever its budget was. If some methods of a command fail, the
        others have results: then the error is returned, and the next run tries the failed ones again.
        """
        for name in self.needs:
            if not is_done(root / name):
                Study.read(paper, name).run(paper, root, settings, deadline)
            elif settings.data is not None:
                require_same(root / name, {"data": settings.data})
        commands = self.commands(paper, root, settings)
        with locked(root / self.name, "study", "out"):
            return self._run(commands, root, settings, deadline)

    def _run(
        self, commands: list[list[str]], root: Path, settings: Settings, deadline: Deadline
    ) -> ChildProcessError | None:
        """Run the commands that are not done yet. No other process uses the folder."""
        failed = None
        state = self._state(root, settings)
        keep(root / self.name, state)
        for number, command in enumerate(commands, start=1):
            if command in _valid(state["done"], commands) or _has_output(command, state["done"]):
                continue
            deadline.seconds_left()  # ends here if none are left
            print(f"{self.name} {number}/{len(commands)}: {typed(command)}", file=sys.stderr, flush=True)
            _clear(command, root / self.name)
            state["finished"] = False
            state["done"] = _without_scripts(state["done"], commands[number:])
            state["measured"] = with_last(state["measured"], now())
            keep(root / self.name, state)
            try:
                run_command(command, deadline)
            except ChildProcessError as error:
                if command[0] not in _OF_SEVERAL_METHODS:
                    raise
                failed = error
                continue
            state["done"] = with_last(state["done"], command)
            keep(root / self.name, state)
        state["measured"] = state["measured"] or [now()]
        keep(root / self.name, state | {"finished": failed is None})
        return failed

    def left(self, paper: Path, root: Path, settings: Settings) -> list[list[str]]:
        """The commands that are not done yet, without those of the studies that it needs."""
        commands = self.commands(paper, root, settings)
        done = _valid(done_in(root / self.name), commands)
        return [command for command in commands if command not in done]

    def chosen(self, settings: Settings) -> dict[str, Any]:
        """The data, steps and minutes, which all trainings of a run share."""
        data = None if settings.data is None or not self.data else settings.data
        return {"data": data, "budget": settings.budget or self.budget, "steps": settings.steps or self.steps}

    def _state(self, root: Path, settings: Settings) -> dict[str, Any]:
        """What earlier runs with the same data, steps and minutes have done."""
        return state_of(root / self.name, self.chosen(settings))


def precision() -> str:
    """The precision of trainings on this machine."""
    return "bf16" if torch.cuda.is_available() else "fp32"


def _valid(done: Sequence[list[str]], commands: Sequence[list[str]]) -> list[list[str]]:
    """The commands that are done, without those whose results another one replaced, such as one of fewer trainings.

    Several stages may write to a folder: the last of the `commands` that does must be the last that did.
    """
    wanted, did = ({option(command, "--out"): command for command in part} for part in (commands, done))
    replaced = [command for out, command in wanted.items() if out is not None and did.get(out) != command]
    return [command for command in done if command not in replaced]


def _has_output(command: Sequence[str], done: Sequence[Sequence[str]]) -> bool:
    """Whether the one file that the command writes is there; files appear whole or not at all.

    Refuses a file that another command wrote.
    """
    out = option(command, "--out")
    if out is None or not out.suffix or not out.is_file():
        return False
    for other in done:
        if option(other, "--out") == out:
            raise ValueError(f"{out} was made by `{typed(other)}`: expected the same options, or another --out")
    return True


def _without_scripts(done: list[list[str]], later: Sequence[Sequence[str]]) -> list[list[str]]:
    """The commands that are done, but for later scripts: they read what is measured now. Their files are removed."""
    scripts = [list(command) for command in later if command[0] == "python"]
    for out in filter(None, (option(script, "--out") for script in scripts)):
        out.unlink(missing_ok=True)
    return [command for command in done if command not in scripts]


def _clear(command: Sequence[str], folder: Path) -> None:
    """Remove a part of the samples of `usd3 sample`, to draw all again; other commands go on by themselves."""
    out = option(command, "--out")
    if command[0] == "sample" and out is not None and out.is_dir() and folder in out.parents:
        shutil.rmtree(out)
