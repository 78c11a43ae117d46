"""Change one operator at a time, run the tests of the changed module, and count what no test notices.

    python benchmarks/mutation.py --jobs 16             # 300 random changes of core and kernels
    python benchmarks/mutation.py --summary             # count again, with the judgements of survivors

Each change goes into a copy of the package; the mirrored tests of its module run on it (tests/support/mirror.py), up
to the first failure and within a time limit. Results are appended to a CSV as they come, and a second run goes on where
the first one stopped. A survivor is judged by hand, in a CSV of its own: `equivalent` where no test could notice, else
`missing` or, once a test notices, nothing. Equivalent changes do not count. Needs a checkout, no GPU and no git.
"""

import argparse
import csv
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from mutants import changed, places

from support.mirror import PACKAGES, files_of_tests

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]
_RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Mutant:
    """One change: the line it begins in, before and after, and the whole file after it."""

    file: str
    line: int
    column: int
    before: str
    after: str
    text: str

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from the others."""
        return self.file, str(self.line), self.before, self.after


@dataclass(frozen=True)
class Result:
    """What became of a change: `caught`, `timeout` (which counts as caught) or `survived`."""

    file: str
    line: int
    before: str
    after: str
    outcome: str
    test: str
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the changes that are not in the CSV yet, and print the summary."""
    given = _options(arguments)
    if not given.summary:
        chosen = sampled(mutants(given.package, given.packages), given.number, given.seed)
        done = {(row["file"], row["line"], row["before"], row["after"]) for row in _rows(given.csv)}
        left = [mutant for mutant in chosen if mutant.key not in done]
        print(f"{len(chosen)} changes, {len(chosen) - len(left)} done before", flush=True)
        if left:
            seconds = baseline(left, given)
            _try(left, seconds, given)
    return summary(_rows(given.csv), _rows(given.judged), given.csv)


# ---- what is changed --------------------------------------------------------------------------------------------


def mutants(package: Path, packages: Iterable[str]) -> list[list[Mutant]]:
    """Every place in these packages, each with its possible changes."""
    found = []
    for path in sorted(path for name in packages for path in (package / name).rglob("*.py")):
        text, file = path.read_text(), path.relative_to(package).as_posix()
        for place in places(text):
            begin = text.rfind("\n", 0, place.start) + 1
            line, column = text.count("\n", 0, begin) + 1, place.start - begin
            whole = [changed(text, place, choice) for choice in place.choices]
            shown = [_shown(each, begin, place.end + len(each) - len(text)) for each in whole]
            before = _shown(text, begin, place.end)
            found.append([Mutant(file, line, column, before, *pair) for pair in zip(shown, whole)])
    return found


def _shown(text: str, begin: int, end: int) -> str:
    """The lines from `begin` to that of `end`, in one."""
    stop = text.find("\n", end)
    return " ".join(text[begin : stop if stop >= 0 else len(text)].split())


def sampled(every: list[list[Mutant]], number: int, seed: int) -> list[Mutant]:
    """Random places, and one random change of each."""
    source = random.Random(seed)
    return [source.choice(choices) for choices in source.sample(every, min(number, len(every)))]


# ---- trying it --------------------------------------------------------------------------------------------------


def tree(mutant: Mutant | None, package: Path, folder: Path) -> Path:
    """A package in `folder` that is links to the real one, but for the changed file; returns what to import it from."""
    parts = Path(mutant.file).parts if mutant else ()
    source, target = package, folder / package.name
    for depth in range(len(parts)):
        target.mkdir()
        for child in source.iterdir():
            if child.name not in (parts[depth], "__pycache__"):
                (target / child.name).symlink_to(child.resolve())
        source, target = source / parts[depth], target / parts[depth]
    if mutant:
        target.write_text(mutant.text)
    else:
        target.symlink_to(package.resolve())
    return folder


def run_tests(
    mutant: Mutant | None, tests: list[str], limit: float, given: argparse.Namespace
) -> tuple[str, str, float]:
    """(outcome, first test that failed, seconds) of these files of tests."""
    with tempfile.TemporaryDirectory(prefix="usd3-mutant-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        environment = _environment(tree(mutant, given.package, folder))
        options = ["-x", "-q", "-p", "no:cacheprovider", f"--basetemp={folder / 'pytest'}", "--tb=no", "-rfE"]
        options += ["--no-cov"] if find_spec("pytest_cov") else []
        options += ["--hypothesis-seed=0"] if find_spec("hypothesis") else []
        for failing in given.failing:
            options += ["--deselect", failing]
        begun = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pytest", *options, *(str(given.tests / name) for name in tests)],
            cwd=given.tests.parent,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (given.memory << 30, given.memory << 30)),
        )
        try:
            output = process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "timeout", "", time.monotonic() - begun
    seconds = time.monotonic() - begun
    if process.returncode == 5:
        raise RuntimeError(f"no test ran in {tests}:\n{output}")
    if process.returncode == 0:
        return "survived", "", seconds
    named = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
    if mutant is None:
        print(output[-2000:], flush=True)
    return "caught", named[0] if named else f"status {process.returncode}", seconds


