"""What methods cost, as tables: from the contents of cost.json."""

from collections.abc import Mapping
from typing import Any

from usd3._internal.tables import Table, exact, short, with_spread
from usd3.bench.cost import COLUMNS
from usd3.metrics.summary import Summary

__all__ = ["cost_csv", "cost_heading", "cost_latex", "cost_text"]

Results = Mapping[str, Any]


def cost_text(results: Results) -> str:
    """How it was measured, the table, and why the methods failed that did."""
    head = ["", *COLUMNS.values(), "training batch", "training steps", "drawn at once"]
    rows = [[label, *_cells(row), *_sizes(results["details"][label])] for label, row in results["rows"].items()]
    failed = [f"{label}: {reason}" for label, reason in results["failed"].items()]
    return "\n".join([*cost_heading(results), "", Table(head, [rows]).text(), *failed]) + "\n"


def cost_csv(results: Results) -> str:
    """A line for each method: mean and standard deviation of each column; an unknown value is empty."""
    columns = [(key, part) for key in COLUMNS for part in Summary._fields]
    rows = [[label, *(exact(row[key][part]) for key, part in columns), ""] for label, row in results["rows"].items()]
    failed = [[label, *[""] * len(columns), reason] for label, reason in results["failed"].items()]
    return Table(["label", *(f"{key}_{part}" for key, part in columns), "note"], [rows, failed]).csv()


def cost_latex(results: Results) -> str:
    """A tabular below comments that say how it was measured. It needs the package booktabs."""
    rows = [[label, *_cells(row, between="±")] for label, row in results["rows"].items()]
    comments = "".join(f"% {line}\n" for line in cost_heading(results))
    return comments + Table(["", *COLUMNS.values()], [rows]).latex()


def cost_heading(results: Results) -> list[str]:
    """What was measured, and how: some lines of text."""
    settings, machine = results["settings"], results["machine"]
    data = "the data of the recipes"
    if settings["shape"] is not None:
        data = f"random tokens, {' x '.join(map(str, settings['shape']))} of {settings['num_classes']} categories"
    lines = [
        f"{machine['machine']}, torch {machine['torch']}; {data}",
        f"training: {settings['steps']} steps timed; hours are extrapolated to the steps of each recipe",
    ]
    if settings["timed_draw_steps"]:
        work = f"sampling: hours of {settings['objects']:,} objects in {settings['draw_steps']:,} steps each"
        timed = f"extrapolated from {settings['timed_draw_steps']} steps of one batch"
        lines.append(f"{work}, {timed}{_exceptions(results)}")
    if settings["timed_draw_steps"] and settings["corrector_steps"]:
        lines.append(f"with corrector: moves after every step: {settings['corrector_steps']}")
    return lines


def _exceptions(results: Results) -> str:
    """The methods of which another number of sampling steps was timed."""
    usual = results["settings"]["timed_draw_steps"]
    timed = {label: results["details"][label]["timed_draw_steps"] for label in results["rows"]}
    others = [f"{label}: from {steps:,}" for label, steps in timed.items() if steps != usual]
    return f" ({', '.join(others)})" if others else ""


def _cells(row: Results, between: str = " ± ") -> list[str]:
    return [with_spread(row[key]["mean"], row[key]["std"], short, between) for key in COLUMNS]


def _sizes(details: Results) -> list[str]:
    """The objects of a training step, the steps of the recipe, and the objects drawn at once."""
    training, draw = details["recipe"]["training"], details["draw"]
    return [f"{training['batch_size']:,}", f"{training['steps']:,}", "-" if draw is None else f"{draw:,}"]
