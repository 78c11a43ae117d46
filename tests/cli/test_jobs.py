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
import signal, subprocess, sys
from pathlib import Path
from usd3.cli import jobs
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where nohup started the tests
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


@pytest.fixture
def closing_terminal():
    """SIGHUP as a terminal has it; it is ignored where nohup started the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_second_signal_does_not_leave_jobs_behind(closing_terminal):
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


def test_an_interruption_ends_the_jobs(tmp_path, monkeypatch):
    real, started = subprocess.Popen, []

    def sleeping(arguments, **options):
        started.append(real([sys.executable, "-c", "import time; time.sleep(60)"], **options))
        return started[-1]

    def interrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs.subprocess, "Popen", sleeping)
    monkeypatch.setattr(jobs.time, "sleep", interrupted)
    todo = [jobs.Job(name, ["train"], tmp_path / f"{name}.log") for name in "abc"]
    with pytest.raises(KeyboardInterrupt):
        jobs.run_jobs("training", todo, 2)
    assert [process.poll() for process in started] == [-15, -15]
    assert not (tmp_path / "c.log").exists()


def test_a_line_now_and_then_says_how_long_it_takes(tmp_path, monkeypatch, capsys):
    """By what each job wrote last; one that goes on with an old log has nothing to say at first."""
    real, lines = subprocess.Popen, {"a": "training 2/9  step 2  0:03 elapsed, 1:23 left", "b": "reading"}

    def short(arguments, **options):
        return real([sys.executable, "-c", f"print({lines[arguments[-1]]!r}); import time; time.sleep(0.6)"], **options)

    monkeypatch.setattr(jobs.subprocess, "Popen", short)
    monkeypatch.setattr(jobs, "_SECONDS_BETWEEN_LINES", 0.4)
    (tmp_path / "b.log").write_text("$ usd3 b\ntraining 8/9  0:08 elapsed, 7:07 left\n")
    assert jobs.run_jobs("training", [jobs.Job(name, [name], tmp_path / f"{name}.log") for name in "ab"], 2) == {}
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "training 0/2  a, b"
    assert "training 0/2  a (1:23 left), b" in said
    assert said[-1] == "training 2/2"


def test_jobs_side_by_side_share_threads_and_gpus(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("torch.get_num_threads", lambda: 8)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    shares = [jobs._share(place, 3) for place in range(3)]
    assert [share["CUDA_VISIBLE_DEVICES"] for share in shares] == ["0", "1", "0"]
    assert {share["OMP_NUM_THREADS"] for share in shares} == {"2"}
    assert "CUDA_VISIBLE_DEVICES" not in jobs._share(0, 1)  # one job may use all
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert [jobs._share(place, 2)["CUDA_VISIBLE_DEVICES"] for place in range(2)] == ["5", "7"]
    assert jobs._share(0, 2)["OMP_NUM_THREADS"] == "1"


def test_a_program_ends_with_its_time_and_has_saved_by_then(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow.py").write_text(SLOW.replace("end_with_parent()", ""))
    wait = subprocess.Popen.wait

    def waited(process, timeout=None):
        assert timeout is None or appears(tmp_path / "begun")  # its time begins when it does
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", waited)
    with pytest.raises(subprocess.TimeoutExpired):
        jobs.call([sys.executable, "slow.py"], 0.05)
    assert (tmp_path / "saved").exists()
    assert jobs.call([sys.executable, "-c", "raise SystemExit(3)"]) == 3
