"""The best times for few sampling steps of a trained model, kept beside its weights in step_costs.json."""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.files import write_whole
from usd3._internal.yaml_json import read_json
from usd3.core.coefficients import Times
from usd3.core.step_costs import StepCosts, fine_times
from usd3.pipeline.batches import in_batches
from usd3.pipeline.encoded import Encoded
from usd3.pipeline.labels import Labels

if TYPE_CHECKING:
    from usd3.pipeline.pipeline import Pipeline

__all__ = ["MOST_TIMES", "STEP_COSTS", "measured_step_costs", "read_step_costs", "write_step_costs"]

STEP_COSTS = "step_costs.json"
"""The file in the folder of a model."""

MOST_TIMES = 1024
"""The most steps of a fine grid in such a file."""


def measured_step_costs(
    pipeline: "Pipeline",
    tokens: ArrayLike,
    given: ArrayLike | None = None,
    pad: ArrayLike | None = None,
    times: int | Times | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    labels: Labels | None = None,
) -> StepCosts:
    """What each step between two times of a fine grid loses on these objects: see `Diffusion.step_costs`.

    Args:
        pipeline: the model.
        tokens: (N, ...) the objects, best ones that the model has not seen.
        given: (N, ...) True where an element is given, as in `Pipeline.sample`.
        pad: (N, ...) True where an element is padding.
        times: the fine grid, a number of steps or times; None: 64 steps.
        seed: seed of the draws.
        batch_size: number of objects in a batch; None: chosen by memory.
        labels: the label of each object, as in `Pipeline.sample`.
    """
    require(pipeline.method.reads != "ratio", "method", pipeline.config.method.name, "one that says p(x_0 | x_t)")
    objects, fine = Encoded.of(pipeline, tokens, given, pad, labels), fine_times(pipeline.method.diffusion, times)

    def nats(rows: slice) -> Tensor:
        part = objects.on(pipeline.device, rows)
        model, generator = pipeline.model_for(len(part), part.label), pipeline.generator(seed, rows)
        denoise = pipeline.method.denoiser(model)
        costs = pipeline.method.diffusion.step_costs(denoise, part.tokens, fine, part.given, part.pad, generator)
        return len(part) * costs.nats[None]

    size = pipeline.batch_size(len(objects)) if batch_size is None else batch_size
    total = in_batches(nats, len(objects), size).sum(0)
    return StepCosts(tuple(fine), total / len(objects))


def write_step_costs(path: Path, costs: StepCosts, trained_steps: int | None = None) -> None:
    """Write step costs of a model after so many training steps as JSON; what is not a step back in time is 0."""
    nats = [[round(float(nats), 6) for nats in row] for row in costs.nats.triu(1)]
    write_whole(path, json.dumps({"trained_steps": trained_steps, "times": list(costs.times), "nats": nats}) + "\n")


def read_step_costs(path: Path, trained_steps: int | None = None) -> StepCosts:
    """The step costs in a file that `write_step_costs` wrote; refused if the model was trained on since."""
    content = read_json(path)
    expected = f"{path}: expected step costs, as `usd3 grid` writes them"
    try:
        times, nats = [float(t) for t in content["times"]], content["nats"]
        sizes = {len(times), len(nats), *(len(row) for row in nats)}
        valid = len(sizes) == 1 and 2 <= len(times) <= MOST_TIMES + 1
        table = torch.tensor(nats, dtype=torch.float64) if valid else torch.empty(0)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError(expected) from None
    decreasing = all(a > b for a, b in pairwise(times)) and times[-1:] == [0.0]
    finite = all(map(math.isfinite, times)) and bool(table.isfinite().all())
    if not (valid and decreasing and finite):
        raise ValueError(expected)
    step = content.get("trained_steps")
    if step not in (None, trained_steps):
        message = f"{path} is of training step {step}, and the model of step {trained_steps}"
        raise ValueError(f"{message}: expected costs of this model; `usd3 grid` measures them")
    return StepCosts(tuple(times), table)
