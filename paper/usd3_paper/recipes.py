"""What the methods of a command train with: its recipes, read as `usd3` reads them, and a table of them for a page."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from usd3._internal.tables import Table
from usd3._internal.yaml_json import read_yaml
from usd3.cli.entries import Word, method_words, recipes_in
from usd3.cli.parsing import value_of
from usd3.core.options import DiffusionConfig
from usd3.methods.options import MethodConfig
from usd3.nets.options import ModelConfig
from usd3.recipes import find_recipe, list_recipes
from usd3.training.options import Recipe, TrainingConfig

__all__ = ["Method", "methods_of", "recipe_of", "recipes_table"]

_CHECKOUT = Path(__file__).parents[2]
_SECTIONS = {
    "diffusion": DiffusionConfig,
    "method": MethodConfig,
    "model": ModelConfig,
    "training": TrainingConfig,
}
_SCHEDULES = {"loglinear": "log-linear", "constant": "constant rate"}


@dataclass(frozen=True)
class Method:
    """A method in a command.

    Args:
        label: its name in the results.
        recipe: what it is trained with, without its data; None for the folder of a trained model.
        trainings: how many trainings the command has of it.
        trained: the folder of a trained model.
    """

    label: str
    recipe: Recipe | None
    trainings: int = 1
    trained: Path | None = None


def methods_of(command: Sequence[str]) -> list[Method]:
    """The methods of a command `compare` or `cost`, or the model of a command `train`, whose label is its folder."""
    base, options = _split(command)
    if command[0] == "train":
        run = value_of("--run", options)
        return [Method(str(run), recipe_of(base, options), trained=Path(str(run)))]
    repeats = int(value_of("--repeats", options) or 1)
    return [
        Method(word.label, recipe_of([*base, *recipes_in(word.source)], options), word.trainings or repeats)
        if all(_file(part) is not None for part in recipes_in(word.source))
        else Method(word.label, None, 1, Path(word.source))
        for word in map(Word.read, method_words(value_of("--methods", options)))
    ]


def recipe_of(words: Sequence[str], options: list[str]) -> Recipe:
    """The recipe of some words and the options after them; later ones overrule earlier ones, options overrule all."""
    sections: dict[str, dict[str, Any]] = {name: {} for name in _SECTIONS}
    files = [_file(word) for word in words]
    for content in [_content(file) for file in files if file is not None]:
        for name, values in sections.items():
            values |= content.get(name, {})
    for before, word in pairwise(options):
        section, _, name = before.removeprefix("--").partition(".")
        if before.startswith("--") and section in sections:
            sections[section][name] = yaml.safe_load(word)
    return Recipe(**{name: kind(**sections[name]) for name, kind in _SECTIONS.items()})


def _split(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words after the name of a command, and the options after these."""
    first = next((i for i, word in enumerate(command) if word.startswith("--")), len(command))
    return list(command[1:first]), list(command[first:])


def _file(word: str) -> Path | None:
    """The file of a recipe; one of ours may be named from the checkout, as results name it. None: it is no recipe."""
    if word in list_recipes():
        return find_recipe(word)
    places = [Path(word), _CHECKOUT / word] if Path(word).suffix in (".yaml", ".yml") else []
    return next(filter(Path.is_file, places), None)


@cache
def _content(file: Path) -> Any:
    return read_yaml(file)


# ---- a table for a page -------------------------------------------------------------------------------------------


def recipes_table(results: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Markdown: noise, schedule, time, output, loss and sampler of each row of the results; empty if it is not known.

    Args:
        results: with the commands that gave them.
        names: the name of each row, by its label.
    """
    recipes = dict(_recipes(results))
    rows = [[name, *_described(recipes[label])] for label, name in names.items() if label in recipes]
    head = ["", "noise", "schedule", "time", "the output means", "loss", "drawn by"]
    return Table(head, [rows]).markdown() if rows else ""


def _recipes(results: Mapping[str, Any]) -> Iterator[tuple[str, Recipe]]:
    """Label and recipe of each method in the commands of some results. A model that a command trained has its own."""
    commands = [shlex.split(command) for command in results["commands"]]
    trained: dict[str, Recipe] = {}
    for command in commands:
        if command[:2] == ["usd3", "train"]:
            (model,) = methods_of(command[1:])
            trained[model.label] = model.recipe  # type: ignore[assignment]
            yield "model", trained[model.label]
    for command in commands:
        for method in methods_of(command[1:]) if command[:2] in (["usd3", "compare"], ["usd3", "cost"]) else ():
            recipe = method.recipe or trained.get(str(method.trained))
            if recipe is not None:
                yield method.label, recipe


def _described(recipe: Recipe) -> list[str]:
    """The cells of a recipe's row, after its name."""
    diffusion, method = recipe.diffusion, recipe.method
    schedule = _SCHEDULES.get(diffusion.schedule, diffusion.schedule)
    options = ", ".join(f"{name} = {value:g}" for name, value in diffusion.schedule_options.items())
    time = "continuous" if diffusion.num_steps is None else f"1 to {diffusion.num_steps:,}"
    noise = f"mask and {diffusion.uniform:.0%} uniform" if diffusion.noise == "mixed" else diffusion.noise
    sampler = method.sampler or str(method.options.get("decoding", method.kind.samplers[0]))
    return [noise, f"{schedule}, {options}" if options else schedule, time, _output(recipe), _loss(recipe), sampler]


def _output(recipe: Recipe) -> str:
    """What the output of the network means, and what a head makes of it."""
    joint = recipe.method.options.get("posterior") == "joint"
    meaning = {
        "full": "p(x_0 given x_t)",
        "hollow": "p(x_0 given the other elements)",
        "ratio": "ratios q_t(z) / q_t(x_t)",
    }["hollow" if joint else recipe.method.kind.reads]
    posterior = {"d3pm": ", marginal posterior"}.get(recipe.method.name, "")
    head = ", by a hollow head" if recipe.model.hollow else ""
    return f"{meaning}{', joint posterior' if joint else posterior}{head}"


def _loss(recipe: Recipe) -> str:
    """The loss, with the weights of its parts."""
    options, continuous = recipe.method.options, recipe.diffusion.num_steps is None
    ce = options.get("ce", 0.001)
    star = "VLB with β at most 1, + CE" if continuous else "simplified loss + CE"
    return {
        "usd3": {"usd3": "VLB + 0.001 CE", "usd3*": star, "vlb": "VLB", "ce": "CE"}[recipe.training.objective],
        "d3pm": f"VLB + {ce:g} CE",
        "rdm": f"CE where x_t differs from x_0, reweighting {options.get('reweighting', 'none')}",
        "tauldr": f"VLB with an auxiliary state, {options.get('passes', 'two_pass')}, + {ce:g} CE",
        "sddm": "ratio matching, weight 1 at each time",
        "sedd": "score entropy, weighted as the VLB",
        "mdlm": "CE at masked elements, weighted as the VLB",
    }.get(recipe.method.name, "its own")
