"""usd3 cost: what training and sampling of several methods cost on this machine."""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from usd3._internal.checks import as_count, require
from usd3._internal.files import known_folder, new_folder, write_whole
from usd3.bench.cost import CostSettings, measure_cost, random_tokens, require_measurable
from usd3.bench.cost_tables import cost_csv, cost_latex, cost_text
from usd3.bench.machine import device_to_measure, machine
from usd3.bench.timing import one_line
from usd3.cli.entries import Entry, about_method, method_words, plain, read_entry, require_names, require_same_recipe
from usd3.training.options import Recipe

__all__ = ["CostOptions", "cost"]

_RESULTS = "cost.json"


@dataclass
class CostOptions(CostSettings, Recipe):
    """Measure what training and sampling cost for several methods, in one process, and write one table.

    The words are recipes for all methods; the options of `usd3 train` hold for all methods too, and come last. A few
    steps of training, in a real run, and of sampling are timed, and hours are extrapolated from them. The same command
    with the same --out goes on where it stopped.

    Args:
        methods: words, each recipes joined by +, as in "usd3+discrete"; a name may stand before a colon:
            "star:usd3-star+discrete". null: all methods.
        shape: random tokens of this shape in place of data, as in "8,8"; null: the data of the recipes.
        num_classes: categories of these tokens.
        device: "cpu" or "cuda"; null: a GPU if there is one.
        out: folder of the results, new or that of an earlier measurement; null: a new one below runs/.
        trust_code: import a kind, network or method that is not ours, if a recipe names one. This runs its code. Not
            needed for a class that is named on the command line.
    """

    methods: str | None = None
    shape: str | None = None
    num_classes: int | None = None
    device: str | None = None
    out: str | None = None
    trust_code: bool = False


def cost(options: CostOptions, base: Sequence[str], read: Callable[[Sequence[str]], CostOptions]) -> None:
    """Measure each method, write its results at once, and print the table.

    Args:
        options: of the command line.
        base: the recipes for all methods.
        read: reads the options from the names of recipes.
    """
    settings = CostSettings(**{part.name: getattr(options, part.name) for part in fields(CostSettings)})
    tokens, device = _tokens(options), device_to_measure(options.device)
    out = known_folder(options.out, _RESULTS, "an earlier `usd3 cost`")
    recipes = _recipes(options.methods, base, read)
    shape, num_classes = (None, None) if tokens is None else tokens
    tokens_and_settings = {"shape": shape, "num_classes": num_classes} | asdict(settings)
    about = {"settings": tokens_and_settings, "machine": machine(device)}
    results = about | _kept(out, about, recipes)
    with tempfile.TemporaryDirectory() as scratch:
        data = None if tokens is None else random_tokens(Path(scratch), *tokens)
        todo = {
            entry.label: (entry, recipe if data is None else replace(recipe, data=data))
            for entry, recipe in recipes
            if entry.label not in results["rows"]
        }
        for entry, recipe in todo.values():
            with about_method(entry.label):
                require_measurable(recipe, recipe.data.load(), settings)  # before anything is measured
        out = new_folder("runs", "cost") if out is None else out
        print(f"results go to {out}; with --out {out} the same command goes on", file=sys.stderr)
        try:
            for number, (entry, recipe) in enumerate(todo.values(), start=1):
                print(f"measuring {entry.label} ({number}/{len(todo)})", file=sys.stderr, flush=True)
                _measure(entry, recipe, settings, device, results)
                write_whole(out / _RESULTS, json.dumps(results, indent=2, allow_nan=False) + "\n")
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"(the same command with --out {out} goes on)") from None
    _write(results, [entry.label for entry, _ in recipes], out)


