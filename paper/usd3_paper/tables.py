"""A table of the paper with our numbers beside the published ones."""

import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from usd3._internal.tables import RANKS, Cell, Table, not_worse, ranks, with_spread
from usd3._internal.yaml_json import read_yaml
from usd3.evaluation.differences import Intervals
from usd3_paper.recipes import recipes_table

__all__ = ["Line", "PaperTable"]

OURS, PAPER = "ours", "paper"
Results = Mapping[str, Any]
_NONE: Results = {"rows": {}, "references": {}}
_NO_INTERVALS = Intervals()
_BY_MEAN = "by the means alone, which may be chance"


class Line(NamedTuple):
    """One line of a table: the numbers of one row from one source.

    Args:
        label: the key of the row in our results; empty for a reference row, which is not ranked.
        name: what the table calls the row.
        source: "ours" or "paper".
        cells: what the columns show.
        values: the number of each cell; nan if it has none.
    """

    label: str
    name: str
    source: str
    cells: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of the paper, as `NAME/table.yaml` and `NAME/published.csv` describe it.

    Args:
        name: the name of the folder.
        title: what the table is about.
        place: where the paper has it, as in "Table 3".
        study: the study that gives our numbers.
        columns: the title of each column, by the key of a result. An arrow at the end of a title says which direction
            is better: ↓ less, ↑ more.
        rows: the name of each row, by its label in our results. Rows that the paper does not have come last.
        note: what a reader should know.
        published: the cells as the paper prints them, by the label of the row and the key of the column.
        data: the kinds of data, of those that the study knows, with which it can fill this table; empty: all.
        apart: numbers of ours that do not compare with the others of their column: the reason, by the label of the row
            and the key of the column. They have a dagger and no rank.
        steps: of each training, as the study asks for them today; None: it asks for none.
    """

    name: str
    title: str
    place: str
    study: str
    columns: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    published: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    data: Sequence[str] = ()
    apart: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    steps: int | None = None

    @classmethod
    def all(cls, paper: Path) -> list["PaperTable"]:
        """All tables in the folder, in the order of the paper."""
        tables = [cls._read(file.parent) for file in paper.glob("*/table.yaml")]
        return sorted(tables, key=lambda table: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", table.place)])

    @classmethod
    def _read(cls, folder: Path) -> "PaperTable":
        values = read_yaml(folder / "table.yaml")
        published: dict[str, dict[str, str]] = {}
        if (folder / "published.csv").is_file():
            with open(folder / "published.csv", newline="", encoding="utf-8") as file:
                published = {line.pop("label"): line for line in csv.DictReader(file)}
        study = read_yaml(folder.parent / "studies" / f"{values['study']}.yaml")
        return cls(folder.name, **values, published=published, steps=study.get("steps"))

    @property
    def heading(self) -> str:
        """The title, and where the paper has the table."""
        return f"{self.title} ({self.place})"

    # ---- numbers ------------------------------------------------------------------------------------------------

    def lines(self, results: Results) -> list[Line]:
        """For each row our numbers and, below them, those of the paper; then the reference rows."""
        lines = []
        for label, name in self.rows.items():
            lines += self._ours(label, name, results["rows"].get(label)) + self._printed(label, name)
        for name, row in results["references"].items():
            lines += self._ours("", name, row) + self._printed(name, name)
        return lines

    def has_numbers(self, results: Results) -> bool:
        """Whether the results have a number for some row: a study on other data may have none."""
        return any(key in results["rows"].get(label, {}) for key in self.columns for label in self.rows)

    def _ours(self, label: str, name: str, row: Mapping[str, Any] | None) -> list[Line]:
        """One line of our numbers; no line if there is no number."""
        if row is None or not any(key in row for key in self.columns):
            return []
        summaries = [row.get(key) or {"mean": None, "std": None} for key in self.columns]
        values = tuple(math.nan if summary["mean"] is None else float(summary["mean"]) for summary in summaries)
        cells = tuple(with_spread(summary["mean"], summary["std"], _digits) for summary in summaries)
        line = Line(label, name, OURS, cells, values)
        return [line._replace(**self._without(self.apart[label], cells, values)) if label in self.apart else line]

    def _without(self, columns: Mapping[str, str], cells: Sequence[str], values: Sequence[float]) -> dict[str, Any]:
        """The cells with daggers in some columns, and the values without those of these columns."""
        is_apart = [key in columns and not math.isnan(value) for key, value in zip(self.columns, values)]
        marked = tuple(f"{cell} †" if apart else cell for cell, apart in zip(cells, is_apart))
        return {"cells": marked, "values": tuple(math.nan if a else v for v, a in zip(values, is_apart))}

    def _printed(self, label: str, name: str) -> list[Line]:
        """One line of the paper's numbers; no line if the paper does not have the row."""
        printed = self.published.get(label)
        if printed is None:
            return []
        cells = tuple(printed.get(key) or "-" for key in self.columns)
        return [Line(label if label in self.rows else "", name, PAPER, cells, tuple(map(_first_number, cells)))]

    def ranks(self, lines: Sequence[Line], intervals: Intervals = _NO_INTERVALS) -> list[list[int]]:
        """For each line the rank of its cells: 1 for the best and 2 for the second best of ours, or of the paper's.

        In columns with intervals, it is 1 for each of ours that is not shown to be worse than the best of ours.
        """
        ranked = [[0] * len(self.columns) for _ in lines]
        with_intervals = self._with_intervals(lines, intervals)
        for j, (key, title) in enumerate(self.columns.items()):
            for source in (OURS, PAPER) if title[-1] in "↓↑" else ():
                rivals = [i for i, line in enumerate(lines) if line.label and line.source == source]
                values = [lines[i].values[j] for i in rivals]
                if source == OURS and key in with_intervals:
                    labels = [lines[i].label for i in rivals]
                    marks = not_worse(labels, values, title[-1] == "↑", intervals.worse[key])
                else:
                    marks = ranks([_as_shown(value, source) for value in values], title[-1] == "↑")
                for i, mark in zip(rivals, marks):
                    ranked[i][j] = mark
        return ranked

    def _with_intervals(self, lines: Sequence[Line], intervals: Intervals) -> list[str]:
        """The keys of the columns that have a direction, and intervals for all rows of ours with a number."""
        keys = []
        for j, (key, title) in enumerate(self.columns.items()):
            ours = [line for line in lines if line.label and line.source == OURS and not math.isnan(line.values[j])]
            if title[-1] in "↓↑" and ours and all(line.label in intervals.worse.get(key, {}) for line in ours):
                keys.append(key)
        return keys

    # ---- layout -------------------------------------------------------------------------------------------------

    def as_text(self, results: Results) -> str:
        """For a terminal."""
        return f"{self.heading}\n\n{self._table(results).text()}\n"

    def as_printed(self) -> str:
        """The paper's numbers alone, for a terminal."""
        rows = [[line.name, *line.cells] for line in self.lines(_NONE)]
        table = Table(["", *self.columns.values()], [rows])
        return f"{self.heading}, the paper's numbers\n\n{table.text()}\n"

    def files(self, results: Results, pictures: Sequence[str] = ()) -> dict[str, str]:
        """The text of each file of the table, by the ending of its name; the Markdown shows the pictures."""
        table = self._table(results)
        return {".md": self.as_markdown(results, pictures), ".csv": self.as_csv(results), ".tex": table.latex()}

    def as_markdown(self, results: Results, pictures: Sequence[str] = ()) -> str:
        """A page with the table, what each row was trained with, the commands that give it, and the pictures."""
        commands, trained = "\n".join(results["commands"]), recipes_table(results, self.rows)
        images = "".join(f"\n![{Path(file).stem}]({file})\n" for file in pictures)
        how = f"## What each row is\n\n{trained}\n\n" if trained else ""
        return f"# {self.heading}\n\n{self._table(results).markdown()}\n\n{how}```sh\n{commands}\n```\n{images}"

    def as_csv(self, results: Results) -> str:
        """One line for each row and source, with the cells of the other formats."""
        rows = [[line.label, line.name, line.source, *line.cells] for line in self.lines(results)]
        return Table(["label", "name", "source", *self.columns], [rows]).csv()

    def _table(self, results: Results) -> Table:
        lines, intervals = self.lines(results), Intervals(**results.get("intervals", {}))
        ranked = self.ranks(lines, intervals)
        rows: list[list[Cell | str]] = []
        for i, (line, ranks_of_line) in enumerate(zip(lines, ranked)):
            cells = [Cell(text, rank) for text, rank in zip(line.cells, ranks_of_line)]
            rows.append([*_names(lines, i), *cells])
        legend = self._legend(lines, intervals) if any(map(any, ranked)) else ""
        notes = [self._note(lines, legend), *self._apart(lines), *self._earlier(results)]
        notes += [*([results["remark"]] if "remark" in results else []), _source(results)]
        return Table(["", "", *self.columns.values()], [rows], notes, names=2)

    def _legend(self, lines: Sequence[Line], intervals: Intervals) -> str:
        """What the marks mean."""
        keys = self._with_intervals(lines, intervals)
        if not keys:
            return f"{RANKS}, of ours and of the paper's each, {_BY_MEAN}."
        others = [title[:-1].strip() for key, title in self.columns.items() if title[-1] in "↓↑" and key not in keys]
        by_mean = ["the paper's numbers"] if any(line.source == PAPER for line in lines) else []
        by_mean += [f"ours in {', '.join(others)}"] if others else []
        ranked = f" Of {', and of '.join(by_mean)}: {RANKS} {_BY_MEAN}." if by_mean else ""
        return f"{intervals.note()}, of ours.{ranked}"

    def _note(self, lines: Sequence[Line], legend: str) -> str:
        """What the marks mean, the note, and which rows have no numbers of ours."""
        measured = {line.label for line in lines if line.source == OURS}
        missing = "; ".join(name for label, name in self.rows.items() if label not in measured)
        return " ".join(filter(None, [legend, self.note, missing and f"Not measured: {missing}."]))

    def _apart(self, lines: Sequence[Line]) -> list[str]:
        """Why some of the numbers do not compare."""
        shown = {(line.label, key) for line in lines for key, cell in zip(self.columns, line.cells) if "†" in cell}
        reasons = {why: None for label, row in self.apart.items() for key, why in row.items() if (label, key) in shown}
        return [f"† {why}" for why in reasons]

    def _earlier(self, results: Results) -> list[str]:
        """That the numbers are of another protocol than the one of the study, if they are."""
        if self.steps is None or results.get("budget_steps") == self.steps or not results["rows"]:
            return []
        minutes = results["budget_minutes"]
        before = f"{results.get('budget_steps', 0):,} steps" if minutes is None else f"{minutes:g} minutes"
        today = f"the study now asks for {self.steps:,} steps of each, and was not run with these yet"
        return [f"An earlier or shorter protocol: the trainings of these numbers had {before} each; {today}."]


