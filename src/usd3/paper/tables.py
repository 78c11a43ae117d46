"""A table of the paper with our numbers beside the published ones."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from usd3._internal.tables import aligned, escaped, markdown, places, tabular
from usd3._internal.yaml_json import read_yaml

__all__ = ["Table"]

OURS, PAPER = "ours", "paper"
Results = Mapping[str, Any]


class Line(NamedTuple):
    """One line: of which row, whose numbers, and what the cells say; with their values, nan where there is none.

    The label is empty for what only shows the scale, and is not ranked.
    """

    label: str
    name: str
    source: str
    cells: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Table:
    """What `NAME/table.yaml` and `NAME/published.csv` say.

    Args:
        name: of the folder.
        title: what the table is about.
        place: where the paper has it.
        study: where our numbers come from.
        columns: by the key of a result its title; an arrow at its end says what is better: ↓ less, ↑ more.
        rows: by the label of a row of ours the name that the table shows. Those without a published row come last.
        note: what a reader should know.
        published: by label the published cells, as printed.
        data: the words of its study's data that can fill it; empty: all.
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

    @classmethod
    def all(cls, paper: Path) -> list["Table"]:
        """Those of the folder of the tables, in the order of the paper."""
        tables = [cls._of(file.parent) for file in paper.glob("*/table.yaml")]
        return sorted(tables, key=lambda table: [int(p) if p.isdigit() else p for p in _parts(table.place)])

    @classmethod
    def _of(cls, folder: Path) -> "Table":
        values = read_yaml(folder / "table.yaml")
        published: dict[str, dict[str, str]] = {}
        if (folder / "published.csv").is_file():
            with open(folder / "published.csv", newline="", encoding="utf-8") as file:
                for line in csv.DictReader(file):
                    published[line.pop("label")] = line
        return cls(folder.name, **values, published=published)

    def lines(self, results: Results) -> list[Line]:
        """Of each row ours and, below it, what the paper printed; then what shows the scale."""
        found = []
        for label, name in self.rows.items():
            found += self._ours(label, name, results["rows"].get(label)) + self._printed(label, name)
        for name, row in results["references"].items():
            found += self._ours("", name, row) + self._printed(name, name)
        return found

    def has_numbers(self, results: Results) -> bool:
        """Whether some row of ours has a number for it: the study may have been run on data without such."""
        return any(key in results["rows"].get(label, {}) for key in self.columns for label in self.rows)

    def _ours(self, label: str, name: str, row: Mapping[str, Any] | None) -> list[Line]:
        """Nothing where there is no number."""
        if row is None or not any(key in row for key in self.columns):
            return []
        cells = [row.get(key) or {"mean": None, "std": None} for key in self.columns]
        values = tuple(math.nan if cell["mean"] is None else float(cell["mean"]) for cell in cells)
        return [Line(label, name, OURS, tuple(_cell(cell["mean"], cell["std"]) for cell in cells), values)]

    def _printed(self, label: str, name: str) -> list[Line]:
        printed = self.published.get(label)
        if printed is None:
            return []
        cells = tuple(printed.get(key) or "-" for key in self.columns)
        label = label if label in self.rows else ""
        return [Line(label, name, PAPER, cells, tuple(map(_first_number, cells)))]

    # ---- as text ------------------------------------------------------------------------------------------------

    def as_text(self, results: Results) -> str:
        """To read in a terminal."""
        lines = self.lines(results)
        marks = self._marks(lines)
        head = ["", "", *self.columns.values()]
        body = [
            [*_names(lines, i), *(cell + ("", "**", "*")[marks[i][j]] for j, cell in enumerate(line.cells))]
            for i, line in enumerate(lines)
        ]
        rows = "\n".join(aligned([head, *body]))
        told = self._told("** best, * second best, of ours and of the paper's each.", lines, marks)
        return f"{self.heading}\n\n{rows}\n\n{told}{_source(results)}\n"

    def as_printed(self) -> str:
        """The paper's numbers alone."""
        lines = self.lines({"rows": {}, "references": {}})
        rows = [["", *self.columns.values()], *([line.name, *line.cells] for line in lines)]
        return "\n".join([f"{self.heading}, the paper's numbers", "", *aligned(rows)]) + "\n"

    def as_markdown(self, results: Results, pictures: Sequence[str] = ()) -> str:
        """The best in bold, the second best in italics, of ours and of the published ones each; then the pictures."""
        lines = self.lines(results)
        marks = self._marks(lines)
        best = ("{}", "**{}**", "*{}*")
        body = [
            [*_names(lines, i), *(best[marks[i][j]].format(cell) for j, cell in enumerate(line.cells))]
            for i, line in enumerate(lines)
        ]
        text = markdown(["", "", *self.columns.values()], body)
        told = self._told("Bold is best, italic second best, of ours and of the paper's each.", lines, marks)
        commands = "\n".join(results["commands"])
        shown = "".join(f"\n![{Path(file).stem}]({file})\n" for file in pictures)
        return f"# {self.heading}\n\n{text}\n\n{told}{_source(results)}\n\n```sh\n{commands}\n```\n{shown}"

    def as_latex(self, results: Results) -> str:
        """A table for booktabs."""
        lines = self.lines(results)
        marks = self._marks(lines)
        best = ("{}", r"\textbf{{{}}}", r"\underline{{{}}}")
        body = []
        for i, line in enumerate(lines):
            cells = [best[marks[i][j]].format(escaped(cell)) for j, cell in enumerate(line.cells)]
            body.append([*map(escaped, _names(lines, i)), *cells])
        return tabular(["Method", "", *map(escaped, self.columns.values())], body, names=2)

    def as_csv(self, results: Results) -> str:
        """One line for each row and source; a cell is what the other forms of the table show."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["label", "name", "source", *self.columns])
        writer.writerows([line.label, line.name, line.source, *line.cells] for line in self.lines(results))
        return out.getvalue()

    def files(self, results: Results, pictures: Sequence[str] = ()) -> dict[str, str]:
        """By their endings, what is written of a table; its Markdown shows the pictures."""
        told = self.as_markdown(results, pictures)
        return {".md": told, ".csv": self.as_csv(results), ".tex": self.as_latex(results)}

    def _told(self, legend: str, lines: Sequence[Line], marks: Sequence[Sequence[int]]) -> str:
        """The note as a paragraph, with what the marks mean where there are any, and which rows have no numbers."""
        ranked = any(any(row) for row in marks)
        ours = {line.label for line in lines if line.source == OURS}
        missing = "; ".join(name for label, name in self.rows.items() if label not in ours)
        told = " ".join(filter(None, [legend if ranked else "", self.note, missing and f"Not measured: {missing}."]))
        return f"{told}\n\n" if told else ""

    @property
    def heading(self) -> str:
        """The title, and where it is."""
        return f"{self.title} ({self.place})"

    def _marks(self, lines: Sequence[Line]) -> list[list[int]]:
        """1 for the best and 2 for the second best of a column, of ours and of the published ones each."""
        found = [[0] * len(self.columns) for _ in lines]
        for j, title in enumerate(self.columns.values()):
            for source in (OURS, PAPER) if title[-1] in "↓↑" else ():
                ranked = [i for i, line in enumerate(lines) if line.label and line.source == source]
                shown = [_seen(lines[i].values[j], source) for i in ranked]
                for i, place in zip(ranked, places(shown, title[-1] == "↑")):
                    found[i][j] = place
        return found


def _names(lines: Sequence[Line], i: int) -> tuple[str, str]:
    """The first two cells; a name stands at its first line alone."""
    line = lines[i]
    again = i > 0 and line.name == lines[i - 1].name
    return ("" if again else line.name), line.source


def _source(results: Results) -> str:
    """On what ours were measured."""
    budget = results["budget_minutes"]
    steps = [row["steps"]["mean"] for row in results["rows"].values() if "steps" in row]
    trained = "" if budget is None else f"; minutes of each training: {budget:g}"
    shown = [f"{count:,.0f}" for count in sorted({min(steps), max(steps)})] if steps else []
    trained += f", steps: {' to '.join(shown)}" if shown else ""
    earlier = "".join(f"; begun on {_place(place)}" for place in results.get("earlier", ()))
    return f"Ours: {results['about']}{trained}; {_place(results)}{earlier}."


def _place(measured: Mapping[str, Any]) -> str:
    """The machine, the versions and the date."""
    on = measured["machine"]
    versions = ", ".join(f"{name} {on[name]}" for name in ("python", "torch", "triton", "usd3", "commit") if on[name])
    return f"{on['machine']}, {versions}, {measured['date']}"


def _cell(mean: float | None, std: float | None) -> str:
    if mean is None:
        return "-"
    return f"{_digits(mean)} ± {_digits(std)}" if std is not None and std > 1e-9 else _digits(mean)


def _digits(value: float) -> str:
    """Three decimals of small numbers, fewer of large ones; of the order of a rounding error, its power of ten."""
    if 0 < abs(value) < 1e-6:
        return f"{value:.0e}"
    decimals = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0
    return f"{value:,.{decimals}f}"


def _seen(value: float, source: str) -> float:
    """What a cell shows: ours is rounded, the paper's is as printed."""
    return float(_digits(value).replace(",", "")) if source == OURS else value


def _first_number(cell: str) -> float:
    """The mean of a cell as the paper printed it."""
    found = re.match(r"[~ ]*(\d[\d,]*\.?\d*)", cell)
    return float(found[1].replace(",", "")) if found else math.nan


def _parts(place: str) -> list[str]:
    return re.split(r"(\d+)", place)
