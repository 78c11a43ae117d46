"""The import graph of a tree as a picture, and how many files four journeys enter.

    python benchmarks/architecture.py graph src docs/images/imports.png
    PYTHONPATH=src python benchmarks/architecture.py journeys

Both take any tree of the project, so that two of them can be compared. A journey is run once to warm up
and then traced: a file counts where one of its functions is called, not where it is merely imported.
"""

import argparse
import ast
import contextlib
import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PLUMBING = "_internal"
ENTRIES = ("__main__", "_version")  # neither a room nor a layer
LAYERS = (  # of the plan, from the bottom; a tree without these packages is drawn as a circle
    ("_internal",),
    ("kernels",),
    ("core",),
    ("nets", "metrics", "pictures", "recipes"),
    ("methods",),
    ("kinds",),
    ("pipeline",),
    ("training",),
    ("evaluation",),
    ("bench",),
    ("cli",),
)


def main() -> None:
    """Draw, or trace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    graph = commands.add_parser("graph", help="draw which package imports which")
    graph.add_argument("src", type=Path, help="the folder that holds usd3")
    graph.add_argument("out", type=Path, help="the picture, .png")
    graph.set_defaults(run=lambda options: draw(options.src / "usd3", options.out))
    commands.add_parser("journeys", help="count the files of four journeys").set_defaults(
        run=lambda options: journeys()
    )
    options = parser.parse_args()
    options.run(options)


# ---- the import graph ---------------------------------------------------------------------------------------------


def unit_of(module: str) -> str:
    """The package or loose module at the top of usd3 to which a module belongs; "" for usd3 itself."""
    return module.split(".")[1] if "." in module else ""


def edges_of(package: Path) -> dict[tuple[str, str], int]:
    """How many modules of one unit import another unit, by (importer, imported)."""
    found: dict[tuple[str, str], int] = {}
    for file in sorted(package.rglob("*.py")):
        parts = ("usd3", *file.relative_to(package).with_suffix("").parts)
        own = unit_of(".".join(part for part in parts if part != "__init__"))
        imported = {unit_of(name) for name in _imports(file, own, package)} - {own, "", *ENTRIES}
        for other in imported if own and own not in ENTRIES else ():
            found[own, other] = found.get((own, other), 0) + 1
    return found


def _imports(file: Path, own: str, package: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("usd3."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "usd3" and node.level == 0:
            assert node.module is not None
            if node.module == "usd3":  # from usd3 import kernels
                names = (alias.name for alias in node.names)
                yield from (f"usd3.{name}" for name in names if _exists(package, name))
            else:
                yield node.module


def _exists(package: Path, name: str) -> bool:
    return (package / name).is_dir() or (package / f"{name}.py").is_file()


def cycles_of(edges: dict[tuple[str, str], int]) -> list[tuple[str, str]]:
    """Pairs of units that reach each other."""
    units = sorted({unit for pair in edges for unit in pair})
    reach = {unit: {other for importer, other in edges if importer == unit} for unit in units}
    for middle in units:
        for unit in units:
            if middle in reach[unit]:
                reach[unit] |= reach[middle]
    return [(a, b) for a in units for b in units if a < b and b in reach[a] and a in reach[b]]


def draw(package: Path, out: Path) -> None:
    """The picture, and a line about it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    edges = edges_of(package)
    units = sorted({unit for pair in edges for unit in pair})
    layered = {name for layer in LAYERS for name in layer} >= set(units)
    place = _in_layers(units) if layered else _on_a_circle(units)
    figure, axes = plt.subplots(figsize=(9, 7) if layered else (12, 12))
    for (importer, imported), count in edges.items():
        upward = layered and place[importer][1] <= place[imported][1]
        style = {"color": "#c2410c" if upward else "#64748b", "lw": 0.4 + 0.25 * min(count, 8), "alpha": 0.55}
        bend = 0.12 if layered else 0.0
        arrow = {"arrowstyle": "-|>", "shrinkA": 16, "shrinkB": 16, "connectionstyle": f"arc3,rad={bend}", **style}
        axes.annotate("", place[imported], place[importer], arrowprops=arrow)
    for unit, (x, y) in place.items():
        box = {"boxstyle": "round,pad=0.35", "fc": "#e0f2fe", "ec": "#0369a1", "lw": 0.8}
        axes.text(x, y, unit, ha="center", va="center", fontsize=11 if layered else 7, bbox=box)
    cyclic = cycles_of(edges)
    what = "packages" if layered else "modules and packages"
    line = f"{len(units)} {what} at the top, {len(edges)} imports between them, {len(cyclic)} pairs in a cycle"
    axes.set_title(line, fontsize=11)
    xs, ys = zip(*place.values())
    axes.set_xlim(min(xs) - 0.6, max(xs) + 0.6) if layered else axes.set_xlim(-1.15, 1.15)
    axes.set_ylim(min(ys) - 0.6, max(ys) + 0.6) if layered else axes.set_ylim(-1.1, 1.1)
    axes.axis("off")
    figure.tight_layout()
    figure.savefig(out, dpi=80)
    print(line)


