"""usd3 frontier: one model, drawn from in many ways: quality against network calls and against diversity."""

import itertools
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from usd3._internal.checks import as_count, as_number, require
from usd3._internal.fields import require_fields
from usd3._internal.files import known_folder, new_folder, write_whole
from usd3._internal.messages import suggestion
from usd3._internal.numbers import numbers_in
from usd3._internal.processes import is_main
from usd3._internal.progress import counted, say
from usd3._internal.tables import Table, exact, short, with_spread
from usd3.bench.machine import machine
from usd3.cli.evaluate import as_json
from usd3.cli.sample import named_as_options
from usd3.core.guidance import LARGEST_SCALE
from usd3.core.logits import LEAST_TEMPERATURE, LogitOptions
from usd3.evaluation.comparison import METRICS
from usd3.evaluation.frontier import ENTROPIES, Point, Way, entropies, measured_point, task_of
from usd3.evaluation.frontier_plot import frontier_plot, look
from usd3.evaluation.references import TRUTH
from usd3.evaluation.results import Rows
from usd3.evaluation.settings import EvaluationSettings
from usd3.kinds.options import naming_data_path
from usd3.kinds.registry import KindSettings, require_own_settings, settings_section
from usd3.metrics.summary import Metric, Summary
from usd3.pipeline.packaged import results_folder
from usd3.pipeline.pipeline import Pipeline

__all__ = ["FrontierOptions", "chosen_ways", "frontier"]

_RESULTS = "frontier.json"
_COSTS = "step_costs"  # what the best grids of a folder were chosen by
_STEPS = (4, 8, 16, 32, 64, 128)
_BOUND = "bits_per_element"  # no sampler changes it
_NOT_BY_DEFAULT = ("gillespie",)  # its calls do not depend on the number of steps


@dataclass
class FrontierOptions(KindSettings):
    """Draw with several samplers, steps and temperatures, and plot quality against network calls and diversity.

    Writes frontier.csv, frontier.json and frontier.png. The same command with the same --out goes on where it ended.

    Args:
        model: folder of a run or of a saved model, or the name of a packaged one.
        samplers: names with spaces between; null: all of the model's but gillespie, whose calls do not depend on the
            number of steps.
        steps: numbers of sampling steps with spaces between; null: "4 8 16 32 64 128", as far as the model has so many.
        grids: "even", "best" (which `usd3 grid` finds), or both with a space between.
        temperatures: numbers that the logits are divided by, with spaces between.
        top_p: draw from the likeliest categories that have this probability together; null: from all.
        top_k: draw from the k likeliest categories; null: from all.
        guidance: guidance scales with spaces between, for a model with a condition; null: no guidance.
        where: draw under a condition, as in `usd3 sample`: a label, or values of named elements. Draws are still
            compared with all held-out objects.
        num: number of objects in a run.
        runs: number of runs, each with a seed of its own; the error bars are two standard errors over them.
        seed: seed of all draws.
        metric: the metric that is the quality, by its key in frontier.csv; null: the main one of the kind.
        prompt: "test" for the task of `usd3 evaluate`: continue held-out objects, or solve puzzles of boards; null:
            draw from nothing.
        prefix: number of given elements of each held-out object with --prompt test; null: as in training.
        data_path: where the data are; null: where they were in training.
        out: a folder, new or of an earlier frontier; null: a new one in the folder of the model, or below runs/models.
        batch_size: objects at once; null: chosen by memory.
        device: "cpu" or "cuda"; null: a GPU if there is one.
        compile: compile the network, which takes up to a minute at the start; pays for thousands of objects on a GPU.
        trust_code: import a kind, network or method of the model that is not ours. This runs its code.
    """

    model: str = ""
    samplers: str | None = None
    steps: str | None = None
    grids: str = "even"
    temperatures: str = "1.0"
    top_p: float | None = None
    top_k: int | None = None
    guidance: str | None = None
    where: str | None = None
    num: int = 100
    runs: int = 3
    seed: int = 0
    metric: str | None = None
    prompt: str | None = None
    prefix: int | None = None
    data_path: str | None = None
    out: str | None = None
    batch_size: int | None = None
    device: str | None = None
    compile: bool = False
    trust_code: bool = False

    def __post_init__(self) -> None:
        require_fields(self)
        as_count(self.num, "num", 2)
        as_count(self.runs, "runs", 1)
        require(self.prompt in (None, "test"), "prompt", self.prompt, "null or test")
        fits = self.prefix is None or self.prompt is not None
        require(fits, "prefix", self.prefix, "null without --prompt test, as objects are drawn from nothing")


