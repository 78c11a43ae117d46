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
from usd3.pipeline.grids import STEP_COSTS, write_step_costs
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
        num: number of held-out objects.
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
        as_count(self.num, "num", 1)
        as_count(self.times, "times", 2)


def grid(options: GridOptions) -> None:
    """Measure the costs of steps, write them, and show the best grids."""
    pipeline = Pipeline.from_pretrained(options.model, trust_code=options.trust_code, device=options.device)
    most = min(options.times, pipeline.diffusion.num_steps or options.times)
    shown = [n for n in numbers_in(options.steps, "steps", int) if n <= most]
    require(len(shown) > 0, "steps", options.steps, f"a number of steps that is at most {most}")
    with naming_data_path():
        dataset = pipeline.config.data.at(options.data_path).load(pipeline.kind)
    held_out = HeldOut.after(options.prefix, dataset, min(options.num, len(dataset.test)))
    say(f"asking the network about {len(held_out.truth)} held-out objects at {most} times")
    costs = pipeline.measured_step_costs(
        held_out.truth,
        held_out.given if options.prefix else None,
        held_out.pad,
        most,
        options.seed,
        options.batch_size,
    )
    if not is_main():
        return
    own = find_model(options.model)
    folder = results_folder(options.model) if options.out is None else Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    write_step_costs(folder / STEP_COSTS, costs)
    rows = [(n, costs.best_grid(n), even_grid(costs, n)) for n in shown]
    draw_time_grids({n: best for n, best, _ in rows}, folder / "grids.png", costs.times[0])
    cells = [[str(n), *(f"{costs.loss_of(times):.2f}" for times in (best, even))] for n, best, even in rows]
    print(Table(["steps", "best grid, nats lost", "even grid"], [cells]).text())
    print(f"{STEP_COSTS} and grids.png in {folder}")
    where = options.model if folder == own else f"{options.model} --grid {folder / STEP_COSTS}"
    print(f"  usd3 sample {where}{' --grid best' if folder == own else ''} --steps {shown[-1]}")


def even_grid(costs: StepCosts, num_steps: int) -> list[float]:
    """The grid of the fine one whose steps are as equal as they can be."""
    fine = costs.most_steps
    return [costs.times[round(i * fine / num_steps)] for i in range(num_steps + 1)]
