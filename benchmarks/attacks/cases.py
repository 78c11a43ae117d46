"""Cases, tried by several processes at once, and counted."""

import json
import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Case", "Outcome", "tried"]


@dataclass(frozen=True)
class Case:
    """One attack, of a kind within a family; `run` does it in an empty folder and says what failed, or None."""

    family: str
    kind: str
    about: str
    run: Callable[[Path], str | None]


@dataclass(frozen=True)
class Outcome:
    """What became of a case; `failure` is None where the program stood it."""

    family: str
    kind: str
    about: str
    failure: str | None


def tried(cases: Sequence[Case], jobs: int) -> list[Outcome]:
    """Try all, in so many processes; a case that its process did not live to tell of has failed."""
    with tempfile.TemporaryDirectory(prefix="usd3-attack-") as place:
        files = [Path(place) / f"{job}.jsonl" for job in range(jobs)]
        workers = [_worker(cases[job::jobs], files[job], Path(place) / str(job)) for job in range(jobs)]
        for worker in workers:
            os.waitpid(worker, 0)
        found: list[Outcome] = []
        for job, file in enumerate(files):
            own = [Outcome(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
            lost = cases[job::jobs][len(own) :]
            found += own + [Outcome(c.family, c.kind, c.about, "the attacker did not live to tell") for c in lost]
        return found


def _worker(cases: Sequence[Case], file: Path, place: Path) -> int:
    worker = os.fork()
    if worker == 0:
        try:
            for number, case in enumerate(cases):
                folder = place / f"{number}"
                folder.mkdir(parents=True)
                _tell(file, Outcome(case.family, case.kind, case.about, _failure(case, folder)))
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os._exit(0)
    return worker


def _failure(case: Case, folder: Path) -> str | None:
    begun = time.monotonic()
    try:
        return case.run(folder)
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        spent = time.monotonic() - begun
        return f"the attack failed after {spent:.1f} s: {error!r} ({Path(where.filename).name}:{where.lineno})"


def _tell(file: Path, outcome: Outcome) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps(asdict(outcome)) + "\n")
