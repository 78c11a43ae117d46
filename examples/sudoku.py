"""Sudoku from start to end: make boards and puzzles, train a model on boards, let it solve puzzles, measure.

    python examples/sudoku.py                                             # 4 x 4 boards, about a minute on a CPU
    python examples/sudoku.py benchmark --out runs/sudoku --minutes 60    # 9 x 9 boards, an hour on two CPU cores

or step by step:

    python examples/sudoku.py make --boards 30000 --puzzles 1000 --out sudoku
    python examples/sudoku.py train sudoku --run runs/sudoku --minutes 60
    python examples/sudoku.py solve runs/sudoku --samplers "exact entropy:bound=0.01" --steps 5,10,20

No data come from outside, and the same seeds give the same boards. The puzzles are minimal: each has one solution, and
no given can be removed. No solution is a training board, not even with other names for its symbols. A training that
is called again goes on where it ended. Further options are those of `usd3 train`, as in --model.dim 48.
"""

import argparse
import csv
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from torch import Tensor

import usd3
from usd3._internal.files import new_folder, require_free, write_whole, written_whole
from usd3.cli.main import main as command
from usd3.core.samplers import Step
from usd3.kinds.board.kind import Board
from usd3.kinds.board.notation import usual_symbols, written
from usd3.kinds.board.puzzles import minimal_puzzles, random_boards
from usd3.kinds.board.rename import canonical
from usd3.kinds.board.sudoku import fill_singles
from usd3.kinds.rendering import Drawn, Request
from usd3.metrics.boards import are_solved, copied, distinct, obey_rules
from usd3.pipeline.again import until_valid

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BOARDS = {4: 288, 9: 6_670_903_752_021_072_936_960}  # how many solved boards there are
COLUMNS = ("task", "sampler", "steps", "calls", "share", "error", "objects", "seconds")
MANY_STEPS = 100_000_000  # the minutes are over before
MEASURED = 256  # held-out boards for the bound
SAMPLERS = "exact confidence margin entropy entropy:bound=0.01"
SMALL_SAMPLERS = "exact entropy:bound=0.01"
SMALL_STEPS = 300
AT_ONCE = 2000  # boards whose puzzles are made at once


# ---- make -------------------------------------------------------------------------------------------------------


def make(out: Path, side: int, boards: int, puzzles: int, seed: int) -> None:
    """Write boards.npz, puzzles.txt and solutions.txt into a folder; nothing is done if they are there."""
    about = {"side": side, "boards": boards, "puzzles": puzzles, "seed": seed}
    file = out / "about.json"
    if file.is_file():
        made = json.loads(file.read_text())
        if {key: made.get(key) for key in about} != about:
            raise ValueError(f"out = {out}: has other boards, made with {made}; expected {about}, or another folder")
        print(f"{out} has the boards and puzzles", flush=True)
        return
    require_free(out, "out")
    print(f"making {boards + puzzles:,} boards and {puzzles:,} puzzles", flush=True)
    began = time.monotonic()
    train, test = splits(random_boards(boards + puzzles, side, seed), boards, puzzles)
    made_boards = time.monotonic()
    solutions = test[np.arange(puzzles) % len(test)]  # few 4 x 4 boards make several puzzles each
    given = minimal_puzzles(solutions, seed)
    seconds = {"boards": round(made_boards - began, 1), "puzzles": round(time.monotonic() - made_boards, 1)}
    symbols = usual_symbols(side)
    lines = [
        "".join(cell if known else "." for cell, known in zip(line, mask.ravel()))
        for line, mask in zip(written(solutions, symbols), given)
    ]
    write_whole(out / "puzzles.txt", "\n".join(lines) + "\n")
    write_whole(out / "solutions.txt", "\n".join(written(solutions, symbols)) + "\n")
    taught, taught_given = lessons(train, seed)
    seconds["lessons"] = round(time.monotonic() - made_boards - seconds["puzzles"], 1)
    numbers = {name: (part + 1).astype(np.uint8) for name, part in (("train", taught), ("test", test))}
    with written_whole(out / "boards.npz") as part:
        np.savez_compressed(part, train=numbers["train"], test=numbers["test"], train_given=taught_given)
    givens = given.sum((1, 2))
    facts = {
        "train": len(train),
        "test": len(test),
        "lessons": len(taught),
        "mean_givens": float(givens.mean()),
        "seconds": seconds,
    }
    write_whole(file, json.dumps(about | facts, indent=2) + "\n")
    print(f"{len(train):,} boards to train on and {len(test):,} held out, in {seconds['boards']} s")
    print(
        f"{puzzles:,} puzzles of {givens.min()} to {givens.max()} givens, on average {givens.mean():.1f}, in ", end=""
    )
    print(f"{seconds['puzzles']} s: {out}", flush=True)


