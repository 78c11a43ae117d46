"""The processes that `usd3 compare` and `usd3 paper run` start: what they import, and when they end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from usd3.cli import jobs

# a training that saves when it is told to end, started in place of `usd3`
SLOW = """
import os, pathlib, signal, sys, time
from usd3._internal.processes import end_with_parent
def save(*_):
    time.sleep(0.1)
    pathlib.Path("saved").touch()
    os._exit(1)
signal.signal(signal.SIGTERM, save)
end_with_parent()
pathlib.Path("begun").touch()
time.sleep(60)
"""
PARENT = """
import subprocess, sys
from pathlib import Path
from usd3.cli import jobs
real = subprocess.Popen
jobs.subprocess.Popen = lambda words, **options: real([sys.executable, "slow.py"], **options)
jobs.run_jobs("training", [jobs.Job("a", ["train"], Path("a.log"))], 1)
"""


def appears(path: Path) -> bool:
    until = time.monotonic() + 30
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.02)
    return path.exists()


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGHUP,
        pytest.param(signal.SIGKILL, marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells")),
    ],
)
def test_jobs_end_with_the_command_that_started_them(number, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        assert appears(tmp_path / "begun")
        parent.send_signal(number)
        assert appears(tmp_path / "saved")
        parent.communicate(timeout=30)
    finally:
        parent.kill()


def test_a_command_that_ignores_a_closed_terminal_goes_on():
    """As nohup has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with jobs._terminated_as_interrupted():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_signal_does_not_leave_jobs_behind():
    ended = []

    def interrupted():
        with jobs._terminated_as_interrupted():
            try:
                os.kill(os.getpid(), signal.SIGHUP)
                time.sleep(1)
            finally:  # where the jobs are ended
                for number in (signal.SIGHUP, signal.SIGTERM):
                    os.kill(os.getpid(), number)
                ended.append("a")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert ended == ["a"]


@pytest.mark.parametrize("first", ["", None], ids=["python -m usd3", "usd3"])
def test_jobs_import_from_the_current_folder_only_if_we_do(first, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if first is not None:
        monkeypatch.syspath_prepend(first)
    (tmp_path / "yaml.py").write_text("import pathlib\npathlib.Path('imported').touch()\nraise SystemExit(3)\n")
    failed = jobs.run_jobs("saying", [jobs.Job("a", ["--version"], tmp_path / "a.log")], 1)
    assert bool(failed) is (first is not None)
    assert (tmp_path / "imported").exists() is (first is not None)
    words = [sys.executable, "-m", "usd3", "--version"]
    assert jobs.call(words) == (0 if first is None else 3)
