"""Do models parrot once they know their training objects by heart? Bounds, distances and copies against epochs.

    python paper/studies/parroting/parroting.py pop909_melody_256.npz --out runs/parroting
    python paper/studies/parroting/parroting.py bach --train 96 --out runs/parroting-bach

Each method trains in stages on few melodies, without transposing them. After each stage it continues held-out melodies
that begin like training melodies and go on differently. The folder gets results.json, table.csv and parroting.png; the
same command goes on where it stopped.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.device import device_named
from usd3._internal.files import write_whole, written_whole
from usd3._internal.random import seed_of
from usd3._internal.tables import Table
from usd3.bench.machine import machine
from usd3.evaluation.plots import LINES
from usd3.evaluation.ratios import SharedPrefixes
from usd3.kinds.options import DataConfig
from usd3.metrics import matching_rows, nearest_edits
from usd3.pictures.figures import INK, SOFT_INK, new_figure, save, style
from usd3.pipeline.pipeline import Pipeline
from usd3.training.options import Recipe
from usd3.training.recipes import recipe_from
from usd3.training.run import fit

Rows = list[dict[str, Any]]
Melodies = NDArray[np.int64]
DISTANCES = ("3g Hellinger", "3g outliers")
COPY = 0.1  # a continuation is a copy if its edit distance to some training continuation is at most this
REFERENCES = ("the truth", "a training object")
_TITLES = (
    "bits per element, at most\nsolid: held-out, dotted: training",
    "3-gram distance to the truth, by that to the\ntraining object; above 1: closer to the latter",
    "continuations that copy\na training object, %",
)


class Objects(NamedTuple):
    """The melodies of an experiment.

    Args:
        train: (M, L) the training objects.
        held_out: (N, L) objects that begin like training objects and go on differently.
    """

    train: Melodies
    held_out: Melodies


# ---- data -----------------------------------------------------------------------------------------------------------


def pop909(path: Path, length: int) -> Objects:
    """The arrays `train` and `parrot` of an .npz file, cut to `length`."""
    with np.load(path) as arrays:
        for name in ("train", "parrot"):
            require(name in arrays, "data", path, f'an .npz file with the array "{name}"')
        return Objects(*(arrays[name][:, :length].astype(np.int64) for name in ("train", "parrot")))


def bach(length: int, prefix: int) -> Objects:
    """Bach's melodies without padding, of both splits of the dataset, split anew by `by_beginning`."""
    dataset = DataConfig(source="bach", length=length).load()
    parts = [(part.tokens, part.pad) for part in (dataset.train, dataset.test)]
    whole = [tokens if pad is None else tokens[~pad.any(1)] for tokens, pad in parts]
    return by_beginning(torch.cat(whole).long().numpy(), prefix)


def by_beginning(melodies: Melodies, prefix: int) -> Objects:
    """Of the different melodies with the same beginning one is held out, and the others are trained on.

    Beginnings of one category alone, such as rests, are left out.
    """
    melodies = np.unique(melodies, axis=0)
    heads = melodies[:, :prefix]
    melodies = melodies[(heads != heads[:, :1]).any(1)]
    first = np.unique(melodies[:, :prefix], axis=0, return_index=True)[1]
    return Objects(np.delete(melodies, first, axis=0), melodies[first])


def chosen(objects: Objects, prefix: int, differs: float, num: int, seed: int = 0) -> Objects:
    """Held-out objects with their training objects, and random other training objects: `num` to train on.

    A held-out object is kept if some training objects begin like it, and if from all of these it differs in at least
    the share `differs` of the elements after the prefix.
    """
    train, held_out = objects
    matches = matching_rows(held_out, train, prefix)
    kept = [
        i
        for i, match in enumerate(matches)
        if len(match) and (held_out[i, prefix:] != train[match, prefix:]).mean(1).min() >= differs
    ]
    expected = f"some that begin like training objects and then differ in {differs:.0%} of their elements"
    require(len(kept) > 0, "held-out objects", len(kept), expected)
    needed = np.unique(np.concatenate([matches[i] for i in kept]))
    require(len(needed) <= num <= len(train), "train", num, f"{len(needed)}..{len(train)}, with all that begin alike")
    others = np.random.default_rng(seed).permutation(np.setdiff1d(np.arange(len(train)), needed))
    return Objects(train[np.sort(np.concatenate([needed, others[: num - len(needed)]]))], held_out[kept])


# ---- training and measuring -----------------------------------------------------------------------------------------