def lessons(boards: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Boards, and masks of the cells that are given in training, (M, K, K) each.

    Each board comes with the cells of a minimal puzzle. If singles do not solve that puzzle, the board comes once more,
    with all cells that singles fill: the positions in which a solver needs more than singles.
    """
    parts = [slice(i, i + AT_ONCE) for i in range(0, len(boards), AT_ONCE)]
    puzzles = np.concatenate([minimal_puzzles(boards[part], seed + part.start + 1) for part in parts])
    filled = np.concatenate([fill_singles(boards[part], puzzles[part]) >= 0 for part in parts])
    hard = ~filled.all((1, 2))
    return np.concatenate([boards, boards[hard]]), np.concatenate([puzzles, filled[hard]])


def splits(boards: np.ndarray, train: int, test: int) -> tuple[np.ndarray, np.ndarray]:
    """Different boards to train on, and those that are held out: so many, or a tenth where there are too few.

    Training renames symbols, so boards that are the same up to the names of their symbols stay on one side. The 288
    boards of 4 x 4 cells are of only 12 such classes.
    """
    _, first = np.unique(boards.reshape(len(boards), -1), axis=0, return_index=True)
    different = boards[np.sort(first)]
    wanted = test if len(different) >= train + test else max(1, len(different) // 10)
    forms = canonical(different, boards.shape[1]).reshape(len(different), -1)
    _, begins, group, sizes = np.unique(forms, axis=0, return_index=True, return_inverse=True, return_counts=True)
    order = begins.argsort()  # classes in the order in which they occur
    if len(order) < 2:
        raise ValueError(f"boards = {train}: all are equal up to the names of their symbols; expected more boards")
    before = np.cumsum(sizes[order]) - sizes[order]
    held_out = np.isin(group.ravel(), order[:-1][before[:-1] < wanted])
    return different[~held_out], different[held_out]


# ---- train ------------------------------------------------------------------------------------------------------


def train(data: Path, run: Path, recipe: str, minutes: float | None, options: Sequence[str]) -> None:
    """Train a model with `usd3 train`; a run that exists goes on."""
    limit = [] if minutes is None else ["--training.minutes", f"{minutes:g}", "--training.steps", str(MANY_STEPS)]
    if (run / "recipe.yaml").is_file():
        words = ["train", "--resume", str(run), *limit, *options]
    else:
        words = ["train", recipe, "--data.path", str(data / "boards.npz"), "--run", str(run)]
        words += ["--training.given", "data", *limit, *options]
    print(f"\n$ usd3 {' '.join(words)}", flush=True)
    status = command(words)
    if status:
        raise SystemExit(status)


# ---- solve ------------------------------------------------------------------------------------------------------


class Calls:
    """Counts the calls of the network that a sampler needs: one at first, and one after each change of a board."""

    def __init__(self) -> None:
        self.total: float | Tensor = 0.0

    def __call__(self, step: Step) -> None:
        """Called after each step."""
        asked = step.x_t.flatten(1) != step.x_s.flatten(1)
        if step.index == 0:
            self.total = self.total + len(asked)
        if step.index < step.num_steps - 1:
            self.total = self.total + asked.any(1).sum()


def drawn(
    pipeline: usd3.Pipeline, sampler: str, steps: int, seed: int, tries: int, tokens: Tensor, given: Tensor
) -> tuple[Tensor, float, float]:
    """Boards, the calls of the network for each of them, all attempts together, and the seconds that this took."""
    totals, began = list[float](), time.monotonic()

    def draw(rows: Tensor, seed: int) -> Tensor:
        calls = Calls()
        how: dict[str, Any] = {"num_steps": steps, "sampler": sampler, "seed": seed, "callback": calls}
        boards = pipeline.sample(tokens=tokens[rows], given=given[rows], **how)
        totals.append(float(calls.total))
        return boards

    boards = until_valid(draw, pipeline.kind.obeys, len(tokens), tries, seed)
    return boards, sum(totals) / len(boards), time.monotonic() - began


def solve(
    run: Path,
    puzzles: Path | None,
    out: Path,
    samplers: Sequence[str],
    steps: Sequence[int],
    boards: int,
    seed: int,
    tries: int = 1,
) -> None:
    """Let a model solve puzzles and draw boards, with each sampler and number of steps; write what comes out.

    A solution that breaks the rules is drawn again, at most `tries` times in all. Boards from nothing are drawn once.
    """
    pipeline = usd3.Pipeline.from_pretrained(run)
    kind, config = pipeline.kind, pipeline.config
    if not isinstance(kind, Board) or kind.rules is None:
        raise ValueError(f"run = {run}: expected a model of Sudoku boards")
    data = config.data.load()
    puzzles = Path(str(config.data.path)).parent / "puzzles.txt" if puzzles is None else puzzles
    tokens, given = kind.parsed(puzzles.read_text(), str(puzzles))
    real = data.decoded(data.train.tokens.long())
    rows, best = [], torch.zeros(0)
    for sampler in samplers:
        for number in [tokens[0].numel()] if sampler == "first_hitting" else steps:  # it asks once for each cell
            filled, calls, seconds = drawn(pipeline, sampler, number, seed, tries, tokens, given)
            solved = are_solved(filled, tokens, given)
            best = filled
            rows.append(row("solve", sampler, number, calls, solved, seconds))
            print(f"{rows[-1]['share']:6.1%} of {len(tokens)} puzzles solved, {shown(rows[-1])}", flush=True)
            if boards:
                nothing = torch.zeros(boards, *kind.shape, dtype=torch.long)
                new, calls, seconds = drawn(pipeline, sampler, number, seed, 1, nothing, nothing.bool())
                rows.append(row("draw", sampler, number, calls, obey_rules(new), seconds))
                about = f"{distinct(new):.1%} distinct, {copied(new, real):.1%} training boards"
                print(f"{rows[-1]['share']:6.1%} of {boards} boards valid, {shown(rows[-1])}; {about}", flush=True)
    held_out = data.decoded(data.test.tokens.long())[:MEASURED]
    nats = pipeline.bound(held_out, num_samples=64, seed=seed)
    bits, error = (float(value) / math.log(2) for value in (nats.mean(), nats.std() / math.sqrt(len(nats))))
    least = math.log2(BOARDS[kind.shape[0]]) if kind.shape[0] in BOARDS else None
    print(
        f"bits for a held-out board: at most {bits:.2f} ± {error:.2f}"
        + ("" if least is None else f"; the best possible {least:.2f}")
    )
    about_run = {
        "run": str(run),
        "parameters": sum(weight.numel() for weight in pipeline.model.parameters()),
        "steps": config.steps,
        "minutes": config.minutes,
        "puzzles": len(tokens),
        "mean_givens": float(given.sum((1, 2)).float().mean()),
        "bits_per_board": bits,
        "bits_per_board_error": error,
        "least_bits_per_board": least,
        "device": torch.cuda.get_device_name() if pipeline.device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "seed": seed,
        "tries": tries,
    }
    write_results(out, rows, about_run)
    kind.renderer(Request()).picture(Drawn(best, given=given), out / "puzzles.png")
    print(f"{config.minutes or 0:.1f} minutes of training, {about_run['parameters']:,} parameters; written to {out}")


def row(task: str, sampler: str, steps: int, calls: float, right: np.ndarray, seconds: float) -> dict[str, Any]:
    """One row of the results: the share of boards that are right, with its standard error."""
    share = float(right.mean())
    error = math.sqrt(share * (1 - share) / len(right))
    return dict(zip(COLUMNS, (task, sampler, steps, calls, share, error, len(right), seconds)))


def shown(found: dict[str, Any]) -> str:
    """How a row was made."""
    return (
        f"{found['sampler']}, {found['steps']} steps, {found['calls']:.1f} network calls each, {found['seconds']:.1f} s"
    )


def write_results(out: Path, rows: list[dict[str, Any]], about: dict[str, Any]) -> None:
    """Write results.csv, results.json and a picture of the shares against the number of network calls."""
    with written_whole(out / "results.csv") as part, part.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        table.writerows(rows)
    write_whole(out / "results.json", json.dumps(about | {"rows": rows}, indent=2) + "\n")
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    titles = {"solve": "puzzles solved", "draw": "boards valid, drawn from nothing"}
    for i, (task, sampler) in enumerate(dict.fromkeys((found["task"], found["sampler"]) for found in rows)):
        part_rows = [found for found in rows if (found["task"], found["sampler"]) == (task, sampler)]
        calls, share, error = (np.array([found[key] for found in part_rows]) for key in ("calls", "share", "error"))
        style = "o-" if task == "solve" else "s--"
        axes.errorbar(
            calls, 100 * share, 200 * error, fmt=style, capsize=3, color=f"C{i}", label=f"{sampler}: {titles[task]}"
        )
    axes.set(xlabel="network calls for each board", ylabel="%", ylim=(-2, 102))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(out / "solved.png", dpi=150)
    plt.close(figure)


# ---- the commands -----------------------------------------------------------------------------------------------


def numbers(text: str) -> list[int]:
    """The whole numbers of a list with commas."""
    return [int(part) for part in text.split(",")]


def add_data(parser: argparse.ArgumentParser, side: int, boards: int, puzzles: int) -> None:
    """Options of the boards and puzzles."""
    parser.add_argument("--side", type=int, default=side, help="cells of a row: 4, 9 or 16 (default: %(default)s)")
    parser.add_argument("--boards", type=int, default=boards, help="to train on (default: %(default)s)")
    parser.add_argument("--puzzles", type=int, default=puzzles, help="to solve (default: %(default)s)")


def add_solving(parser: argparse.ArgumentParser, steps: str, draws: int, samplers: str = SAMPLERS) -> None:
    """Options of the samplers."""
    parser.add_argument("--samplers", default=samplers, help="with spaces between (default: %(default)s)")
    parser.add_argument("--steps", type=numbers, default=numbers(steps), help=f"numbers of sampling steps ({steps})")
    parser.add_argument("--draws", type=int, default=draws, help="boards drawn from nothing (default: %(default)s)")
    parser.add_argument("--tries", type=int, default=1, help="attempts at a puzzle (default: %(default)s)")


def parsed(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and those of `usd3 train`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command")
    making = commands.add_parser("make", help="make boards and puzzles")
    add_data(making, 9, 30_000, 1000)
    making.add_argument("--out", type=Path, required=True, help="a folder")
    training = commands.add_parser("train", help="train a model on boards")
    training.add_argument("data", type=Path, help="the folder that `make` wrote")
    training.add_argument("--run", type=Path, required=True, help="the folder of the model")
    training.add_argument("--recipe", default="sudoku", help="a recipe of boards (default: %(default)s)")
    training.add_argument("--minutes", type=float, help="of training; by default as many steps as the recipe says")
    solving = commands.add_parser("solve", help="solve puzzles with a model")
    solving.add_argument("run", type=Path, help="the folder of the model")
    solving.add_argument("--puzzles", type=Path, help="a text of puzzles; by default that beside the training boards")
    solving.add_argument("--out", type=Path, help="a new folder; by default one in that of the model")
    add_solving(solving, "5,10,20,57", 0)
    small = commands.add_parser("small", help="4 x 4 boards, all in one go; the default")
    large = commands.add_parser("benchmark", help="9 x 9 boards, all in one go")
    for one, sizes, minutes, steps, draws in (
        (small, (4, 5000, 200), None, "4,8,16", 200),
        (large, (9, 30_000, 1000), 60.0, "2,5,10,20,57", 100),
    ):
        add_data(one, *sizes)
        one.add_argument("--recipe", default="sudoku", help="a recipe of boards (default: %(default)s)")
        usual = f"by default {SMALL_STEPS} steps" if minutes is None else "default: %(default)s"
        one.add_argument("--minutes", type=float, default=minutes, help=f"of training ({usual})")
        one.add_argument("--out", type=Path, default=Path("runs/sudoku"), help="a folder (default: %(default)s)")
        add_solving(one, steps, draws, SMALL_SAMPLERS if one is small else SAMPLERS)
    for one in (making, training, solving, small, large):
        one.add_argument("--seed", type=int, default=0, help="of all draws (default: %(default)s)")
    if not words or (words[0].startswith("--") and words[0] != "--help"):
        words = ["small", *words]
    options, others = parser.parse_known_args(words)
    if others and options.command in ("make", "solve"):
        parser.error(f"{' '.join(others)}: no such option of {options.command}")
    return options, others


def run(options: argparse.Namespace, others: list[str]) -> None:
    """One command."""
    if options.command == "make":
        make(options.out, options.side, options.boards, options.puzzles, options.seed)
    elif options.command == "train":
        train(options.data, options.run, options.recipe, options.minutes, [*seeded(options), *others])
    elif options.command == "solve":
        out = options.out or new_folder(options.run, "solved")
        require_free(out, "out")
        samplers = options.samplers.split()
        solve(options.run, options.puzzles, out, samplers, options.steps, options.draws, options.seed, options.tries)
    else:
        data, model = options.out / "data", options.out / "model"
        make(data, options.side, options.boards, options.puzzles, options.seed)
        steps = ["--training.steps", str(SMALL_STEPS)] if options.minutes is None else []
        train(data, model, options.recipe, options.minutes, [*seeded(options), *steps, *others])
        out, samplers = new_folder(options.out, "solved"), options.samplers.split()
        puzzles = data / "puzzles.txt"
        solve(model, puzzles, out, samplers, options.steps, options.draws, options.seed, options.tries)


def seeded(options: argparse.Namespace) -> list[str]:
    """The seed as an option of `usd3 train`."""
    return ["--seed", str(options.seed)]


def main() -> int:
    """Run the command of the user; an error is one line."""
    try:
        run(*parsed(sys.argv[1:]))
    except (ValueError, OSError) as error:
        print(f"sudoku.py: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
