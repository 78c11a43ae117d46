"""The one place that lays out tables: as text, Markdown, LaTeX and CSV."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["BOLD", "RANKS", "Cell", "Row", "Table", "aligned", "exact", "not_worse", "ranks", "short", "with_spread"]

RANKS = "{ranks}"
"""In a note of a table: replaced by what the format uses to mark the best and the second best cell."""
BOLD = "{bold}"
"""In a note of a table: replaced by what the format uses to mark a cell of rank 1."""
_CORNER = "Method"  # LaTeX's title of the first column where the table has none
_ROUNDING_ERROR = 1e-9  # a standard deviation below this, relative to the mean, is not shown


class Cell(NamedTuple):
    """A cell, and its rank in its column: 1 is the best, 2 the second best, 0 neither."""

    text: str
    rank: int = 0


Row = Sequence[Cell | str]


@dataclass(frozen=True)
class Table:
    """Rows of cells below a head.

    Args:
        head: the title of each column.
        sections: the rows, in groups. LaTeX draws a line between the groups.
        notes: paragraphs below the table, in text and Markdown. `RANKS` and `BOLD` in them are replaced by what marks
            the ranks.
        names: how many columns at the left are names and not numbers. LaTeX aligns them to the left.
    """

    head: Sequence[str]
    sections: Sequence[Sequence[Row]]
    notes: Sequence[str] = ()
    names: int = 1

    @property
    def rows(self) -> list[Row]:
        """The rows of all sections."""
        return [row for section in self.sections for row in section]

    def text(self) -> str:
        """Columns aligned by spaces, and the notes. The best cell ends with **, the second best with *."""
        lines = aligned([self.head, *_strings(self.rows, ("{}", "{}**", "{}*"))])
        return self._with_notes("\n".join(lines), "** best, * second best", "**")

    def markdown(self) -> str:
        """A table of Markdown, and the notes. The best cell is bold, the second best italic."""
        lines = [self.head, ["---"] * len(self.head), *_strings(self.rows, ("{}", "**{}**", "*{}*"))]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return self._with_notes(table, "Bold is best, italic second best", "Bold")

    def latex(self) -> str:
        """A tabular for the package booktabs, without the notes. The best cell is bold, the second best underlined."""
        columns = "l" * self.names + "c" * (len(self.head) - self.names)
        lines = ["% needs \\usepackage{booktabs}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
        lines.append(_latex_line(map(_escaped, [self.head[0] or _CORNER, *self.head[1:]])))
        for section in filter(None, self.sections):
            cells = _strings(section, ("{}", r"\textbf{{{}}}", r"\underline{{{}}}"), _escaped)
            lines += [r"\midrule", *map(_latex_line, cells)]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def latex_notes(self) -> list[str]:
        """The notes as LaTeX writes them, for a caption or a comment."""
        return [_escaped(note) for note in self._notes("Bold is best, underlined second best", "Bold")]

    def csv(self) -> str:
        """A line for the head and one for each row, without ranks and notes."""
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows([self.head, *_strings(self.rows, ("{}", "{}", "{}"))])
        return file.getvalue()

    def _with_notes(self, table: str, marks: str, bold: str) -> str:
        return "\n\n".join([table, *self._notes(marks, bold)])

    def _notes(self, marks: str, bold: str) -> list[str]:
        return [note.replace(RANKS, marks).replace(BOLD, bold) for note in self.notes if note]


def _strings(rows: Iterable[Row], formats: Sequence[str], written: Callable[[str], str] = str) -> list[list[str]]:
    """The cells as `written` and in the format of their rank."""
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    return [[formats[cell.rank].format(written(cell.text)) for cell in row] for row in cells]


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Lines of cells as text, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]


def _latex_line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "é": r"\'e",
    "Δ": r"$\Delta$",
    "ᾱ": r"$\bar\alpha$",
    "β": r"$\beta$",
    "π": r"$\pi$",
    "±": r"$\pm$",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
}


def _escaped(text: str) -> str:
    """Plain text in LaTeX."""
    return "".join(_LATEX.get(character, character) for character in text)


# ---- numbers ------------------------------------------------------------------------------------------------------


def ranks(values: Sequence[float], higher: bool, most: int = 2) -> list[int]:
    """1 for the best value, 2 for the second best, ... up to `most`, 0 for the others; equal values share a rank.

    nan is an unknown value. All ranks are 0 if all known values are equal.
    """
    known = {value for value in values if not math.isnan(value)}
    ordered = sorted(known, reverse=higher)[:most] if len(known) > 1 else []
    return [ordered.index(value) + 1 if value in ordered else 0 for value in values]


def not_worse(
    labels: Sequence[str], values: Sequence[float], higher: bool, worse: Mapping[str, Sequence[str]]
) -> list[int]:
    """1 for the best of the known values and for those that are not shown to be worse than it, 0 for the others.

    Args:
        labels: the name of each value.
        values: nan is an unknown one.
        higher: whether more is better.
        worse: for each name, those that it is shown to be worse than.
    """
    known = {label: value for label, value in zip(labels, values) if not math.isnan(value)}
    if len(known) < 2:
        return [0] * len(labels)
    best = (max if higher else min)(known, key=known.__getitem__)
    return [int(label in known and best not in worse[label]) for label in labels]


def with_spread(mean: float | None, std: float | None, digits: Callable[[float], str], between: str = " ± ") -> str:
    """ "mean ± std"; "mean" alone if there is no standard deviation, "-" if the mean is unknown or not finite."""
    if mean is None or not math.isfinite(mean):
        return "-"
    if std is None or not math.isfinite(std) or std <= _ROUNDING_ERROR * abs(mean):
        return digits(mean)
    return f"{digits(mean)}{between}{digits(std)}"


def short(value: float) -> str:
    """A number in few digits; "-" if it is unknown."""
    if not math.isfinite(value):
        return "-"
    whole = value == round(value) and abs(value) >= 1
    return f"{value:,.0f}" if whole or abs(value) >= 1000 else f"{value:.3g}"


def exact(value: float | None) -> str:
    """A number in nine digits, for a CSV file; empty if it is unknown."""
    return "" if value is None or not math.isfinite(value) else f"{value:.9g}"