_ASIDE = 0.9  # layers stand in turn to the left and to the right, so that their arrows do not cover each other


def _in_layers(units: list[str]) -> dict[str, tuple[float, float]]:
    layers = [[name for name in layer if name in units] for layer in LAYERS]
    return {
        name: (1.4 * (i - (len(layer) - 1) / 2) + (_ASIDE if height % 2 else -_ASIDE), float(height))
        for height, layer in enumerate(filter(None, layers))
        for i, name in enumerate(layer)
    }


def _on_a_circle(units: list[str]) -> dict[str, tuple[float, float]]:
    import math

    turns = {unit: 2 * math.pi * i / len(units) for i, unit in enumerate(units)}
    return {unit: (math.cos(turn), math.sin(turn)) for unit, turn in turns.items()}


# ---- four journeys ------------------------------------------------------------------------------------------------


def journeys() -> None:
    """A loss, a training, a sample and a table of the paper, each with the files it enters."""
    import numpy as np
    import torch

    import usd3

    roots = {"src": Path(usd3.__file__).parent, "paper": Path(usd3.__file__).parents[2] / "paper"}
    diffusion = usd3.Diffusion(usd3.Uniform(5), usd3.Cosine())
    x_0 = torch.randint(5, (4, 6))

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        rows = np.arange(240).reshape(40, 6) % 5
        np.save("data.npy", rows)
        numbers = iter(range(100))

        def train() -> None:
            small = "--model.dim 16 --model.depth 1 --model.heads 2 --training.steps 2 --training.validate_every 0"
            _usd3(f"train array small --data.path data.npy {small} --run runs/{next(numbers)}")

        runs: dict[str, Callable[[], Any]] = {
            "a loss": lambda: diffusion.loss(lambda x, t: torch.zeros(*x.shape, 5, requires_grad=True), x_0),
            "a training": train,
            "a sample": lambda: _usd3(f"sample bach --steps 2 --out tune-{next(numbers)}.mid"),
            "a table of the paper": lambda: _usd3("paper show music"),
        }
        for name, run in runs.items():
            run()
            files = _entered(run, roots)
            plumbing = [file for file in files if f"/{PLUMBING}/" in file or file.startswith("src/_")]
            others = [file for file in files if file not in plumbing]
            lengths = [_length(file, roots) for file in others]
            size = f"{sum(lengths):,} lines in all, the longest {max(lengths)}"
            print(f"{name}: {len(others)} files ({size}), and {len(plumbing)} of plumbing\n    {', '.join(others)}")


def _length(file: str, roots: dict[str, Path]) -> int:
    """Lines of a file by its name in the list of a journey."""
    root, _, path = file.partition("/")
    return len((roots[root] / path).read_text(encoding="utf-8").splitlines())


def _usd3(words: str) -> None:
    from usd3.__main__ import main as command_line

    before = sys.argv
    sys.argv = ["usd3", *words.split()]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            status = command_line()
    finally:
        sys.argv = before
    if status:
        raise SystemExit(f"usd3 {words}: ended with {status}")


def _entered(run: Callable[[], Any], roots: dict[str, Path]) -> list[str]:
    """The files below the roots whose functions were called, by their path below the root."""
    called: set[str] = set()

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            called.add(frame.f_code.co_filename)

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return sorted(
        f"{name}/{Path(file).relative_to(root).as_posix()}"
        for file in called
        for name, root in roots.items()
        if Path(file).is_relative_to(root)
    )


if __name__ == "__main__":
    main()
