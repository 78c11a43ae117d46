"""One process at a time in a folder."""

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from usd3._internal.locks import locked

HOLD = "import sys, time, pathlib; from usd3._internal.locks import locked\n"
HOLD += "with locked(pathlib.Path(sys.argv[1]), 'run', 'run'): print('in', flush=True); time.sleep(60)"


def named(folder, **changes):
    """Write a lock that nobody holds."""
    with locked(folder, "run", "run"):
        content = json.loads((folder / ".run.lock").read_text())
    (folder / ".run.lock").write_text(json.dumps(content | changes))


def refusal(folder) -> str:
    with (
        pytest.raises(ValueError, match="expected a folder that no other process uses") as seen,
        locked(folder, "run", "resume"),
    ):
        pass
    assert "\n" not in str(seen.value)
    return str(seen.value)


def test_a_folder_in_use_is_refused_with_the_process_that_has_it_and_taken_over_from_a_killed_one(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "in\n"
        message = refusal(tmp_path)
        assert message.startswith(f"resume = {tmp_path}: ")
        assert f"process {process.pid} on {socket.gethostname()} (since 20" in message
        assert "wait for its end, or end it" in message
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert (tmp_path / ".run.lock").is_file()
    with locked(tmp_path, "run", "run"):
        assert json.loads((tmp_path / ".run.lock").read_text())["process"] == os.getpid()
        refusal(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_process_that_got_the_number_of_a_dead_one_hinders_nobody(tmp_path):
    named(tmp_path, process=os.getppid())
    with locked(tmp_path, "run", "run"):
        pass


def test_a_process_of_another_computer_cannot_be_asked(tmp_path):
    named(tmp_path, host="elsewhere", boot="another")
    assert "process" in refusal(tmp_path)
    assert refusal(tmp_path).endswith(
        f"on elsewhere (since {_since(tmp_path)}) has it; if that one is gone, remove {tmp_path / '.run.lock'}"
    )
    (tmp_path / ".run.lock").unlink()
    named(tmp_path, boot="before this computer was started anew")
    with locked(tmp_path, "run", "run"):
        pass


def _since(folder) -> str:
    return json.loads((folder / ".run.lock").read_text())["since"]


def test_disks_without_locks_are_judged_by_the_number_of_the_process(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    named(tmp_path)
    assert f"remove {tmp_path / '.run.lock'}" in refusal(tmp_path)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / ".run.lock").unlink()
    named(tmp_path, process=dead.pid)
    with locked(tmp_path, "run", "run"):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "{", "[]", '{"process": 1}'])
def test_a_damaged_file_hinders_nobody(tmp_path, content):
    (tmp_path / ".run.lock").write_text(content)
    with locked(tmp_path, "run", "run"):
        pass


def test_what_fails_leaves_no_folder(tmp_path):
    def fail(folder):
        with locked(folder, "run", "run"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"run = .*/file/sub: expected a folder that can be written to \(Not a dir"):
        fail(tmp_path / "file" / "sub")
    with pytest.raises(ValueError, match=r"run = .*/file: expected a folder that can be written to \(File exists"):
        fail(tmp_path / "file")


def test_where_there_is_no_room_for_it_nothing_is_left(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with (
        pytest.raises(ValueError, match=r"run = .*/new: expected a folder that can be .* \(No space left on device\)"),
        locked(tmp_path / "new", "run", "run"),
    ):
        pass
    assert not list(tmp_path.iterdir())
