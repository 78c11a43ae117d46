"""The library of C++ kernels: built by the user's own compiler at its first use, then loaded from the cache folder.

A build takes a second or two, once a computer and a version. The library lies in `usd3._internal.files.cache_folder()`,
under a name that depends on the source, the flags, the compiler and the processor. Only the source in this package is
compiled, and a kept file is loaded only from a folder that is closed to all other users. The source uses no header of
Python or torch, so the library outlives both.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import threading
import warnings
from contextlib import suppress
from pathlib import Path

from usd3._internal.files import cache_folder, written_whole

__all__ = ["SWITCH", "compiler", "library", "parallel"]

SWITCH = "USD3_CPP"
"""Environment variable: 0 leaves the C++ kernels out."""

_SOURCE = Path(__file__).with_name("cpp_loss.cpp")
_FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-fPIC", "-shared"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing"),  # NaN and infinity stay what they are
)


def compiler() -> str | None:
    """Path of the C++ compiler that would build the library: $CXX, or the first known one. None: there is none."""
    if os.environ.get(SWITCH) == "0" or platform.system() != "Linux":
        return None
    names = (os.environ.get("CXX"), "c++", "g++", "clang++")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def library() -> ctypes.CDLL | None:
    """The library, built if need be; None where that failed, which a warning says once."""
    with _lock:
        if not _loaded:
            _loaded.append(_load())
    return _loaded[0]


@functools.cache
def parallel() -> ctypes.c_void_p:
    """GOMP_parallel, which starts the threads that torch's own operations use; null where there is no such function."""
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p)
    except AttributeError:
        return ctypes.c_void_p()


_lock = threading.Lock()
_loaded: list[ctypes.CDLL | None] = []


def _load() -> ctypes.CDLL | None:
    path = compiler()
    if path is None:
        return None
    try:
        file = _file(path)
        built = _kept(file) or _built(path, file)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: the user has no home
        said = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
        reason = next((line for line in said.splitlines() if "error" in line), said.strip())
        instead = f"Slower code runs in their place; {SWITCH}=0 says that this is all right"
        warnings.warn(f"{path} could not build the C++ kernels: {reason}. {instead}", RuntimeWarning, stacklevel=2)
        return None
    built.usd3_loss_rows.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    built.usd3_loss_rows.restype = ctypes.c_bool
    return built


def _file(path: str) -> Path:
    """Where the library of this compiler, source and processor is kept."""
    version = _run([path, "--version"], 60)
    sources = [file.read_bytes() for file in sorted(_SOURCE.parent.glob("cpp_*.[ch]*"))]
    parts = (*sources, repr((path, version, _FLAGS, platform.machine())).encode(), _processor())
    return cache_folder() / "kernels" / f"{hashlib.sha256(b'|'.join(parts)).hexdigest()[:32]}.so"


def _processor() -> bytes:
    """What the processor can do: a cache folder may be shared by computers."""
    lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    return b"\n".join(sorted({line for line in lines if line.startswith((b"flags", b"Features", b"model name"))}))


def _kept(file: Path) -> ctypes.CDLL | None:
    """The library in the cache folder; None where there is none that this user alone can have written."""
    try:
        return ctypes.CDLL(str(file)) if file.is_file() and _is_private(file.parent) else None
    except OSError:  # damaged, or in a folder that cannot be read: it is built again
        return None


def _built(path: str, file: Path) -> ctypes.CDLL:
    """The library, newly built by this compiler, and kept where possible."""
    with tempfile.TemporaryDirectory(prefix="usd3-") as folder:  # nobody else can write there
        new = Path(folder) / file.name
        _run([path, *_FLAGS, str(_SOURCE), "-o", str(new)], 300)
        with suppress(OSError):  # a folder that cannot be written to: the next process builds again
            _keep(new, file)
        try:
            return ctypes.CDLL(str(new))
        except OSError:  # the folder of temporary files may forbid to execute any
            kept = _kept(file)
            if kept is None:
                raise
            return kept


def _keep(new: Path, file: Path) -> None:
    """Copy a library to the cache folder, if that is private."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_private(file.parent):
        return
    own = file.with_name(new.parent.name)  # a random name: processes of several computers may have the same number
    with written_whole(own) as temporary:
        shutil.copy(new, temporary)
    os.replace(own, file)


def _run(command: list[str], seconds: int) -> str:
    """What this command prints. A subprocess.SubprocessError where it fails or takes longer."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=True, timeout=seconds)
    return done.stdout


def _is_private(folder: Path) -> bool:
    """Whether the folder is this user's, and closed to all others."""
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o077
