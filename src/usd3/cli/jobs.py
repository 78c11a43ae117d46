"""Commands of our own in processes of their own, some side by side."""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from usd3._internal.processes import child_environment
from usd3._internal.progress import say

__all__ = ["Job", "call", "run_jobs"]

_SECONDS_BETWEEN_LINES = 30.0
_ENDING = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
_TAIL = 4096  # bytes of a log in which its last lines are


@dataclass(frozen=True)
class Job:
    """A command `usd3 ...`; what it prints is added to a file."""

    label: str
    arguments: Sequence[str]
    log: Path


def run_jobs(title: str, jobs: Sequence[Job], at_once: int) -> dict[str, str]:
    """Run all, `at_once` side by side. By label, why those that failed did; the others go on.

    While nothing begins or ends, a line now and then says how long those that run will take, by their own logs. An
    interruption is passed on to the jobs that run, once, and waited for: a training then saves its step.
    """
    waiting, failed, told = list(jobs), dict[str, str](), time.monotonic()
    running: dict[int, tuple[Job, subprocess.Popen[bytes]]] = {}  # by their place, 0..at_once - 1
    with _terminated_as_interrupted():
        try:
            while waiting or running:
                started = [place for place in range(at_once) if place not in running][: len(waiting)]
                for place in started:
                    job = waiting.pop(0)
                    running[place] = job, _start(job, place, at_once)
                ended = [place for place, (_, process) in running.items() if process.poll() is not None]
                for job, process in map(running.pop, ended):
                    if process.returncode:
                        failed[job.label] = f"{_reason(process.returncode, job.log)} ({job.log})"
                        say(f"{title} {job.label} failed: {failed[job.label]}")
                late = bool(running) and time.monotonic() - told > _SECONDS_BETWEEN_LINES
                if started or ended or late:
                    told = time.monotonic()
                    names = [job.label + (_time_left(job.log) if late else "") for job, _ in running.values()]
                    done = len(jobs) - len(waiting) - len(running)
                    say(f"{title} {done}/{len(jobs)}  {', '.join(names)}".rstrip())
                time.sleep(0.05)
        except BaseException:
            _end([process for _, process in running.values()])
            raise
    return failed


def call(words: Sequence[str]) -> int:
    """Run a program to its end, and say with which status.

    An interruption is passed on and waited for, as `run_jobs` does it.
    """
    with _terminated_as_interrupted():
        process = subprocess.Popen(words, start_new_session=True, env=child_environment())
        try:
            return process.wait()
        except BaseException:
            _end([process])
            raise


def _start(job: Job, place: int, at_once: int) -> "subprocess.Popen[bytes]":
    """In a session of its own, so that Ctrl-C reaches it through us alone."""
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with open(job.log, "ab") as log:
        log.write(f"$ usd3 {shlex.join(job.arguments)}\n".encode())
        log.flush()
        return subprocess.Popen(
            [sys.executable, "-m", "usd3", *job.arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_share(place, at_once),
            start_new_session=True,
        )


def _share(place: int, at_once: int) -> dict[str, str]:
    """The environment of a job: threads are shared out among the jobs, and so are GPUs, if there are several.

    Its log shows where an error arose.
    """
    own = {"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // at_once)), "USD3_DEBUG": "1"} | child_environment()
    gpus = torch.cuda.device_count()
    if at_once > 1 and gpus > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")
        own["CUDA_VISIBLE_DEVICES"] = visible[place % len(visible)]
    return own


def _end(processes: Iterable["subprocess.Popen[bytes]"]) -> None:
    processes = list(processes)
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Inside, SIGTERM and a terminal that closes raise KeyboardInterrupt, so that the jobs are ended too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    signals = [number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN]  # as nohup has it

    def interrupt(number: int, frame: Any) -> None:
        for other in signals:
            signal.signal(other, signal.SIG_IGN)  # the jobs are being ended
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _reason(status: int, log: Path) -> str:
    """Why a job failed: the signal that killed it, or what it said last."""
    return f"killed by {signal.Signals(-status).name}" if status < 0 else _last_line(log)


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def _time_left(log: Path) -> str:
    """What its progress says last, as in " (1:23 left)"; lines of older jobs in the same log do not count."""
    with open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - _TAIL))
        said = file.read().decode(errors="replace").rpartition("\n$ usd3 ")[2]
    found = re.findall(r", (\d+:\d\d) left$", said, re.MULTILINE)
    return f" ({found[-1]} left)" if found else ""
