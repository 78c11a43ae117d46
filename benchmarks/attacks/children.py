"""The program in a child process, where it may take so much time and memory, and what its end says.

A child is forked after all imports, which would take seconds each time; then it does what `usd3` does.
"""

import hashlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from usd3.__main__ import main as usd3_main
from usd3._internal.interrupts import exit_on_interrupt

__all__ = ["Child", "Ended", "Program", "complaint", "contents", "run_usd3", "usd3_main"]

Program = Callable[[], int]

MOST_SECONDS = 30.0
MOST_MEMORY = 2**30  # that a child may have more than its parent
_MOST_ADDRESSES = 3 * 2**30  # beyond which nothing can be allocated; memory that is never used counts, too
_OUT_OF_MEMORY = ("MemoryError", "allocate memory", "Unable to allocate", "not enough memory", "bad_alloc")
_CAUGHT = (signal.SIGINT, signal.SIGTERM)
_UNFORESEEN = "USD3_DEBUG=1 shows where"


@dataclass(frozen=True)
class Ended:
    """How a child ended: its status, negative where a signal ended it; its memory beyond that of its parent."""

    status: int
    seconds: float
    memory: int
    err: str

    @property
    def lines(self) -> list[str]:
        """What it wrote to stderr, without its warnings."""
        return [line for line in self.err.splitlines() if line and not line.startswith("usd3: warning: ")]


class Child:
    """`usd3 ARGUMENTS` in a folder, in a process of its own."""

    def __init__(self, arguments: Sequence[str], folder: Path, program: Program = usd3_main):
        self.folder, self.begun = folder, time.monotonic()
        self._err = folder.parent / f"{folder.name}.{time.monotonic_ns()}.err"
        self._err.touch()
        self._memory = _memory("VmRSS")
        signal.pthread_sigmask(signal.SIG_BLOCK, _CAUGHT)  # until the child is the program
        self.number = os.fork()
        if self.number == 0:
            _be_the_program(arguments, folder, self._err, program)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _CAUGHT)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; it has not been waited for, so the number is still its own."""
        os.kill(self.number, number)

    def wait(self, seconds: float = MOST_SECONDS) -> Ended:
        """Wait for the end, and make it one after so many seconds."""
        while True:
            number, status, usage = os.wait4(self.number, os.WNOHANG)
            spent = time.monotonic() - self.begun
            if number:
                break
            if spent > seconds:
                os.kill(self.number, signal.SIGKILL)
            time.sleep(0.003)
        err = self._err.read_text(errors="replace")
        self._err.unlink()
        return Ended(os.waitstatus_to_exitcode(status), spent, usage.ru_maxrss * 1024 - self._memory, err)


def run_usd3(arguments: Sequence[str], folder: Path, program: Program = usd3_main) -> Ended:
    """Run `usd3 ARGUMENTS` in a folder to its end."""
    return Child(arguments, folder, program).wait()


def complaint(ended: Ended, command: str) -> str | None:
    """What is wrong with how a command ended; None where it worked, or refused in one line that was foreseen."""
    text = " | ".join(ended.err.splitlines()[-3:])[-400:]
    if ended.seconds > MOST_SECONDS:
        return f"took more than {MOST_SECONDS:g} s"
    if ended.memory > MOST_MEMORY or any(word in ended.err for word in _OUT_OF_MEMORY):
        return f"took {ended.memory / 2**20:.0f} MB: {text}"
    if ended.status not in (0, 1, 2):
        return f"ended with status {ended.status}: {text}"
    if "Traceback" in ended.err:
        return f"showed a traceback: {text}"
    if ended.status == 0:
        return None
    if len(ended.lines) != 1 or not ended.lines[0].startswith(f"usd3 {command}: error: "):
        return f"answered {len(ended.lines)} lines: {text}"
    return f"did not foresee it: {text}" if _UNFORESEEN in ended.err else None


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder, by a hash of its bytes."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _be_the_program(arguments: Sequence[str], folder: Path, err: Path, program: Program) -> None:
    """In the child: become the program, and end."""
    status = 70
    try:
        os.chdir(folder)
        for stream, place in ((1, os.devnull), (2, str(err))):
            os.dup2(os.open(place, os.O_WRONLY), stream)
        sys.stdout, sys.stderr = (os.fdopen(stream, "w", buffering=1) for stream in (1, 2))
        most = _memory("VmSize") + _MOST_ADDRESSES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        sys.argv = ["usd3", *arguments]
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        exit_on_interrupt()  # as the program begins
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _CAUGHT)
        status = program()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
