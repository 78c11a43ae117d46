"""Files that are written whole or not at all, and folders that are free to use."""

import errno
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from usd3._internal.checks import require

__all__ = [
    "cache_folder",
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
    """A temporary file beside `path`. At the end of the block it is flushed to the disk and renamed to `path`.

    If the block fails, the temporary file is removed and a file that was at `path` stays as it was. The umask decides
    who may read the file, also if a library sets stricter permissions, as safetensors does.
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


def cache_folder() -> Path:
    """Where files are kept that can be made again: $USD3_CACHE, or `usd3` in the user's cache folder."""
    named = os.environ.get("USD3_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "usd3"


def full_disk(error: BaseException | None) -> str | None:
    """The system's message if an error was caused by a full disk or a quota; None if it has another cause.

    The error number is not always in the error itself: safetensors has it only in the text of its message, and torch
    raises an error of its own after the one of the file.
    """
    while error is not None:
        number = error.errno if isinstance(error, OSError) else None
        in_message = re.search(r"os error (\d+)", str(error))
        for candidate in (number, int(in_message[1]) if in_message else None):
            if candidate in _FULL:
                return os.strerror(candidate)
        error = error.__cause__ or error.__context__
    return None


def contents(folder: Path) -> list[Path]:
    """The files of a folder, without its lock file and without temporary files of killed processes."""
    unfinished = _unfinished(folder)
    return [
        path
        for path in folder.iterdir()
        if not (path.name.startswith(".") and path.suffix == ".lock") and path not in unfinished
    ]


def is_free(path: Path) -> bool:
    """Whether `path` can become a new folder: nothing is there, or an empty folder, and no parent is a file."""
    if path.exists():
        return path.is_dir() and not contents(path)
    return _file_above(path) is None


def _file_above(path: Path) -> Path | None:
    """The file that stands where `path`, or a folder above it, would have to be; None if there is none."""
    existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    return None if existing.is_dir() else existing


def require_free(folder: Path, option: str) -> None:
    """Raise a ValueError, which names the option, unless the folder is new or empty."""
    require(is_free(folder), option, folder, f"a folder that is new or empty{_but_file(folder)}")


def _but_file(folder: Path) -> str:
    return "" if (file := _file_above(folder)) is None else f", but {file} is a file"


def known_folder(name: str | None, mark: str, what: str) -> Path | None:
    """The folder of the option `out`: new, empty, or one that holds earlier results of the same kind.

    Args:
        name: The option's value.
        mark: The file by which such results are recognised.
        what: What these results are, for the error message.
    """
    if name is None:
        return None
    folder = Path(name)
    usable = is_free(folder) or (folder / mark).is_file()
    require(usable, "out", folder, f"a folder that is new, empty, or that of {what}{_but_file(folder)}")
    return folder


def new_folder(root: Path | str, name: str) -> Path:
    """Create and return the first folder of root/name, root/name-2, root/name-3, ... that does not exist."""
    number = 1
    while True:
        folder = Path(root) / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1


def remove_unfinished(folder: Path, least_age: float = 0.0) -> None:
    """Remove the temporary files that killed processes left in a folder.

    Args:
        folder: where they are.
        least_age: seconds since their last change. A folder that several machines share needs more than 0, as only
            the processes of this machine are known.
    """
    for path in _unfinished(folder):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime >= least_age:
                path.unlink()


def _unfinished(folder: Path) -> list[Path]:
    """The temporary files in a folder whose process has ended."""
    parts = {path: path.name.rsplit(".part", 1)[0].rpartition(".")[2] for path in folder.glob(".*.part*")}
    return [path for path, process in parts.items() if not (process.isdecimal() and is_alive(int(process)))]


def is_alive(process: int) -> bool:
    """Whether a process with this id is running."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
