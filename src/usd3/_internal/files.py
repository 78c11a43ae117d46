"""Files that appear whole or not at all, and names that are free."""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from usd3._internal.checks import require

__all__ = [
    "contents",
    "full_disk",
    "is_alive",
    "is_free",
    "known_folder",
    "new_folder",
    "remove_unfinished",
    "require_free",
    "write_whole",
    "written_whole",
]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def written_whole(path: Path | str) -> Iterator[Path]:
    """A temporary name beside `path`; what is written there takes the name `path` once it is safely on the disk.

    If anything fails on the way, what was at `path` stays, and the temporary file is removed. Who may read the file is
    what the umask says, whatever wrote it: safetensors would let its owner alone.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        temporary.touch()
        mode = stat.S_IMODE(temporary.stat().st_mode)
        yield temporary
        if stat.S_IMODE(temporary.stat().st_mode) != mode:
            temporary.chmod(mode)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_whole(path: Path | str, content: bytes | str) -> None:
    """Write `content` to `path`, whole or not at all."""
    with written_whole(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def full_disk(error: BaseException | None) -> str | None:
    """What the system said where an error comes from a disk without room, or a limit of it; None: it does not.

    safetensors has a number in its message alone; torch raises an error of its own after that of the file.
    """
    while error is not None:
        number = error.errno if isinstance(error, OSError) else None
        told = re.search(r"os error (\d+)", str(error))
        for found in (number, int(told[1]) if told else None):
            if found in _FULL:
                return os.strerror(found)
        error = error.__cause__ or error.__context__
    return None


def contents(folder: Path) -> list[Path]:
    """What is in a folder, without the file that says who has it, and what a killed process left half-written."""
    left = _unfinished(folder)
    return [
        path
        for path in folder.iterdir()
        if not (path.name.startswith(".") and path.suffix == ".lock") and path not in left
    ]


def is_free(path: Path) -> bool:
    """Whether nothing is there, or an empty folder; below a file nothing can be."""
    if path.exists():
        return path.is_dir() and not contents(path)
    return _file_above(path) is None


def _file_above(path: Path) -> Path | None:
    """What stands where a path needs a folder; None: nothing does."""
    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    return None if there.is_dir() else there


def require_free(folder: Path, option: str) -> None:
    """Refuse a folder, named by an option, that something is in, or that cannot be one."""
    require(is_free(folder), option, folder, f"a folder that is new or empty{_but_file(folder)}")


def _but_file(folder: Path) -> str:
    return "" if (file := _file_above(folder)) is None else f", but {file} is a file"


def known_folder(name: str | None, mark: str, what: str) -> Path | None:
    """The folder of an option `out`: free, or one of such results, which has a file `mark`."""
    if name is None:
        return None
    folder = Path(name)
    known = is_free(folder) or (folder / mark).is_file()
    require(known, "out", folder, f"a folder that is new, empty, or that of {what}{_but_file(folder)}")
    return folder


def new_folder(root: Path | str, name: str) -> Path:
    """Make root/name, or root/name-2, root/name-3, ...: the first that does not exist."""
    number = 1
    while True:
        folder = Path(root) / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed process left half-written in a folder."""
    for left in _unfinished(folder):
        left.unlink(missing_ok=True)


def _unfinished(folder: Path) -> list[Path]:
    """What a killed process left half-written in a folder."""
    parts = {path: path.name.rsplit(".part", 1)[0].rpartition(".")[2] for path in folder.glob(".*.part*")}
    return [path for path, process in parts.items() if not (process.isdecimal() and is_alive(int(process)))]


def is_alive(process: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
