"""A folder that one process at a time writes to."""

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
    """Inside, this process has a folder to itself, which is made where there is none; `option` is what named it.

    The file `.NAME.lock` in it says which process has it. The system knows whether that one still holds the file: what
    a killed process left is taken over, also where its number belongs to another one by now. If anything fails, the
    folders that were made for it go again where nothing came into them.
    """
    file = folder / f".{name}.lock"
    with _made(folder, option):
        with _writable(folder, option):
            lock = _taken(file, folder, option)
        try:
            yield
        finally:
            _give_back(file, lock)


@contextmanager
def _made(folder: Path, option: str) -> Iterator[None]:
    """Inside, the folder is there."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        with _writable(folder, option):
            folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        with suppress(OSError):
            for path in made:
                path.rmdir()
        raise


@contextmanager
def _writable(folder: Path, option: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ValueError(f"{option} = {folder}: expected a folder that can be written to ({reason})") from None


def _taken(file: Path, folder: Path, option: str) -> int:
    """The file, open, held and with our name in it; refused where another process has it."""
    while True:
        lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            held = _hold(lock)
            if held is False or _is_there(lock, file):  # else its owner has just given it back
                _require_left(_owner(lock), held, file, folder, option)
                since = datetime.now().isoformat(sep=" ", timespec="seconds")
                os.ftruncate(lock, 0)
                os.pwrite(lock, json.dumps(_self() | {"since": since}).encode(), 0)
                return lock
        except OSError:  # there is no room for it
            _give_back(file, lock)
            raise
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _give_back(file: Path, lock: int) -> None:
    """Remove the file while it is held: nobody else has begun to use it."""
    with suppress(OSError):
        file.unlink()
    os.close(lock)


def _hold(lock: int) -> bool | None:
    """Whether the file is ours until it is closed; None where the disk knows no locks, as some in networks do."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_there(lock: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), file.stat())
    except FileNotFoundError:
        return False


def _owner(lock: int) -> dict[str, Any]:
    """Who is named in the file; nobody where it was just made, or is damaged."""
    try:
        found = json.loads(os.pread(lock, 4096, 0))
        return {"process": int(found["process"]), **{name: str(found[name]) for name in ("host", "boot", "since")}}
    except (ValueError, TypeError, KeyError):
        return {}


def _require_left(owner: dict[str, Any], held: bool | None, file: Path, folder: Path, option: str) -> None:
    """Refuse a folder that another process has, or may have on a computer that we cannot ask."""
    who = f"process {owner['process']} on {owner['host']} (since {owner['since']})" if owner else "another process"
    if held is False:
        told = f"{who} is at work there; wait for its end, or end it"
    elif owner and _may_live(owner, held):
        told = f"{who} has it; if that one is gone, remove {file}"
    else:
        return
    raise ValueError(f"{option} = {folder}: expected a folder that no other process uses, but {told}")


def _may_live(owner: dict[str, Any], held: bool | None) -> bool:
    """Whether a process that does not hold the file may be at work all the same."""
    own = _self()
    if owner["boot"] == own["boot"]:
        return held is None and is_alive(owner["process"])
    return bool(owner["host"] != own["host"])  # else this computer was started anew since


def _self() -> dict[str, Any]:
    """This process: its number, its computer, and since when that one runs."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    started = boot.read_text().strip() if boot.is_file() else socket.gethostname()
    return {"process": os.getpid(), "host": socket.gethostname(), "boot": started}