def recipe_for(
    method: str, base: Sequence[str], data: Path, prefix: int, stages: Sequence[int], **training: Any
) -> Recipe:
    """The recipe of a method: a constant learning rate, so that a later stage goes on as if there were one training."""
    fixed = {"given": "prefix", "prefix": prefix, "decay": "constant", "warmup": stages[0] // 4, "minutes": None}
    rest = {"epochs": None, "patience": 0, "least_batches": 0, "validate_every": 0, "checkpoint_every": stages[-1]}
    options = {"data": {"source": "array", "path": str(data), "music": True, "transpose": 0, "scramble": None}}
    return recipe_from([*base, *method.split("+")], {**options, "training": fixed | rest | training})


def measured(
    pipeline: Pipeline, objects: Objects, prefix: int, runs: int, steps: int, times: int
) -> dict[str, float | None]:
    """Bounds, in bits per element, of both kinds of objects, and what the continuations of held-out ones are like.

    Args:
        pipeline: the model.
        objects: the data.
        prefix: number of given elements.
        runs: continuations of each held-out object.
        steps: sampling steps.
        times: times at which a bound is estimated.
    """
    shared, given = shared_of(objects, prefix), torch.arange(objects.train.shape[1]) < prefix
    alike = shared.train[torch.from_numpy(np.unique(np.concatenate(shared.matches)))]
    bits = {
        f"bits_{name}": float(pipeline.bound(tokens, given, num_samples=times).mean() / (~given).sum() / math.log(2))
        for name, tokens in (("train", alike), ("held_out", shared.truth))
    }
    draws = [
        pipeline.sample(tokens=shared.truth, given=given, num_steps=steps, seed=seed_of(run)) for run in range(runs)
    ]
    return bits | compared(torch.stack(draws), shared)


def shared_of(objects: Objects, prefix: int) -> SharedPrefixes:
    """The held-out objects with the training objects that begin like them."""
    train, truth = (torch.from_numpy(part) for part in objects)
    return SharedPrefixes(list(range(len(truth))), truth, train, matching_rows(truth, train, prefix), prefix)


def compared(drawn: Tensor, shared: SharedPrefixes) -> dict[str, float | None]:
    """Distances of continuations (R, N, L) to the truth and to the training objects, their ratios, and copies.

    The given elements do not count. None stands for an infinite ratio. `copied` is the share of continuations whose
    edit distance to the nearest of all training continuations, `nearest_edit`, is at most 0.1.
    """
    row: dict[str, float | None] = {}
    ratios = shared.measured(drawn, include_prefix=False)
    for name in DISTANCES:
        key = name.lower().replace(" ", "_")
        means = {part: ratios[name][part].mean for part in ("to_test", "to_train", "literal", "swapped")}
        row |= {f"{key}_{part}": mean if math.isfinite(mean) else None for part, mean in means.items()}
    edits = nearest_edits(_strings(drawn.flatten(0, 1), shared.prefix), _strings(shared.train, shared.prefix))
    return row | {"nearest_edit": float(edits.mean()), "copied": float((edits <= COPY).mean())}


def _strings(objects: Tensor, prefix: int) -> list[str]:
    """The elements after the prefix as letters."""
    return ["".join(map(chr, row)) for row in objects[:, prefix:].tolist()]


def references(objects: Objects, prefix: int) -> Rows:
    """The same numbers for the truth, and for the first training object that begins like each held-out one."""
    shared = shared_of(objects, prefix)
    copies = shared.train[[int(match[0]) for match in shared.matches]]
    drawn = dict(zip(REFERENCES, (shared.truth, copies)))
    return [{"method": name, **compared(tokens[None], shared)} for name, tokens in drawn.items()]


# ---- results --------------------------------------------------------------------------------------------------------


def as_csv(rows: Rows) -> str:
    """A line for each method and stage, then the reference rows; what a row does not have is empty."""
    columns = list(rows[-1])
    order = list(dict.fromkeys(row["method"] for row in (*rows[2:], *rows[:2])))
    cells = [
        [_cell(row.get(name)) for name in columns] for row in sorted(rows, key=lambda row: order.index(row["method"]))
    ]
    return Table(columns, [cells]).csv()


def _cell(value: float | str | None) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def plot(rows: Rows, path: Path) -> None:
    """Against epochs: both bounds, the distances to the truth and to the training objects, and the share of copies."""
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    figure = new_figure(11.5, 3.8)
    panels = bits, ratio, copies = figure.subplots(1, 3)
    by_method: dict[str, Rows] = {}
    for row in rows:
        if row["method"] not in REFERENCES:
            by_method.setdefault(row["method"], []).append(row)
    for colour, (method, own) in zip(LINES, by_method.items()):
        epochs = [row["epochs"] for row in own]
        look = {"color": colour, "markersize": 3.5, "linewidth": 1.4}
        bits.plot(epochs, [row["bits_held_out"] for row in own], "o-", label=method, **look)
        bits.plot(epochs, [row["bits_train"] for row in own], "o:", markerfacecolor="white", **look)
        key = "3g_hellinger_to_"
        ratio.plot(epochs, [row[f"{key}test"] / row[f"{key}train"] for row in own], "o-", **look)
        copies.plot(epochs, [100 * row["copied"] for row in own], "o-", **look)
    for axes, title in zip(panels, _TITLES):
        style(axes)
        axes.set_xscale("log")
        axes.set_title(title, fontsize=9, color=INK, loc="left")
        axes.set_xlabel("epochs", fontsize=9, color=SOFT_INK)
    ratio.axhline(1, color=SOFT_INK, linewidth=0.8)
    ratio.set_yscale("log")
    for axis in (*(axes.xaxis for axes in panels), ratio.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_formatter(NullFormatter())
    bits.set_ylim(bottom=0)
    copies.set_ylim(-3, 103)
    bits.legend(fontsize=8, frameon=False)
    save(figure, path)


# ---- the command ----------------------------------------------------------------------------------------------------


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help='an .npz file with the arrays "train" and "parrot", or bach')
    parser.add_argument("--out", type=Path, required=True, help="a folder, new or of the same command")
    parser.add_argument("--methods", default="usd3+discrete ce+discrete vlb+discrete", help="recipes joined by +")
    parser.add_argument("--recipes", default="small", help="recipes or YAML files for all methods: the network")
    parser.add_argument("--stages", default="48 192 480 960 1440 1920", help="steps after which to measure")
    parser.add_argument("--train", type=int, default=48, help="training objects")
    parser.add_argument("--length", type=int, default=96, help="elements of an object")
    parser.add_argument("--prefix", type=int, default=32, help="given elements")
    parser.add_argument(
        "--differs", type=float, default=0.25, help="least share in which the objects go on differently"
    )
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--runs", type=int, default=3, help="continuations of each held-out object")
    parser.add_argument("--steps", type=int, default=16, help="sampling steps")
    parser.add_argument("--times", type=int, default=32, help="times at which a bound is estimated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and measure what is not measured yet, and write the results after each stage."""
    given = options(arguments)
    torch.set_num_threads(given.threads)
    given.out.mkdir(parents=True, exist_ok=True)
    settings = {
        name: value for name, value in vars(given).items() if name not in ("out", "threads", "methods", "stages")
    }
    objects = bach(given.length, given.prefix) if given.data == "bach" else pop909(Path(given.data), given.length)
    objects = chosen(objects, given.prefix, given.differs, given.train)
    rows = _kept(given.out / "results.json", settings) or references(objects, given.prefix)
    data = given.out / "data.npz"
    with written_whole(data) as part:
        np.savez_compressed(part, train=objects.train, test=objects.held_out)
    stages = [int(word) for word in given.stages.split()]
    training = {"batch_size": given.batch_size, "lr": given.lr}
    for steps in stages:
        for method in given.methods.split():
            if any((row["method"], row.get("steps")) == (method, steps) for row in rows):
                continue
            recipe = recipe_for(method, given.recipes.split(), data, given.prefix, stages, **training)
            recipe.seed, recipe.training.steps = given.seed, steps
            run = given.out / "runs" / method
            pipeline = fit(recipe, run, resume=(run / "recipe.yaml").is_file()).to(device_named(None))
            epochs = steps * given.batch_size / len(objects.train)
            done = {"method": method, "steps": steps, "epochs": epochs, "minutes": pipeline.config.minutes}
            rows.append(done | measured(pipeline, objects, given.prefix, given.runs, given.steps, given.times))
            write(rows, settings, pipeline, objects, given.out)
            print({key: _cell(value) for key, value in rows[-1].items()}, flush=True)


def write(rows: Rows, settings: Mapping[str, Any], pipeline: Pipeline, objects: Objects, folder: Path) -> None:
    """Write the results so far into a folder: results.json, table.csv and parroting.png."""
    size = sum(weight.numel() for weight in pipeline.model.parameters())
    about = {"held_out": len(objects.held_out), "parameters": size, "machine": machine(pipeline.device)}
    results = {"settings": settings, **about, "rows": rows}
    write_whole(folder / "results.json", json.dumps(results, indent=2, allow_nan=False) + "\n")
    write_whole(folder / "table.csv", as_csv(rows))
    plot(rows, folder / "parroting.png")


def _kept(file: Path, settings: Mapping[str, Any]) -> Rows:
    """The rows of an earlier command in this folder; raises an error if its settings were others."""
    if not file.is_file():
        return []
    before = json.loads(file.read_text(encoding="utf-8"))
    for name, value in settings.items():
        require(before["settings"][name] == value, name, value, f"{before['settings'][name]}, as in {file}")
    rows: Rows = before["rows"]
    return rows


if __name__ == "__main__":
    main()
