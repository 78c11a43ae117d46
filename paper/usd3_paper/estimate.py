"""How long the studies will take on this machine, and what that costs, from a few timed steps of each network."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from usd3._internal.files import write_whole
from usd3._internal.graphs import SETTLED
from usd3._internal.progress import say
from usd3._internal.tables import Table
from usd3.bench.cost import CostSettings, measure_cost, random_tokens
from usd3.bench.machine import machine
from usd3.training.classifier import ClassifierConfig, ClassifierTraining
from usd3.training.images import FitConfig, fit_images
from usd3.training.options import Recipe
from usd3.training.vqgan import VQGANConfig, VQGANTraining
from usd3_paper.work import Work, work_of

__all__ = ["Part", "Speed", "estimate", "speeds"]

_FILE = "estimate.json"
_STEPS, _CALLS = 3, 3  # timed of each network
_ON_CPU, _ON_GPU = 4, 256  # objects at once; on a CPU the time of a step is in proportion to them


class Speed(NamedTuple):
    """What a network takes: milliseconds of a training step, and of a call to draw one object."""

    step_ms: float
    call_ms: float


@dataclass(frozen=True)
class Part:
    """What is left of a study.

    Args:
        study: its name.
        left: its commands that are not done yet.
        done: those that are.
        objects: the objects of its data, see `Study.objects`.
        remark: such as that its data are missing.
    """

    study: str
    left: Sequence[Sequence[str]]
    done: Sequence[Sequence[str]]
    objects: Mapping[str, Any]
    remark: str = ""


def estimate(parts: Sequence[Part], folder: Path, price: float | None = None) -> str:
    """A table of trainings, steps, minutes and cost of each study and of all, and what it rests on.

    Args:
        parts: what is left of each study.
        folder: of all runs; it keeps what was measured.
        price: of an hour; None: there is no column of costs.
    """
    works = {part.study: work_of(part.left, part.done, part.objects) for part in parts}
    measured = speeds([(work, part.objects) for part in parts for work in works[part.study][0]], folder)
    rows, total, uncounted = [], [0.0, 0.0, 0.0], []
    for part in parts:
        found, unknown = works[part.study]
        numbers = [
            float(sum(work.trainings for work in found if work.steps)),
            float(sum(work.trainings * work.steps for work in found)),
            sum(_minutes(work, measured.get(_network(work, part.objects))) for work in found),
        ]
        total = [before + number for before, number in zip(total, numbers)]
        uncounted += [f"{part.study}: {', '.join(unknown)}"] if unknown else []
        rows.append([part.study, *_cells(numbers, price), part.remark])
    head = ["STUDY", "TRAININGS", "STEPS", "MINUTES", *(["COST"] if price is not None else []), ""]
    notes = [_basis(len(measured)), *([f"Not in it: {'; '.join(uncounted)}."] if uncounted else [])]
    return Table(head, [rows, [["in all", *_cells(total, price), ""]]], notes).text()


def speeds(needed: Sequence[tuple[Work, Mapping[str, Any]]], folder: Path) -> dict[str, Speed]:
    """The speed of each network, timed now where it was not timed on this machine before.

    Args:
        needed: work, each with the objects of its data. Trainings of the same network and batch are timed once: their
            losses differ by a few per cent.
        folder: keeps the file of the speeds.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    about = {name: value for name, value in machine(device).items() if name in ("machine", "threads", "torch")}
    file = folder / _FILE
    kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    known = kept.get("speeds", {}) if kept.get("machine") == about else {}
    todo = {_network(work, objects): (work, objects) for work, objects in needed if work.recipe or work.images}
    for number, (network, (work, objects)) in enumerate(todo.items(), start=1):
        if network not in known:
            say(f"timing network {number} of {len(todo)}: {_STEPS} training steps and {_CALLS} calls")
            recipe = work.recipe
            known[network] = _timed_images(work.images, device) if recipe is None else _timed(recipe, objects, device)
            write_whole(file, json.dumps({"machine": about, "speeds": known}, indent=1) + "\n")
    return {network: Speed(*known[network]) for network in todo}


