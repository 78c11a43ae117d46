"""Run commands of usd3 in processes of their own, several at a time."""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
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
_TAIL = 4096  # bytes at the end of a log that are searched


@dataclass(frozen=True)
class Job:
    """A command `usd3 ...`.

    Args:
        label: its name in messages.
        arguments: the words after `usd3`.
        log: the file that its output is appended to.
    """

    label: str
    arguments: Sequence[str]
    log: Path


def run_jobs(title: str, jobs: Sequence[Job], at_once: int) -> dict[str, str]:
    """Run all jobs; returns the reason of each failure, by the label of its job.

    If a job fails, the others go on. While no job begins or ends, a line every 30 seconds says how long the running
    jobs will take, according to their logs. An interruption ends the running jobs and waits for them: a training then
    saves a checkpoint.

    Args:
        title: what the jobs do, for messages.
        jobs: the jobs, in the order in which they start.
        at_once: number of jobs that run at the same time.
    """
    waiting, failed, last_line = list(jobs), dict[str, str](), time.monotonic()
    running: dict[int, tuple[Job, subprocess.Popen[bytes]]] = {}  # by slot, 0..at_once - 1
    with _terminated_as_interrupted():
        try:
            while waiting or running:
                started = [slot for slot in range(at_once) if slot not in running][: len(waiting)]
                for slot in started:
                    job = waiting.pop(0)
                    running[slot] = job, _start(job, slot, at_once)
                ended = [slot for slot, (_, process) in running.items() if process.poll() is not None]
                for job, process in map(running.pop, ended):
                    if process.returncode:
                        failed[job.label] = f"{_reason(process.returncode, job.log)} ({job.log})"
                        say(f"{title} {job.label} failed: {failed[job.label]}")
                late = bool(running) and time.monotonic() - last_line > _SECONDS_BETWEEN_LINES
                if started or ended or late:
                    last_line = time.monotonic()
                    names = [job.label + (_time_left(job.log) if late else "") for job, _ in running.values()]
                    done = len(jobs) - len(waiting) - len(running)
                    say(f"{title} {done}/{len(jobs)}  {', '.join(names)}".rstrip())
                time.sleep(0.05)
        except BaseException:
            _end([process for _, process in running.values()])
            raise
    return failed


def call(words: Sequence[str], seconds: float | None = None) -> int:
    """Run a program and return its exit status. An interruption ends the program and waits for it.

    So does the end of its time, after `seconds`; then subprocess.TimeoutExpired is raised. None: any time.
    """
    with _terminated_as_interrupted():
        process = subprocess.Popen(words, start_new_session=True, env=child_environment())
        try:
            return process.wait(seconds)
        except BaseException:
            _end([process])
            raise


def _start(job: Job, slot: int, at_once: int) -> "subprocess.Popen[bytes]":
    """Start a job in a session of its own, so that Ctrl-C reaches it only through this process."""
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with open(job.log, "ab") as log:
        log.write(f"$ usd3 {shlex.join(job.arguments)}\n".encode())
        log.flush()
        return subprocess.Popen(
            [sys.executable, "-m", "usd3", *job.arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_share(slot, at_once),
            start_new_session=True,
        )


def _share(slot: int, at_once: int) -> dict[str, str]:
    """The environment of a job. The jobs share the threads and, if there are several, the GPUs.

    USD3_DEBUG makes the log show where an error arose.
    """
    environment = {
        "OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // at_once)),
        "USD3_DEBUG": "1",
    } | child_environment()
    gpus = torch.cuda.device_count()
    if at_once > 1 and gpus > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")
        environment["CUDA_VISIBLE_DEVICES"] = visible[slot % len(visible)]
    return environment


def _end(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Terminate the processes and wait for them."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Inside, SIGTERM and a closing terminal raise KeyboardInterrupt, so that the jobs end too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    signals = [number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN]  # nohup ignores one

    def interrupt(number: int, frame: Any) -> None:
        for other in signals:
            signal.signal(other, signal.SIG_IGN)  # the jobs are ending already
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _reason(status: int, log: Path) -> str:
    """Why a job failed: the signal that killed it, or the last line of its log."""
    return f"killed by {signal.Signals(-status).name}" if status < 0 else _last_line(log)


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def _time_left(log: Path) -> str:
    """The last time left that a job printed into its log, such as " (1:23 left)"; empty if it printed none."""
    with open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - _TAIL))
        tail = file.read().decode(errors="replace").rpartition("\n$ usd3 ")[2]  # without earlier jobs
    times = re.findall(r", (\d+:\d\d) left$", tail, re.MULTILINE)
    return f" ({times[-1]} left)" if times else ""