def _environment(folder: Path) -> dict[str, str]:
    """Children import the package from `folder`, see no GPU, and keep everything they write there."""
    path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TRITON_INTERPRET": "1",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(folder),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
    }


def baseline(chosen: Sequence[Mutant], given: argparse.Namespace) -> dict[str, float]:
    """Seconds of every file of tests on the package as it is. Tests that fail on it are named, and left out."""
    needed = sorted({name for mutant in chosen for name in files_of_tests(mutant.file, given.tests)})
    seconds = {}

    def measure(name: str) -> None:
        while True:
            outcome, test, took = run_tests(None, [name], given.limit, given)
            if outcome == "survived":
                seconds[name] = took
                return
            if outcome == "timeout" or "::" not in test:
                raise RuntimeError(f"{name} cannot be run, though nothing is changed: {outcome} {test}")
            print(f"left out, as it fails without any change: {test}", flush=True)
            given.failing.append(test)

    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(measure, needed))
    return seconds


def _try(chosen: Sequence[Mutant], seconds: dict[str, float], given: argparse.Namespace) -> None:
    lock, done = Lock(), 0
    given.csv.parent.mkdir(parents=True, exist_ok=True)

    def attempt(mutant: Mutant) -> None:
        nonlocal done
        tests = sorted(files_of_tests(mutant.file, given.tests), key=seconds.__getitem__)
        if tests:
            limit = min(given.limit, 60 + 5 * sum(seconds[name] for name in tests))
            outcome = run_tests(mutant, tests, limit, given)
        else:
            outcome = ("survived", "", 0.0)
        result = Result(mutant.file, mutant.line, mutant.before, mutant.after, *outcome)
        with lock:
            done += 1
            _append(given.csv, result)
            where = f"{result.file}:{result.line}"
            print(f"{done}/{len(chosen)} {result.outcome} {where}  {result.before}  ->  {result.after}", flush=True)

    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(attempt, chosen))


# ---- what came out ----------------------------------------------------------------------------------------------


def summary(rows: Sequence[dict[str, str]], judged: Sequence[dict[str, str]], file: Path) -> int:
    """Print the counts and the survivors that nobody has judged; 0 where at least 95 % are caught."""
    verdicts = {(row["file"], row["before"], row["after"]): row["verdict"] for row in judged}
    counts: Counter[str] = Counter()
    for row in rows:
        verdict = verdicts.get((row["file"], row["before"], row["after"]), "")
        survived = row["outcome"] == "survived"
        counts["equivalent" if survived and verdict == "equivalent" else row["outcome"]] += 1
        if survived and verdict != "equivalent":
            print(f"survived{f' ({verdict})' if verdict else ''}: {row['file']}:{row['line']}")
            print(f"    {row['before']}\n    {row['after']}")
    caught, real = counts["caught"] + counts["timeout"], len(rows) - counts["equivalent"]
    share = caught / real if real else 0.0
    print(f"{len(rows)} changes in {file}:", ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    print(f"caught of those that are not equivalent: {caught}/{real} = {share:.1%}")
    return 0 if share >= 0.95 else 1


def _rows(file: Path) -> list[dict[str, str]]:
    if not file.is_file():
        return []
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def _append(file: Path, result: Result) -> None:
    new = not file.exists()
    with file.open("a", newline="") as lines:
        writer = csv.DictWriter(lines, [field.name for field in fields(Result)], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(asdict(result) | {"seconds": f"{result.seconds:.1f}"})


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=300, help="how many changes")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    parser.add_argument("--limit", type=float, default=600, help="seconds for the tests of one change, at most")
    parser.add_argument("--memory", type=int, default=12, help="GiB of data for the tests of one change")
    parser.add_argument("--package", type=Path, default=ROOT / "src" / "usd3", help="folder of the package")
    parser.add_argument("--packages", nargs="+", default=list(PACKAGES), help="parts of it, or files, to change")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests", help="folder of the tests")
    parser.add_argument("--csv", type=Path, default=_RESULTS / "mutation.csv", help="results, which are added to")
    parser.add_argument("--judged", type=Path, default=_RESULTS / "mutation_judged.csv", help="judged survivors")
    parser.add_argument("--summary", action="store_true", help="try nothing, only count")
    given = parser.parse_args(arguments)
    given.package, given.tests, given.failing = given.package.resolve(), given.tests.resolve(), []
    return given


if __name__ == "__main__":
    sys.exit(main())
