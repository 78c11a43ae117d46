"""What a method costs: its parameters, time and memory of its training, and the time to draw many objects."""

import gc
import math
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from usd3._internal.checks import as_count
from usd3._internal.graphs import SETTLED
from usd3._internal.progress import counted
from usd3.bench.clock import BlockClock, LoopClock
from usd3.core.model import ignores_time
from usd3.core.samplers import Corrector, Step
from usd3.kinds.dataset import Dataset
from usd3.kinds.options import DataConfig
from usd3.metrics.summary import Summary
from usd3.pipeline.pipeline import Pipeline
from usd3.training.options import Recipe
from usd3.training.run import fit, pipeline_for
from usd3.training.sizes import sized

__all__ = ["COLUMNS", "Cost", "CostSettings", "measure_cost", "random_tokens", "require_measurable"]

COLUMNS = {
    "parameters": "parameters",
    "train_ms": "training ms per step",
    "train_mib": "training MiB",
    "train_hours": "training hours",
    "sample_hours": "sampling hours",
    "sample_hours_corrected": "with corrector",
}
_BLOCKS = 5  # the standard deviation is over these
_MOST_DRAWN = 500  # objects in a batch
_UNEVEN = ("gillespie", "predictor_corrector")  # samplers whose steps differ in their work
_RANDOM_OBJECTS = 4096
_UNKNOWN = Summary(math.nan, math.nan)


@dataclass
class CostSettings:
    """How much is measured, and to what it is extrapolated.

    Args:
        steps: training steps to time, after a warm-up.
        draw: objects drawn at once; null: as many as fit, at most 500.
        draw_steps: sampling steps of an object.
        timed_draw_steps: how many of them are run and timed, after a warm-up; 0: sampling is not measured. A sampler
            whose steps differ runs all.
        objects: how many objects the hours of sampling are for.
        corrector_steps: corrector moves after every step, for methods that take a corrector; 0: not measured.
    """

    steps: int = 50
    draw: int | None = None
    draw_steps: int = 1000
    timed_draw_steps: int = 20
    objects: int = 50_000
    corrector_steps: int = 5

    def __post_init__(self) -> None:
        for name in ("steps", "draw_steps", "objects"):
            as_count(getattr(self, name), name, 1)
        for name in ("timed_draw_steps", "corrector_steps"):
            as_count(getattr(self, name), name, 0)
        as_count(1 if self.draw is None else self.draw, "draw", 1)


