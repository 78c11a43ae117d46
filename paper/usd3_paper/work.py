"""How much a command of a study has to do: training steps, and network calls to draw and to measure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml  # type: ignore[import-untyped]

from usd3.cli.parsing import value_of
from usd3.cli.sweep_words import variants
from usd3.evaluation.settings import EvaluationSettings
from usd3.training.images import FitConfig
from usd3.training.options import Recipe
from usd3_paper.recipes import methods_of

__all__ = ["Work", "work_of"]

_COUNTED = ("compare", "train", "evaluate", "classifier", "vqgan")
_IMAGES = 10_000  # drawn by default where images are drawn


@dataclass(frozen=True)
class Work:
    """What one training takes, with the measurement of its model.

    Args:
        recipe: of the training; None: unknown, so that it cannot be estimated, or that of a network for images.
        steps: training steps.
        minutes: the most that the training takes; None: any.
        trainings: how many of these.
        calls: objects drawn or measured, times the network calls of each.
        images: the command that trains a network for images, "classifier" or "vqgan"; empty: a diffusion model.
    """

    recipe: Recipe | None
    steps: int = 0
    minutes: float | None = None
    trainings: int = 1
    calls: int = 0
    images: str = ""


def work_of(
    left: Sequence[Sequence[str]], done: Sequence[Sequence[str]], objects: Mapping[str, Any]
) -> tuple[list[Work], list[str]]:
    """The work that is left of a study, and the names of the commands that are not counted.

    Args:
        left: the commands that are left.
        done: those that are done; what they trained and measured is not done again.
        objects: the objects of the data: "held_out" says how many are measured. Empty: unknown, so nothing is counted.
    """
    if not objects:
        return [], list(dict.fromkeys(command[0] for command in left))
    todo, before = _works(left, objects), _works(done, objects)
    unknown = [command[0] for command in left if command[0] not in _COUNTED]
    works = [_less(work, before[place]) if place in before else work for place, work in todo.items()]
    return [work for work in works if work.trainings or work.calls], list(dict.fromkeys(unknown))


def _less(work: Work, before: Work) -> Work:
    """What is left of some work after other work in the same place."""
    trainings, calls = work.trainings - before.trainings, work.calls - before.calls
    return replace(work, trainings=max(0, trainings), calls=max(0, calls))


def _works(commands: Sequence[Sequence[str]], objects: Mapping[str, Any]) -> dict[str, Work]:
    """The work of commands by the folder of the training: they go on with each other's trainings."""
    works: dict[str, Work] = {}
    for command in commands:
        if command[0] == "compare":
            works |= _compared(command, objects, works)
        elif command[0] == "train":
            (model,) = methods_of(command)
            works[model.label] = _trained(model.recipe)
        elif command[0] in ("classifier", "vqgan"):
            steps = int(value_of("--steps", list(command)) or FitConfig().steps)
            works[str(value_of("--run", list(command)))] = Work(None, steps, images=command[0])
        elif command[0] == "evaluate":
            works[command[1]] = _evaluated(command, works.get(command[1], Work(None, trainings=0)), objects)
    return works


def _compared(command: Sequence[str], objects: Mapping[str, Any], earlier: Mapping[str, Work]) -> dict[str, Work]:
    """The work of each method of a comparison. A model that was trained before is measured once more."""
    calls, works = _calls(command, "--evaluation.", objects), {}
    for method in methods_of(command):
        if method.recipe is None:
            place = str(method.trained)
            works[place] = replace(earlier.get(place, Work(None, trainings=0)), calls=calls)
        else:
            place = f"{value_of('--out', list(command))}/{method.label}"
            works[place] = replace(_trained(method.recipe), trainings=method.trainings, calls=calls * method.trainings)
    return works


def _trained(recipe: Recipe | None) -> Work:
    return Work(recipe) if recipe is None else Work(recipe, recipe.training.steps, recipe.training.minutes)


def _evaluated(command: Sequence[str], work: Work, objects: Mapping[str, Any]) -> Work:
    """The work of a training with its evaluation; each corrector of a sweep draws again."""
    sweep = value_of("--sweep", list(command))
    if sweep is None:
        return replace(work, calls=_calls(command, "--", objects))
    usual, calls = _settings(command, "--").steps or 100, 0
    for corrector, own in variants(sweep):
        steps = own or usual
        calls += steps + corrector.num_steps * min(corrector.last or steps, steps)
    return replace(work, calls=_drawn(command, "--", objects) * calls)


def _calls(command: Sequence[str], prefix: str, objects: Mapping[str, Any]) -> int:
    """Objects times network calls of an evaluation: to draw, and for the bound on held-out objects."""
    settings = _settings(command, prefix)
    held_out = int(min(objects["held_out"], settings.limit or objects["held_out"]))
    return _drawn(command, prefix, objects) * (settings.steps or 100) + held_out * settings.bound_samples


def _drawn(command: Sequence[str], prefix: str, objects: Mapping[str, Any]) -> int:
    """How many objects an evaluation draws."""
    settings, options = _settings(command, prefix), list(command)
    if len(objects["shape"]) > 1:
        return settings.runs * int(value_of(f"{prefix}images.num", options) or _IMAGES)
    return settings.runs * int(min(objects["held_out"], settings.limit or objects["held_out"]))


def _settings(command: Sequence[str], prefix: str) -> EvaluationSettings:
    """The settings of an evaluation that say how much it draws."""
    options, usual = list(command), EvaluationSettings()
    for name in ("runs", "steps", "limit", "bound_samples"):
        value = value_of(f"{prefix}{name}", options)
        usual = usual if value is None else replace(usual, **{name: yaml.safe_load(value)})
    return usual