def _network(work: Work, objects: Mapping[str, Any]) -> str:
    """What the time of a step depends on: the network, the batch and the objects."""
    if work.recipe is None:
        return work.images
    shape, K = objects["shape"], objects["categories"]
    return json.dumps([asdict(work.recipe.model), work.recipe.training.batch_size, shape, K], sort_keys=True)


def _timed(recipe: Recipe, objects: Mapping[str, Any], device: torch.device) -> Speed:
    """Time some real steps of training on random tokens, and some calls of the sampler."""
    training = replace(recipe.training, compile=False)
    if device.type == "cpu":
        training = replace(training, batch_size=min(_ON_CPU, training.batch_size), accumulate=1)
    settings = CostSettings(
        steps=_STEPS,
        draw=_ON_GPU if device.type == "cuda" else _ON_CPU,
        draw_steps=100,
        timed_draw_steps=_CALLS,
        objects=1,
        corrector_steps=0,
    )
    with tempfile.TemporaryDirectory() as scratch, redirect_stderr(StringIO()):  # without its progress
        data = random_tokens(Path(scratch), objects["shape"], objects["categories"])
        values = measure_cost(replace(recipe, data=data, training=training), settings, device).values
    scale = recipe.training.batch_size / training.batch_size
    return Speed(values["train_ms"].mean * scale, values["sample_hours"].mean * 3_600_000 / settings.draw_steps)


def _timed_images(program: str, device: torch.device) -> Speed:
    """Time some real steps of a classifier or a VQGAN on random images, the VQGAN with the loss of a classifier."""
    on_gpu, last = device.type == "cuda", SETTLED + _STEPS
    batch = FitConfig().batch_size if on_gpu else _ON_CPU
    with tempfile.TemporaryDirectory() as scratch, redirect_stderr(StringIO()):
        folder, file = Path(scratch), Path(scratch) / "images.npz"
        pixels = np.random.default_rng(0).integers(256, size=(batch + 8, 32, 32, 3), dtype=np.uint8)
        np.savez(file, train=pixels[8:], test=pixels[:8])
        how: dict[str, Any] = {"images": str(file), "steps": last, "batch_size": batch, "checkpoint_every": last}
        how["precision"] = "bf16" if on_gpu else "fp32"
        fit_images(ClassifierConfig(**how), ClassifierTraining, folder / "classifier", progress=False)
        if program == "vqgan":
            config = VQGANConfig(**how, perceptual=str(folder / "classifier"), gan_start=0.0)
            fit_images(config, VQGANTraining, folder / "vqgan", progress=False)
        minutes = json.loads((folder / program / "config.json").read_text(encoding="utf-8"))["minutes"]
    return Speed(minutes * 60_000 / _STEPS * FitConfig().batch_size / batch, 0.0)


def _minutes(work: Work, speed: Speed | None) -> float:
    """Minutes of all trainings of some work, one after the other, and of their measurement."""
    if speed is None:
        return 0.0
    one = work.steps * speed.step_ms / 60_000
    return work.trainings * min(one, work.minutes or one) + work.calls * speed.call_ms / 60_000


def _cells(numbers: Sequence[float], price: float | None) -> list[str]:
    trainings, steps, minutes = numbers
    cost = [] if price is None else [f"{minutes / 60 * price:,.2f}"]
    return [f"{trainings:,.0f}", f"{steps:,.0f}", f"{minutes:,.1f}" if minutes < 100 else f"{minutes:,.0f}", *cost]


def _basis(networks: int) -> str:
    """What the estimate rests on, and what it leaves out."""
    on_gpu = torch.cuda.is_available()
    here = machine("cuda" if on_gpu else "cpu")
    how = "with whole batches" if on_gpu else f"with batches of {_ON_CPU}, multiplied to whole ones"
    machine_words = f"{here['machine']}, threads: {here['threads']}, torch {here['torch']}"
    return (
        f"Measured on this machine ({machine_words}): {_STEPS} steps and {_CALLS} network calls of each of {networks} "
        f"networks, {how}, not compiled. One training after the other: side by side (--jobs) they take less on a GPU. "
        "Without starting, compiling, validating, pictures, reference rows and train-to-test ratios."
    )