def chosen_ways(options: FrontierOptions, pipeline: Pipeline) -> list[Way]:
    """The ways to draw that the options name, in the order of samplers, temperatures, guidance and steps."""
    own, most = pipeline.method.samplers, pipeline.diffusion.num_steps
    default = [name for name in own if name not in _NOT_BY_DEFAULT]
    samplers = default if options.samplers is None else options.samplers.split()
    require(len(samplers) > 0, "samplers", options.samplers, "names with spaces between")
    for name in samplers:
        pipeline.method.sampler_named(name, "samplers")
    usual = [n for n in _STEPS if most is None or n <= most]
    steps = usual if options.steps is None else numbers_in(options.steps, "steps", int)
    for number in steps:
        as_count(number, "steps", 1, most)
    temperatures = numbers_in(options.temperatures, "temperatures", float)
    top_p = 1.0 if options.top_p is None else options.top_p
    for temperature in temperatures:
        as_number(temperature, "temperatures", LEAST_TEMPERATURE)
        pipeline.method.require_logits(**LogitOptions(temperature, options.top_k, top_p).changed())
    scales: list[float | None] = [None]
    if options.guidance is not None:
        wanted = numbers_in(options.guidance, "guidance", float)
        scales = [as_number(scale, "guidance", 0, LARGEST_SCALE, closed=True) for scale in wanted]
        pipeline.method.require_logits(guidance=options.guidance)
        follows = options.where is not None or options.prompt is not None
        require(follows, "guidance", options.guidance, "null without --where or --prompt test: nothing to follow")
    grids = options.grids.split()
    for kind in grids or [""]:
        require(kind in ("even", "best"), "grids", options.grids, "even, best, or both with a space between")
    if "best" in grids:
        costs = pipeline.step_costs
        if options.steps is None and costs is not None:
            steps = [number for number in steps if number <= costs.most_steps]
        with named_as_options():
            for number in steps:
                pipeline.best_grid(number)
    ways = itertools.product(samplers, grids, temperatures, scales, steps)
    found = (Way(name, n, t, options.top_p, options.top_k, scale, kind) for name, kind, t, scale, n in ways)
    return list(dict.fromkeys(found))


