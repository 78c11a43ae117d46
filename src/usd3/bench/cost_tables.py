"""What methods cost, as tables: from what `cost.json` says."""

import csv
import io
import math
from collections.abc import Mapping
from typing import Any

from usd3._internal.tables import aligned, escaped, short, tabular
from usd3.bench.cost import COLUMNS
from usd3.metrics.summary import Summary

__all__ = ["cost_csv", "cost_heading", "cost_latex", "cost_text"]

Found = Mapping[str, Any]


def cost_text(found: Found) -> str:
    """What was measured, in sentences, and a table of it; why those failed that did."""
    head = ["", *COLUMNS.values(), "training batch", "training steps", "drawn at once"]
    body = [[label, *_cells(row, " ± "), *_sizes(found["details"][label])] for label, row in found["rows"].items()]
    failed = [f"{label}: {reason}" for label, reason in found["failed"].items()]
    return "\n".join([*cost_heading(found), "", *aligned([head, *body]), *failed]) + "\n"


def cost_csv(found: Found) -> str:
    """One line for each method, unknown is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["label", *(f"{key}_{part}" for key in COLUMNS for part in Summary._fields), "note"])
    for label, row in found["rows"].items():
        values = [row[key][part] for key in COLUMNS for part in Summary._fields]
        writer.writerow([label, *("" if value is None else f"{value:.9g}" for value in values), ""])
    for label, reason in found["failed"].items():
        writer.writerow([label, *[""] * 2 * len(COLUMNS), reason])
    return out.getvalue()


def cost_latex(found: Found) -> str:
    """A tabular below comments that say what was measured. It needs the package booktabs."""
    body = [[escaped(label), *_cells(row, r"$\pm$")] for label, row in found["rows"].items()]
    about = "".join(f"% {line}\n" for line in cost_heading(found))
    return about + tabular(["Method", *COLUMNS.values()], body)


def cost_heading(found: Found) -> list[str]:
    """What was measured, and how."""
    used, machine = found["settings"], found["machine"]
    data = "the data of the recipes"
    if used["shape"] is not None:
        data = f"random tokens, {' x '.join(map(str, used['shape']))} of {used['num_classes']} categories"
    lines = [
        f"{machine['machine']}, torch {machine['torch']}; {data}",
        f"training: {used['steps']} steps timed; hours are extrapolated to the steps of each recipe",
    ]
    if used["timed_draw_steps"]:
        line = f"sampling: hours of {used['objects']:,} objects in {used['draw_steps']:,} steps each, extrapolated "
        lines.append(f"{line}from {used['timed_draw_steps']} steps of one batch{_others(found)}")
    if used["timed_draw_steps"] and used["corrector_steps"]:
        lines.append(f"with corrector: moves after every step: {used['corrector_steps']}")
    return lines


def _others(found: Found) -> str:
    """The methods of which all steps were timed."""
    usual, details = found["settings"]["timed_draw_steps"], found["details"]
    named = [f"{label}: from {details[label]['timed_draw_steps']:,}" for label in found["rows"]]
    own = [text for text, label in zip(named, found["rows"]) if details[label]["timed_draw_steps"] != usual]
    return f" ({', '.join(own)})" if own else ""


def _cells(row: Found, between: str) -> list[str]:
    """Mean and spread, the mean alone where there is no spread, "-" where it is not known."""
    pairs = [[math.nan if row[key][part] is None else row[key][part] for part in Summary._fields] for key in COLUMNS]
    return [f"{short(mean)}{between}{short(std)}" if std > 0 else short(mean) for mean, std in pairs]


def _sizes(details: Found) -> list[str]:
    training, draw = details["recipe"]["training"], details["draw"]
    return [f"{training['batch_size']:,}", f"{training['steps']:,}", "-" if draw is None else f"{draw:,}"]
