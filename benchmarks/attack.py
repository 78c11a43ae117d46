"""Attack the program, and count what it did not stand.

    python benchmarks/attack.py                 # everything; about eight minutes on two cores
    python benchmarks/attack.py --quick         # a little of each, half a minute
    python benchmarks/attack.py --show          # also show each failure

Trainings are killed and resumed, files are damaged, strangers write recipes and models that name code or ask for more
than there is, and logits are what no network should give. What is promised, and the counts: docs/reliability.md.
"""

import argparse
import importlib
import importlib.util
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("TRITON_INTERPRET", "1")  # its kernels run without a GPU; Triton looks when it is imported
os.environ["OMP_NUM_THREADS"] = "1"  # threads do not survive a fork

import torch
from attacks import files, kills, logits, strangers
from attacks.cases import Case, Outcome, tried
from attacks.material import Material

from usd3._internal.files import write_whole
from usd3._internal.tables import Table
from usd3.bench.machine import machine

__all__ = ["main"]

FAMILIES = ("kills", "damaged files", "strangers", "logits")
_USED = ("train", "sample", "evaluate", "export", "info", "compare")  # commands


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack, print the table and write it; returns how many cases failed, at most 100."""
    given = _options(arguments)
    torch.set_num_threads(1)
    for module in (f"cli.{name}" for name in ("main", *_USED)):  # before the forks, as it takes seconds
        importlib.import_module(f"usd3.{module}")
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="usd3-attack-") as place:
        material = Material(Path(place))
        for family in given.families:
            begun = time.monotonic()
            chosen = planted(family, material) if given.plant else cases(family, material, given.seed, given.quick)
            found = tried(chosen, given.jobs)
            failures = [outcome for outcome in found if outcome.failure is not None]
            seconds = time.monotonic() - begun
            print(f"{family}: {len(found)} tried, {len(failures)} failed, {seconds:.0f} s", flush=True)
            for outcome in failures if given.show else ():
                print(f"  {outcome.kind}: {outcome.about}: {outcome.failure}")
            outcomes += found
    rows = table(outcomes)
    show(rows)
    write(rows, given.csv, given.seed)
    print(f"wrote {given.csv}")
    return min(100, sum(int(row[-1]) for row in rows))


def cases(family: str, material: Material, seed: int, quick: bool) -> list[Case]:
    """What is tried of a family."""
    if family == "kills":
        return [*kills.cases(material, seed, *((3, 0) if quick else (60, 9)))]
    if family == "damaged files":
        return [*files.cases(material, seed, rounds=1 if quick else 4)][:: 7 if quick else 1]
    if family == "strangers":
        return [*strangers.cases(material)][:: 10 if quick else 1]
    has_triton = importlib.util.find_spec("triton") is not None
    every = (20 if quick else 8) if has_triton else None
    return [*logits.cases(seed, rounds=1 if quick else 2, triton_every=every)][:: 7 if quick else 1]


def planted(family: str, material: Material) -> list[Case]:
    """What is known to fail, to see that it is counted."""
    if family == "logits":
        return [*logits.planted()]
    return [*{"kills": kills, "damaged files": files, "strangers": strangers}[family].planted(material)]


def table(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Rows: the family, the kind, how many were tried, and how many failed."""
    both = Counter((outcome.family, outcome.kind) for outcome in outcomes)
    failed = Counter((outcome.family, outcome.kind) for outcome in outcomes if outcome.failure is not None)
    return [[family, kind, str(count), str(failed[family, kind])] for (family, kind), count in both.items()]


def show(rows: Sequence[Sequence[str]]) -> None:
    """Print the table as Markdown, with a sum for each family."""
    sections = []
    for family in dict.fromkeys(row[0] for row in rows):
        kinds = [row for row in rows if row[0] == family]
        tried_and_failed = [f"**{_sum(kinds, column):,}**" for column in (2, 3)]
        counts = [[kind, f"{int(count):,}", f"{int(failed):,}"] for _, kind, count, failed in kinds]
        sections.append([[f"**{family}**", *tried_and_failed], *counts])
    print(f"\n{Table(['attack', 'tried', 'failed'], sections).markdown()}")


def write(rows: Sequence[Sequence[str]], file: Path, seed: int) -> None:
    """Write the table as CSV, with the seed, the machine, the versions and the commit in every row."""
    about = {"seed": str(seed)} | machine()
    lines = [[*row, *about.values()] for row in rows]
    write_whole(file, Table(["family", "attack", "tried", "failed", *about], [lines]).csv())


def _sum(rows: Sequence[Sequence[str]], column: int) -> int:
    return sum(int(row[column]) for row in rows)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a little of each family")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of all that is random; moments of kills vary all the same"
    )
    parser.add_argument("--jobs", type=int, default=2, help="how many attack at once")
    parser.add_argument("--show", action="store_true", help="show each failure")
    parser.add_argument("--plant", action="store_true", help="try what is known to fail, to see that it is counted")
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "attack.csv")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