def frontier(options: FrontierOptions) -> None:
    """Draw in every way, measure, and write the table and the picture."""
    folder = known_folder(options.out, _RESULTS, "a frontier")
    pipeline = Pipeline.from_pretrained(
        options.model, trust_code=options.trust_code, device=options.device, compile=options.compile
    )
    ways = chosen_ways(options, pipeline)
    settings = _settings(options, pipeline)
    if options.metric is not None:
        metrics = {name for name in METRICS | dict(pipeline.kind.columns) if name != _BOUND}
        hint = suggestion(options.metric, metrics)
        require(options.metric in metrics, "metric", options.metric, f"one of {', '.join(metrics)}{hint}")
    if options.where is not None:
        pipeline.require_where(options.where)
    with naming_data_path():
        dataset = pipeline.config.data.at(options.data_path).load(pipeline.kind)
    section = settings_section(pipeline.kind)
    task = task_of(pipeline, dataset, settings, options.prompt is not None)
    if task.num < options.num:
        say(f"num = {options.num}: there are {task.num} held-out objects, so many are drawn")
    common = {
        "model": str(Path(options.model)),
        "data": dataset.name,
        "trained_steps": pipeline.config.steps,
        "prompt": options.prompt,
        "where": options.where,
        "objects": task.num,
        "runs": options.runs,
        "seed": options.seed,
        "prefix": options.prefix,
        "kind": None if section is None else asdict(getattr(settings, section)),
    }
    if any(way.grid == "best" for way in ways) and pipeline.step_costs is not None:
        common[_COSTS] = float(pipeline.step_costs.nats.sum())  # of other costs the best grids are others
    points, references = _kept(folder, common)
    if folder is None and is_main():
        folder = new_folder(results_folder(options.model), "frontier")
    folder = folder or Path()
    say(f"results go to {folder}; with --out {folder} the same command goes on")
    about = {"command": ["usd3", *sys.argv[1:]], "settings": common} | machine(pipeline.device)
    if not references:
        say("measuring the reference rows")
        data = {key: Summary(value, 0.0) for key, value in entropies(task.truth, task.fixed).items()}
        references = task.references(options.runs) | {"data": data}
    batches = options.runs * -(-task.num // (options.batch_size or pipeline.batch_size(task.num)))
    for number, way in enumerate(ways, start=1):
        if any(point.way == way for point in points):
            continue
        title = f"{number}/{len(ways)} {way.sampler}, {way.steps} steps, {look(way)}"
        more = {"top_p": way.top_p, "top_k": way.top_k, "guidance_scale": way.guidance, "where": options.where}
        more = {name: value for name, value in more.items() if value is not None}
        with counted(title, batches * pipeline.num_moves(way.steps, way.sampler)) as count:
            points.append(measured_point(pipeline, task, settings, way, more, count))
        if is_main():
            write_whole(folder / _RESULTS, as_json(about | _as_dict(points, references)))
    if is_main():
        quality = _quality(options.metric, points, pipeline)
        _write(points, ways, references, quality, pipeline, about, folder)


def _settings(options: FrontierOptions, pipeline: Pipeline) -> EvaluationSettings:
    """The settings of an evaluation with these options."""
    sections = {name: getattr(options, name) for name in KindSettings.__dataclass_fields__}
    section = settings_section(pipeline.kind)
    require_own_settings(pipeline.kind, KindSettings(**sections))
    if section is not None:
        for name in ("num", "num_puzzles"):
            value = getattr(sections[section], name, None)
            usual = getattr(type(sections[section]), name, None)
            require(value == usual, f"{section}.{name}", value, f"{usual}, its default; --num says how many are drawn")
        changed = {"num": options.num}
        if hasattr(sections[section], "num_puzzles"):
            changed["num_puzzles"] = 0 if options.prompt is None else options.num
        sections[section] = replace(sections[section], **changed)
    settings = EvaluationSettings(
        **sections,
        prefix=options.prefix,
        runs=options.runs,
        limit=options.num,
        seed=options.seed,
        batch_size=options.batch_size,
    )
    pipeline.kind.require_settings(settings, "")
    return settings


# ---- results --------------------------------------------------------------------------------------------------------


def _as_dict(points: Sequence[Point], references: Rows) -> dict[str, Any]:
    rows = [
        point.way._asdict() | {"calls": point.calls, "seconds": point.seconds} | {"metrics": _plain(point.metrics)}
        for point in points
    ]
    return {"points": rows, "references": {name: _plain(row) for name, row in references.items()}}


def _plain(row: dict[str, Summary]) -> dict[str, dict[str, float | None]]:
    """Summaries as plain data; JSON has no infinity and no nan, for which None stands."""
    return {
        key: {part: value if math.isfinite(value) else None for part, value in cell._asdict().items()}
        for key, cell in row.items()
    }


def _summaries(row: dict[str, Any]) -> dict[str, Summary]:
    """The inverse of `_plain`, with nan for None."""
    return {
        key: Summary(*(math.nan if cell[part] is None else cell[part] for part in Summary._fields))
        for key, cell in row.items()
    }


def _kept(folder: Path | None, common: dict[str, Any]) -> tuple[list[Point], Rows]:
    """The points and reference rows of an earlier command in this folder; an error if it drew other objects."""
    if folder is None or not (file := folder / _RESULTS).is_file():
        return [], {}
    try:
        results = json.loads(file.read_text(encoding="utf-8"))
        before = results["settings"]
        points = [
            Point(Way(*(row[name] for name in Way._fields)), row["calls"], row["seconds"], _summaries(row["metrics"]))
            for row in results["points"]
        ]
        references = {name: _summaries(row) for name, row in results["references"].items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{file}: expected the results of usd3 frontier ({error!r})") from None
    for name, value in json.loads(json.dumps(common)).items():
        if name == _COSTS and name not in before:  # no best grid so far
            continue
        require(before.get(name) == value, name, value, f"{before.get(name)}, as in {file}; or another --out")
    common |= {_COSTS: before[_COSTS]} if _COSTS in before else {}
    return points, references


def _quality(metric: str | None, points: Sequence[Point], pipeline: Pipeline) -> tuple[str, Metric]:
    """The key of the metric that is plotted, and what it is."""
    measured = [key for key in points[0].metrics if key not in ENTROPIES]
    known = METRICS | dict(pipeline.kind.columns)
    if metric is None:
        better = [key for key in measured if known[key].better is not None]
        metric = next(key for key in (*pipeline.kind.main_metrics, *better, *measured) if key in measured)
    require(metric in measured, "metric", metric, f"one of {', '.join(measured)}, which were measured")
    return metric, known[metric]


def _write(
    points: Sequence[Point],
    ways: Sequence[Way],
    references: Rows,
    quality: tuple[str, Metric],
    pipeline: Pipeline,
    about: dict[str, Any],
    folder: Path,
) -> None:
    """Write the table and the picture, and print the points that were asked for."""
    settings, (key, metric) = about["settings"], quality
    measured = list(dict.fromkeys(key for row in (*(p.metrics for p in points), *references.values()) for key in row))
    head = ["row", *Way._fields, "calls", "seconds", *(f"{key}_{part}" for key in measured for part in Summary._fields)]
    lines = [
        ["model", *_cells(point.way), exact(point.calls), exact(point.seconds), *_numbers_of(point.metrics, measured)]
        for point in points
    ]
    others = [[name, *[""] * (len(Way._fields) + 2), *_numbers_of(row, measured)] for name, row in references.items()]
    write_whole(folder / "frontier.csv", Table(head, [lines, others]).csv())
    write_whole(folder / _RESULTS, as_json(about | {"metric": key} | _as_dict(points, references)))
    spread = "sample_entropy" if pipeline.kind.is_sequence else "element_entropy"
    rows = {name: row[key].mean for name, row in references.items() if key in row and name != TRUTH}
    what = "drawn from nothing" if settings["prompt"] is None else "with held-out prompts"
    if settings["where"] is not None:
        what = f"with {settings['where']}"
    title = f"{Path(settings['model']).name}: {settings['runs']} x {settings['objects']} {pipeline.kind.plural} {what}"
    picture = folder / "frontier.png"
    data = references.get("data", {}).get(spread)
    frontier_plot(
        points,
        picture,
        quality,
        (spread, ENTROPIES[spread]),
        rows,
        None if data is None else data.mean,
        title,
        settings["runs"],
    )
    shown = [point for way in ways for point in points if point.way == way]
    digits = "{:.3f}".format
    cells = [
        [
            point.way.sampler,
            str(point.way.steps),
            look(point.way),
            short(point.calls),
            with_spread(*point.metrics[key], digits),
            with_spread(*point.metrics[spread], digits),
            short(point.seconds),
        ]
        for point in shown
    ]
    titles = ["sampler", "steps", "how", "calls", metric.titled, ENTROPIES[spread], "s per object"]
    print(f"{title}\n{Table(titles, [cells]).text()}\n")
    print(*(f"{name}: {digits(value)}" for name, value in rows.items()), sep="\n")
    print(f"frontier.csv, frontier.json, frontier.png in {folder}")


def _cells(way: Way) -> list[str]:
    return ["" if value is None else f"{value:g}" if isinstance(value, float) else str(value) for value in way]


def _numbers_of(row: dict[str, Summary], keys: Sequence[str]) -> list[str]:
    unknown = Summary(float("nan"), float("nan"))
    return [exact(value) for key in keys for value in row.get(key, unknown)]
