"""Folders that only one process at a time writes to."""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from usd3._internal.files import is_alive

__all__ = ["locked"]


@contextmanager
def locked(folder: Path, name: str, option: str) -> Iterator[None]:
    """Inside, no other process that calls `locked` uses the folder. It is created if it does not exist.

    The file `.NAME.lock` in the folder says which process uses it. The operating system releases a lock when its
    process ends, so the lock file of a killed process is taken over, even if its process id is in use again. If the
    block fails, folders that were created here and are still empty are removed.

    Args:
        folder: The folder.
        name: The name of the lock.
        option: The option that named the folder, for error messages.
    """
    file = folder / f".{name}.lock"
    with _created(folder, option):
        with _writable(folder, option):
            lock = _acquired(file, folder, option)
        try:
            yield
        finally:
            _release(file, lock)


@contextmanager
def _created(folder: Path, option: str) -> Iterator[None]:
    """Inside, the folder exists. If the block fails, those of its folders that are new and empty are removed."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        with _writable(folder, option):
            folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        with suppress(OSError):
            for path in missing:
                path.rmdir()
        raise


@contextmanager
def _writable(folder: Path, option: str) -> Iterator[None]:
    """Inside, an OSError becomes a ValueError about the option."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ValueError(f"{option} = {folder}: expected a folder that can be written to ({reason})") from None


def _acquired(file: Path, folder: Path, option: str) -> int:
    """The open lock file, locked and with this process named in it; ValueError if another process uses the folder."""
    while True:
        lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            held = _try_lock(lock)
            if held is False or _is_same_file(lock, file):  # else its owner has just removed it: try again
                _require_unused(_owner(lock), held, file, folder, option)
                since = datetime.now().isoformat(sep=" ", timespec="seconds")
                os.ftruncate(lock, 0)
                os.pwrite(lock, json.dumps(_this_process() | {"since": since}).encode(), 0)
                return lock
        except OSError:  # the disk is full
            _release(file, lock)
            raise
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _release(file: Path, lock: int) -> None:
    """Remove the lock file while it is still locked, so that no other process has begun to use it."""
    with suppress(OSError):
        file.unlink()
    os.close(lock)


def _try_lock(lock: int) -> bool | None:
    """Whether this process got the lock; None if the file system has no locks, as some network disks."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_same_file(lock: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), file.stat())
    except FileNotFoundError:
        return False


def _owner(lock: int) -> dict[str, Any]:
    """The process named in the lock file; empty if the file is new or damaged."""
    try:
        entry = json.loads(os.pread(lock, 4096, 0))
        return {"process": int(entry["process"]), **{name: str(entry[name]) for name in ("host", "boot", "since")}}
    except (ValueError, TypeError, KeyError):
        return {}


def _require_unused(owner: dict[str, Any], held: bool | None, file: Path, folder: Path, option: str) -> None:
    """Raise a ValueError if another process uses the folder, or may use it on another computer."""
    who = f"process {owner['process']} on {owner['host']} (since {owner['since']})" if owner else "another process"
    if held is False:
        reason = f"{who} is at work there; wait for its end, or end it"
    elif owner and _may_be_running(owner, held):
        reason = f"{who} has it; if that one is gone, remove {file}"
    else:
        return
    raise ValueError(f"{option} = {folder}: expected a folder that no other process uses, but {reason}")


def _may_be_running(owner: dict[str, Any], held: bool | None) -> bool:
    """Whether the process named in a lock file may be running although it holds no lock that we can see."""
    this = _this_process()
    if owner["boot"] == this["boot"]:
        return held is None and is_alive(owner["process"])
    return bool(owner["host"] != this["host"])  # the same host has been rebooted since, so the process is gone


def _this_process() -> dict[str, Any]:
    """The id of this process, its computer, and an id of that computer's current boot."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    boot_id = boot.read_text().strip() if boot.is_file() else socket.gethostname()
    return {"process": os.getpid(), "host": socket.gethostname(), "boot": boot_id}
