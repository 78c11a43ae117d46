"""The commands of a study as processes: how they are typed, resumed, and stopped when their time is over."""

import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from usd3.cli.jobs import call

__all__ = ["Deadline", "option", "run_command", "typed"]

_NAMING_CODE = (
    "--data.kind",
    "--model.net",
    "--method.name",
    "--trust_code",
)  # repeated when a run is resumed
_INTERRUPTED = 130
_GOES_ON = "the same command goes on"


class Deadline:
    """The moment after which no command may run; one that runs is ended, a training with a checkpoint.

    Args:
        minutes: from now; None: there is no end.
    """

    def __init__(self, minutes: float | None = None):
        self.minutes, self._began = minutes, time.monotonic()

    def seconds_left(self) -> float | None:
        """Seconds until then; None: there is no end. Raises KeyboardInterrupt if it is over."""
        if self.minutes is None:
            return None
        left = 60 * self.minutes - (time.monotonic() - self._began)
        if left <= 0:
            raise self.over()
        return left

    def over(self) -> KeyboardInterrupt:
        """The interruption that says what to do next."""
        return KeyboardInterrupt(f"(stopped after {self.minutes:g} minutes; {_GOES_ON})")


def run_command(command: Sequence[str], deadline: Deadline) -> None:
    """Run a command in a process of its own, which an interruption of this one and the deadline end too.

    A training that has begun is resumed.
    """
    command, seconds = _resumed(list(command)), deadline.seconds_left()
    words = command[1:] if command[0] == "python" else ["-m", "usd3", *command]
    try:
        status = call([sys.executable, *words], seconds)
    except subprocess.TimeoutExpired:
        raise deadline.over() from None
    except KeyboardInterrupt:
        status = _INTERRUPTED
    if status == _INTERRUPTED:
        raise KeyboardInterrupt(f"({_GOES_ON})")
    if status:
        raise ChildProcessError(f"`{typed(command)}` failed; {_GOES_ON} from there")


def typed(command: Sequence[str]) -> str:
    """A command as a user types it."""
    return shlex.join(command if command[0] == "python" else ["usd3", *command])


def option(command: Sequence[str], name: str) -> Path | None:
    """The file or folder that an option names; None: the command does not have it."""
    return Path(command[command.index(name) + 1]) if name in command else None


def _resumed(command: list[str]) -> list[str]:
    """The command that resumes a training, if it has begun; else the command itself."""
    run = option(command, "--run")
    if run is None or not (run / "recipe.yaml").is_file():
        return command
    code = [word for name in _NAMING_CODE if name in command for word in command[command.index(name) :][:2]]
    return [command[0], "--resume", str(run), *code]
