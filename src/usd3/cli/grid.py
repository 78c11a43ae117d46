"""usd3 grid: which times lose least with few sampling steps."""

from dataclasses import dataclass
from pathlib import Path

from usd3._internal.checks import as_count, require
from usd3._internal.fields import require_fields
from usd3._internal.numbers import numbers_in
from usd3._internal.processes import is_main
from usd3._internal.progress import say
from usd3._internal.tables import Table
from usd3.core.step_costs import StepCosts
from usd3.evaluation.held_out import HeldOut
from usd3.kinds.options import naming_data_path
from usd3.pictures.time_grids import draw_time_grids
from usd3.pipeline.grids import MOST_TIMES, STEP_COSTS, write_step_costs
from usd3.pipeline.packaged import find_model, results_folder
from usd3.pipeline.pipeline import Pipeline

__all__ = ["GridOptions", "grid"]


@dataclass
class GridOptions:
    """Find the times that lose least with few sampling steps; `usd3 sample --grid best` uses them.

    Asks the network about held-out objects at the times of a fine grid, and finds the best of all grids within it for
    every number of steps. Writes step_costs.json into the folder of the model, and grids.png beside it.

    Args:
        model: folder of a run or of a saved model, or the name of a packaged one.
        num: number of held-out objects, at least 2.
        times: steps of the fine grid; in discrete time at most as many as the model has.
        steps: numbers of steps that are shown, with spaces between; all others can be used, too.
        prefix: number of given elements of each object; the best grid may depend on it.
        seed: seed of the noise.
        data_path: where the data are; null: where they were in training.
        out: a folder for the files; null: that of the model, or for a packaged one a folder below runs/models.
        batch_size: objects at once; null: chosen by memory.
        device: "cpu" or "cuda"; null: a GPU if there is one.
        trust_code: import a kind, network or method of the model that is not ours. This runs its code.
    """

    model: str = ""
    num: int = 256
    times: int = 64
    steps: str = "4 8 16 32"
    prefix: int = 0
    seed: int = 0
    data_path: str | None = None
    out: str | None = None
    batch_size: int | None = None
    device: str | None = None
    trust_code: bool = False

    def __post_init__(self) -> None:
        require_fields(self)
        as_count(self.num, "num", 2)
        as_count(self.times, "times", 2, MOST_TIMES)


def grid(options: GridOptions) -> None:
    """Measure the costs of steps, write them, and show the best grids."""
    pipeline = Pipeline.from_pretrained(options.model, trust_code=options.trust_code, device=options.device)
    most = min(options.times, pipeline.diffusion.num_steps or options.times)
    shown = [as_count(n, "steps", 1) for n in numbers_in(options.steps, "steps", int)]
    shown = [n for n in shown if n <= most]
    require(len(shown) > 0, "steps", options.steps, f"a number of steps that is at most {most}")
    with naming_data_path():
        dataset = pipeline.config.data.at(options.data_path).load(pipeline.kind)
    held_out = HeldOut.after(options.prefix, dataset, min(options.num, len(dataset.test)))
    folder = results_folder(options.model) if options.out is None else Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    say(f"asking the network about {len(held_out.truth)} held-out objects at {most} times")
    num = len(held_out.truth)
    require(num > 1, "held-out objects", num, "at least two: what one half chooses is measured on the other")
    first = _costs_of(pipeline, held_out, slice(0, num // 2), most, options)
    second = _costs_of(pipeline, held_out, slice(num // 2, num), most, options)
    costs = StepCosts(first.times, (first.nats + second.nats) / 2)
    if not is_main():
        return
    if (folder / STEP_COSTS).is_file():
        say(f"{folder / STEP_COSTS} is replaced")
    write_step_costs(folder / STEP_COSTS, costs, pipeline.config.steps)
    draw_time_grids({n: costs.best_grid(n) for n in shown}, folder / "grids.png", costs.times[0])
    cells = [
        [str(n), f"{chosen_elsewhere(first, second, n):.2f}", f"{costs.loss_of(even_grid(costs, n)):.2f}"]
        for n in shown
    ]
    print(Table(["steps", "best grid, nats lost", "even grid"], [cells]).text())
    print("(the best grid of one half of the objects, measured on the other half)")
    print(f"{STEP_COSTS} and grids.png in {folder}")
    is_found = folder in (find_model(options.model), results_folder(options.model))
    print(f"  usd3 sample {options.model} --grid {'best' if is_found else folder / STEP_COSTS} --steps {shown[-1]}")


def _costs_of(pipeline: Pipeline, held_out: HeldOut, rows: slice, times: int, options: GridOptions) -> StepCosts:
    """The step costs on some of the held-out objects."""
    given = held_out.given if options.prefix else None
    pad = None if held_out.pad is None else held_out.pad[rows]
    seed, size = options.seed + rows.start, options.batch_size
    return pipeline.measured_step_costs(held_out.truth[rows], given, pad, times, seed, size)


def chosen_elsewhere(first: StepCosts, second: StepCosts, num_steps: int) -> float:
    """The nats that the best grid of one half of the objects loses on the other half, mean of both ways.

    On the objects that chose it a grid looks better than it is.
    """
    return (first.loss_of(second.best_grid(num_steps)) + second.loss_of(first.best_grid(num_steps))) / 2


def even_grid(costs: StepCosts, num_steps: int) -> list[float]:
    """The grid of the fine one whose steps are as equal as they can be."""
    fine = costs.most_steps
    return [costs.times[round(i * fine / num_steps)] for i in range(num_steps + 1)]
