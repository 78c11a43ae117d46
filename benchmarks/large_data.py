"""Train on files that are larger than the memory allowed for it, and watch the memory.

    python benchmarks/large_data.py FOLDER                     # 10 GB each, at most 2 GB of anonymous memory
    python benchmarks/large_data.py FOLDER --gigabytes 1 --limit 1
    python benchmarks/large_data.py FOLDER --real 1            # also a real text of 1 GB, which is tokenised

The files are made in FOLDER and removed at the end. Those of --gigabytes are sparse: they have a few real rows or
lines, and the rest takes no room on the disk. `usd3 train` runs a tiny network for a few steps in a process of its
own. Anonymous memory (RssAnon in /proc/PID/status) is what a process holds for itself. Pages of a memory-mapped
file (RssFile) are not part of it: the system takes them back when it needs the room. The first row, a file of 1 MB,
shows what Python and the libraries take by themselves."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from usd3._internal.tables import aligned

TINY = {
    "model.dim": 16,
    "model.depth": 1,
    "model.heads": 2,
    "training.batch_size": 16,
    "training.validate_objects": 16,
    "training.accelerator": "cpu",
}
ROW = 64  # elements of an object
LINE = "It was the best of times, it was the worst of times, it was the age of wisdom.\n"
EVERY = 0.02  # seconds between two looks at the memory


class Case(NamedTuple):
    """A file to train on, and the options that its kind needs."""

    name: str
    path: Path
    options: dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all, print and write the table; returns 1 if a training took more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the files, which are removed at the end")
    parser.add_argument("--gigabytes", type=float, default=10.0, help="size of each sparse file")
    parser.add_argument("--real", type=float, default=0.0, help="gigabytes of a real text; it needs twice the room")
    parser.add_argument("--limit", type=float, default=2.0, help="gigabytes of anonymous memory")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "large_data.csv")
    given = parser.parse_args(arguments)
    from shared import write_rows

    from usd3.bench import machine

    given.folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for make in cases(given.gigabytes, given.real):
        with tempfile.TemporaryDirectory(prefix="usd3-large-", dir=given.folder) as place:
            rows.append(measured(make(Path(place)), given.steps, Path(place)) | {"limit_gb": given.limit})
        print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    write_rows(given.csv, [row | machine() for row in rows])
    print(*aligned([list(rows[0]), *([str(value) for value in row.values()] for row in rows)]), sep="\n")
    print(f"wrote {given.csv}")
    return int(any(row["anonymous_gb"] > given.limit for row in rows))


def cases(gigabytes: float, real: float) -> Iterator[Any]:
    """Functions that make a case in a folder."""
    yield lambda folder: sparse_array(folder, 0.001)
    yield lambda folder: sparse_array(folder, gigabytes)
    yield lambda folder: sparse_text(folder, gigabytes)
    if real:
        yield lambda folder: real_text(folder, real)


# ---- files --------------------------------------------------------------------------------------------------------


def sparse_array(folder: Path, gigabytes: float) -> Case:
    """An .npy file of uint8 rows: zeros that take no room, and 1,000 real rows."""
    path, count = folder / "rows.npy", int(gigabytes * 1e9) // ROW
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(count, ROW))
    generator = np.random.default_rng(0)
    array[generator.integers(0, count, 1000)] = generator.integers(0, 4, (1000, ROW))
    array.flush()
    return Case("array of uint8", path, {"data.num_classes": 4})


def sparse_text(folder: Path, gigabytes: float) -> Case:
    """A text file of NUL bytes that take no room, and 1,000 lines; its bytes are the tokens."""
    path, size = folder / "book.txt", int(gigabytes * 1e9)
    with path.open("wb") as file:
        file.truncate(size)
        for place in np.random.default_rng(0).integers(0, size - len(LINE), 1000).tolist():
            file.seek(place)
            file.write(LINE.encode())
    return Case("text, bytes", path, {"data.text.tokenizer": "bytes", "data.length": ROW})


def real_text(folder: Path, gigabytes: float) -> Case:
    """A text that is not ASCII, so that it is decoded and tokenised into a file."""
    path, block = folder / "real.txt", (LINE.replace("age", "âge") * 10_000).encode()
    with path.open("wb") as file:
        for _ in range(int(gigabytes * 1e9) // len(block) + 1):
            file.write(block)
    return Case("text, characters, tokenised into a file", path, {"data.length": ROW})


# ---- measuring ----------------------------------------------------------------------------------------------------


def measured(case: Case, steps: int, folder: Path) -> dict[str, Any]:
    """Train on a case in a process of its own: the most memory that it took, in GB, and the seconds."""
    options = TINY | case.options | {"training.steps": steps, "progress": "false", "run": folder / "run"}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "usd3", "train", str(case.path), "small", *words]
    environment = os.environ | {"USD3_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    began = time.monotonic()
    with _started(command, environment) as child:
        anonymous, mapped = _most_memory(child)
    seconds = time.monotonic() - began
    return {
        "data": case.name,
        "size_gb": round(case.path.stat().st_size / 1e9, 3),
        "disk_gb": round(case.path.stat().st_blocks * 512 / 1e9, 3),
        "steps": steps,
        "seconds": round(seconds, 1),
        "anonymous_gb": round(anonymous / 1e9, 3),
        "mapped_gb": round(mapped / 1e9, 3),
    }


@contextmanager
def _started(command: list[str], environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """A child process; if it fails, its messages are those of the error.

    They are kept in a file: nobody reads a pipe while the memory is watched, and a full one would stop the child.
    """
    with tempfile.TemporaryFile("w+") as printed:
        child = subprocess.Popen(command, env=environment, stdout=printed, stderr=subprocess.STDOUT, text=True)
        try:
            yield child
        finally:
            child.kill()
            child.wait()
        if child.returncode != 0:
            printed.seek(0)
            raise RuntimeError(f"{' '.join(command)}: {printed.read()}")


def _most_memory(child: "subprocess.Popen[str]") -> tuple[int, int]:
    """The largest RssAnon and RssFile of a process until it ends, in bytes."""
    most = {"RssAnon": 0, "RssFile": 0}
    status = Path(f"/proc/{child.pid}/status")
    while child.poll() is None:
        for line in status.read_text().splitlines():
            name, _, value = line.partition(":")
            if name in most:
                most[name] = max(most[name], 1024 * int(value.split()[0]))
        time.sleep(EVERY)
    return most["RssAnon"], most["RssFile"]


if __name__ == "__main__":
    sys.exit(main())