def _measure(
    entry: Entry, recipe: Recipe, settings: CostSettings, device: torch.device, results: dict[str, Any]
) -> None:
    """Add the costs of a method to the results, or the reason why it failed."""
    try:
        measured = measure_cost(recipe, settings, device).as_dict()
    except Exception as error:  # the others go on
        results["failed"][entry.label] = one_line(error)
        print(f"measuring {entry.label} failed: {one_line(error)}", file=sys.stderr)
        if os.environ.get("USD3_DEBUG"):
            raise
        return
    assert entry.recipe is not None
    results["rows"][entry.label] = measured.pop("values")
    results["recipes"][entry.label] = entry.source
    results["details"][entry.label] = measured | {"recipe": plain(entry.recipe)}


# ---- options ------------------------------------------------------------------------------------------------------


def _tokens(options: CostOptions) -> tuple[list[int], int] | None:
    """Shape and number of categories of random tokens; None: the data of the recipes."""
    if options.shape is None:
        require(options.num_classes is None, "num_classes", options.num_classes, "null without --shape")
        return None
    sizes = options.shape.split(",")
    valid = all(size.strip().isdecimal() and int(size) > 0 for size in sizes)
    require(valid, "shape", options.shape, 'numbers with commas between them, as in "8,8"')
    if options.num_classes is None:
        raise ValueError("num_classes is missing: expected the number of categories, with --shape")
    return [int(size) for size in sizes], as_count(options.num_classes, "num_classes", 2)


def _recipes(
    words: str | None, base: Sequence[str], read: Callable[[Sequence[str]], CostOptions]
) -> list[tuple[Entry, Recipe]]:
    entries = [read_entry(word, base, read) for word in method_words(words)]
    require_names(entries)
    for entry in entries:
        expected = "recipes, not the folder of a trained model, whose training is over"
        require(entry.recipe is not None, "methods", entry.source, expected)
        once = "no number of trainings: each method is timed once"
        require(entry.trainings is None, "methods", f"{entry.source}*{entry.trainings}", once)
    return [(entry, entry.recipe) for entry in entries if entry.recipe is not None]


def _kept(out: Path | None, about: dict[str, Any], recipes: Sequence[tuple[Entry, Recipe]]) -> dict[str, Any]:
    """The results of an earlier command. Raises an error if settings, recipes or machine were others."""
    new: dict[str, Any] = {"rows": {}, "recipes": {}, "details": {}, "failed": {}}
    if out is None or not (file := out / _RESULTS).is_file():
        return new
    try:
        before = json.loads(file.read_text(encoding="utf-8"))
        kept = {name: before[name] for name in new} | {"failed": {}}
        for part, values in about.items():
            for name, value in values.items():
                option = name if part == "settings" else f"{part}.{name}"
                earlier = before[part].get(name)
                require(value == earlier, option, value, f"{earlier}, as in {file}; or another --out")
        for entry, recipe in recipes:
            if entry.label in kept["rows"]:
                require_same_recipe(entry.label, recipe, kept["details"][entry.label]["recipe"], file)
    except (json.JSONDecodeError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{file}: expected the results of usd3 cost ({error})") from None
    return kept


# ---- results ------------------------------------------------------------------------------------------------------


def _write(results: dict[str, Any], asked: Sequence[str], out: Path) -> None:
    """Write and print the tables: the methods asked for in their order, then those measured earlier."""
    order = [label for label in asked if label in results["rows"]]
    order += [label for label in results["rows"] if label not in order]
    ordered = {part: {label: results[part][label] for label in order} for part in ("rows", "recipes", "details")}
    results = results | ordered
    write_whole(out / _RESULTS, json.dumps(results, indent=2, allow_nan=False) + "\n")
    if order:
        write_whole(out / "cost.csv", cost_csv(results))
        write_whole(out / "cost.tex", cost_latex(results))
        print(f"{cost_text(results)}\ncost.json, cost.csv, cost.tex in {out}")
    if results["failed"]:
        reasons = "; ".join(f"{label}: {reason}" for label, reason in results["failed"].items())
        raise ChildProcessError(f"{len(results['failed'])} of the methods failed: {reasons}")