def _names(lines: Sequence[Line], i: int) -> tuple[str, str]:
    """The first two cells of a line. A name stands at the first of its lines alone."""
    repeated = i > 0 and lines[i].name == lines[i - 1].name
    return ("" if repeated else lines[i].name), lines[i].source


def _source(results: Results) -> str:
    """On which data, with which budget, on which machine and when our numbers were measured."""
    budget = results["budget_minutes"]
    steps = [row["steps"]["mean"] for row in results["rows"].values() if "steps" in row]
    trained = "" if budget is None else f"; minutes of each training: {budget:g}"
    if steps:
        trained += f", steps: {' to '.join(f'{count:,.0f}' for count in sorted({min(steps), max(steps)}))}"
    earlier = "".join(f"; begun on {_place(place)}" for place in results.get("earlier", ()))
    return f"Ours: {results['about']}{trained}; {_place(results)}{earlier}."


def _place(measured: Mapping[str, Any]) -> str:
    """The machine, the versions and the date."""
    machine = measured["machine"]
    names = [name for name in ("python", "torch", "triton", "usd3", "commit") if machine[name]]
    return ", ".join([machine["machine"], *(f"{name} {machine[name]}" for name in names), measured["date"]])


def _digits(value: float) -> str:
    """Three decimals of a small number, fewer of a large one; of a rounding error, its power of ten."""
    if 0 < abs(value) < 1e-6:
        return f"{value:.0e}"
    decimals = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0
    return f"{value:,.{decimals}f}"


def _as_shown(value: float, source: str) -> float:
    """The number that a cell shows: ours is rounded, the paper's is as printed."""
    return float(_digits(value).replace(",", "")) if source == OURS else value


def _first_number(cell: str) -> float:
    """The mean in a cell as the paper printed it; nan if it has no number."""
    number = re.match(r"[~ ]*(\d[\d,]*\.?\d*)", cell)
    return float(number[1].replace(",", "")) if number else math.nan