@dataclass(frozen=True)
class Cost:
    """What a method costs.

    Args:
        values: by the keys of `COLUMNS`; nan if it is unknown.
        draw: objects drawn at once; None: sampling was not measured.
        timed_draw_steps: sampling steps that were timed.
    """

    values: dict[str, Summary]
    draw: int | None = None
    timed_draw_steps: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON, with None in place of nan."""
        finite = {name: [v if math.isfinite(v) else None for v in value] for name, value in self.values.items()}
        return asdict(self) | {"values": {name: dict(zip(Summary._fields, v)) for name, v in finite.items()}}


def random_tokens(folder: Path, shape: Sequence[int], num_classes: int) -> DataConfig:
    """Write random tokens to a file in the folder; the data of a recipe that reads it."""
    tokens = np.random.default_rng(0).integers(num_classes, size=(_RANDOM_OBJECTS, *shape), dtype=np.int32)
    np.savez(folder / "tokens.npz", train=tokens, test=tokens[:64])
    return DataConfig("array", str(folder / "tokens.npz"), num_classes=num_classes)


def require_measurable(recipe: Recipe, dataset: Dataset, settings: CostSettings) -> None:
    """Refuse a recipe that cannot be built, or whose sampler cannot take so many steps."""
    pipeline = pipeline_for(recipe, dataset)
    if settings.timed_draw_steps:
        pipeline.diffusion.grid(pipeline.method.grid(settings.draw_steps, pipeline.method.samplers[0]))


def measure_cost(recipe: Recipe, settings: CostSettings, device: torch.device) -> Cost:
    """Time some steps of training and of sampling, and extrapolate to all of them."""
    _free_memory(device)
    pipeline, values = _training(recipe, settings.steps, device)
    _free_memory(device)
    if not settings.timed_draw_steps:
        return Cost(values)
    pipeline.to(device).compile = recipe.training.compile
    at_once = min(_MOST_DRAWN, pipeline.batch_size(settings.objects)) if settings.draw is None else settings.draw
    ms, size, timed = _sampling_ms(pipeline, at_once, settings)
    values["sample_hours"] = _sampling_hours(ms, pipeline, settings, size)
    if settings.corrector_steps and pipeline.method.corrects:
        _free_memory(device)
        corrector = Corrector(settings.corrector_steps, last=None)
        corrected_ms, corrected_size, _ = _sampling_ms(pipeline, size, settings, corrector)
        values["sample_hours_corrected"] = _sampling_hours(corrected_ms, pipeline, settings, corrected_size)
    return Cost(values, size, timed)


# ---- training -----------------------------------------------------------------------------------------------------


def _training(recipe: Recipe, steps: int, device: torch.device) -> tuple[Pipeline, dict[str, Summary]]:
    """The trained model, and time and memory of a real run of `fit`."""
    warm_up = SETTLED + max(1, steps // 5)
    last = warm_up + steps + 1  # the last step writes the checkpoint, after the clock has stopped
    training = replace(
        recipe.training,
        steps=last,
        epochs=None,
        minutes=None,
        devices=1,
        nodes=1,
        accelerator="cpu" if device.type == "cpu" else "gpu",
        validate_every=0,
        checkpoint_every=last,
        lr=min(recipe.training.lr, 1e-6),  # so short a run has no warm-up of the rate; a small one costs the same
    )
    clock, dataset = BlockClock(device, warm_up, steps, _BLOCKS), recipe.data.load()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        pipeline = fit(replace(recipe, training=training), run, callbacks=[LoopClock(clock)], dataset=dataset)
    per_step, parameters = _summary(clock.ms), sum(p.numel() for p in pipeline.model.parameters())
    values = dict.fromkeys(COLUMNS, _UNKNOWN) | {
        "parameters": Summary(parameters, 0.0),
        "train_ms": per_step,
        "train_mib": Summary(max(clock.peaks), 0.0 if device.type == "cuda" else math.nan),  # with the warm-up
        "train_hours": _scaled(per_step, sized(recipe.training, len(dataset.train)).steps / 3_600_000),
    }
    return pipeline, values


# ---- sampling -----------------------------------------------------------------------------------------------------


class _Enough(Exception):
    """Ends a sampling after the steps that are timed."""


def _sampling_ms(
    pipeline: Pipeline, at_once: int, settings: CostSettings, corrector: Corrector | None = None
) -> tuple[Summary, int, int]:
    """Milliseconds of a step, the objects drawn at once, and the number of steps timed.

    Timed are the first steps of the grid after a warm-up; all steps if their work differs, or if there are too few.
    """
    moves, timed = pipeline.num_moves(settings.draw_steps), settings.timed_draw_steps
    whole = _is_uneven(pipeline) or SETTLED + timed > moves
    clock, size = _first_steps(pipeline, at_once, settings.draw_steps, 0 if whole else timed, corrector)
    if whole:
        clock, timed = BlockClock(pipeline.device, 0, moves), moves
        clock(0)
        with counted("sampling", moves) as count:

            def watch(step: Step) -> None:
                count(step)
                clock(step.index + 1)

            pipeline.sample(size, settings.draw_steps, corrector=corrector, batch_size=size, callback=watch)
    return _summary(clock.ms), size, timed


def _first_steps(
    pipeline: Pipeline, at_once: int, num_steps: int, timed: int, corrector: Corrector | None
) -> tuple[BlockClock, int]:
    """A clock over the first steps, and the size of the batch, which shrinks if memory does not suffice.

    The clock starts after the steps that set up and capture CUDA graphs.
    """
    last = min(SETTLED + timed, pipeline.num_moves(num_steps))
    clocks: list[tuple[BlockClock, int]] = []  # one for each size that was tried

    def watch(step: Step) -> None:
        count(step)
        if step.index == 0:
            clocks.append((BlockClock(pipeline.device, SETTLED, timed, _BLOCKS), len(step.x_s)))
        clocks[-1][0](step.index + 1)
        if step.index + 1 == last:
            raise _Enough

    with counted("sampling", last) as count, suppress(_Enough):
        pipeline.sample(at_once, num_steps, corrector=corrector, batch_size=at_once, callback=watch)
    return clocks[-1]


def _is_uneven(pipeline: Pipeline) -> bool:
    """Whether steps differ in their work: a network without time is called only for objects that changed."""
    denoise = pipeline.method.denoiser(pipeline.denoiser())
    return ignores_time(denoise) or pipeline.method.samplers[0] in _UNEVEN


def _sampling_hours(ms: Summary, pipeline: Pipeline, settings: CostSettings, size: int) -> Summary:
    """Hours to draw all objects in all steps, in batches of `size`."""
    moves = pipeline.num_moves(settings.draw_steps)
    return _scaled(ms, moves * settings.objects / size / 3_600_000)


# ---- numbers and memory -------------------------------------------------------------------------------------------


def _summary(values: Sequence[float]) -> Summary:
    """The median, and the standard deviation over the blocks; 0 for a single block."""
    return Summary(statistics.median(values), statistics.stdev(values) if len(values) > 1 else 0.0)


def _scaled(value: Summary, factor: float) -> Summary:
    return Summary(value.mean * factor, value.std * factor)


def _free_memory(device: torch.device) -> None:
    """Free compiled code and the memory of the last measurement."""
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch._C._cuda_clearCublasWorkspaces()  # they would count as memory of the next measurement
        torch.cuda.empty_cache()
