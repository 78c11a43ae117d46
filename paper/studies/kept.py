"""Look again at results that are kept: intervals of differences between methods, and a picture of all of them.

    python paper/studies/kept.py intervals paper/studies/bach/table.csv --pairs sedd,usd3 rdm,usd3-discrete
    python paper/studies/kept.py draw paper/studies/bach/table.csv metrics.png --discrete d3pm rdm usd3-discrete

FILE is the table.csv of `usd3 compare`, or the results.json of a study. An interval of 95 % is Welch's, of means over
independent trainings, with as few degrees of freedom as one method has: with three trainings it is 4.3 standard errors
on each side. It says nothing of other held-out objects, and it needs the ± of a table over trainings, not over draws.
"""

import argparse
import csv
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from usd3.evaluation.comparison import METRICS, Row
from usd3.evaluation.plots import Look, metrics_plot
from usd3.metrics.summary import Summary

QUANTILES = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Student's t at 97.5 %, by the number of trainings: one more than its degrees of freedom."""
USUAL = ("bits_per_element", "3g_hellinger", "3g_outliers", "on_beat")


def read(file: Path) -> tuple[list[Row], list[Row]]:
    """The methods and the reference rows of a file."""
    if file.suffix == ".json":
        results = json.loads(file.read_text(encoding="utf-8"))
        return _rows(results["rows"]), _rows(results["references"])
    with file.open(newline="", encoding="utf-8") as lines:
        table = list(csv.DictReader(lines))
    parts = [[_from_line(line) for line in table if line["kind"] == kind] for kind in ("method", "reference")]
    return parts[0], parts[1]


def _rows(cells: dict[str, dict[str, dict[str, float]]]) -> list[Row]:
    known = {
        label: {key: Summary(**cell) for key, cell in row.items() if key in METRICS and cell["mean"] is not None}
        for label, row in cells.items()
    }
    return [Row(label, metrics) for label, metrics in known.items()]


def _from_line(line: dict[str, str]) -> Row:
    known = [key for key in METRICS if line.get(f"{key}_mean")]
    return Row(
        line["label"], {key: Summary(*(_number(line[f"{key}_{part}"]) for part in Summary._fields)) for key in known}
    )


def _number(text: str) -> float:
    return float(text) if text else 0.0


def interval(a: Row, b: Row, metric: str, trainings: int) -> tuple[float, float, float]:
    """The difference a - b of a metric, and the ends of its interval of 95 %."""
    difference = a.mean(metric) - b.mean(metric)
    error = math.hypot(*(row.metrics[metric].std for row in (a, b))) / math.sqrt(trainings)
    width = QUANTILES[trainings] * error
    return difference, difference - width, difference + width


def intervals(file: Path, pairs: Sequence[str], metrics: Sequence[str], trainings: int) -> list[str]:
    """A line for each pair of methods and each metric that both have."""
    rows = {row.label: row for row in read(file)[0]}
    lines = []
    for pair in pairs:
        names = pair.split(",")
        if len(names) != 2 or not rows.keys() >= set(names):
            raise ValueError(f"pairs = {pair}: expected two of {', '.join(rows)}, with a comma between")
        a, b = (rows[name] for name in names)
        for metric in metrics:
            if metric in a.metrics and metric in b.metrics:
                difference, low, high = interval(a, b, metric, trainings)
                lines.append(f"{a.label} - {b.label}  {metric}  {difference:+.3f} [{low:+.3f}, {high:+.3f}]")
    return lines


def draw(file: Path, out: Path, discrete: Sequence[str], metrics: Sequence[str]) -> None:
    """The picture of `usd3 compare`, with a panel for each metric; a label and that with "-discrete" are a family."""
    rows, references = ([_with(row, metrics) for row in rows] for rows in read(file))
    looks = {row.label: Look(_family(row.label), row.label in discrete) for row in rows}
    metrics_plot(rows, out, references, looks)


def _with(row: Row, metrics: Sequence[str]) -> Row:
    return Row(row.label, {key: summary for key, summary in row.metrics.items() if key in metrics})


def _family(label: str) -> str:
    return label.replace("-discrete", "").replace("-continuous", "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command of the user; an error is one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    telling = commands.add_parser("intervals", help="differences between methods, with intervals over trainings")
    telling.add_argument("file", type=Path, help="table.csv or results.json")
    telling.add_argument("--pairs", nargs="+", required=True, help="methods A,B: the difference A - B")
    telling.add_argument("--metrics", nargs="+", choices=METRICS, default=list(USUAL), metavar="METRIC")
    telling.add_argument("--trainings", type=int, choices=QUANTILES, default=3, help="of each method (%(default)s)")
    drawing = commands.add_parser("draw", help="the picture of a comparison")
    drawing.add_argument("file", type=Path, help="table.csv or results.json")
    drawing.add_argument("out", type=Path, help="a PNG file")
    drawing.add_argument("--metrics", nargs="+", choices=METRICS, default=list(METRICS), metavar="METRIC")
    drawing.add_argument("--discrete", nargs="*", default=[], help="the methods in discrete time")
    given = parser.parse_args(arguments)
    try:
        if given.command == "draw":
            draw(given.file, given.out, given.discrete, given.metrics)
        else:
            print("\n".join(intervals(given.file, given.pairs, given.metrics, given.trainings)))
    except (ValueError, OSError) as error:
        print(f"kept.py: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
