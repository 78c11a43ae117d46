"""Cells of tables as plain text and as LaTeX."""

from collections.abc import Sequence

__all__ = ["aligned", "escaped_latex", "latex_line"]


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Lines of cells as text, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]


def latex_line(cells: Sequence[str]) -> str:
    """A line of a tabular."""
    return " & ".join(cells) + r" \\"


_SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "é": r"\'e",
    "Δ": r"$\Delta$",
    "±": r"$\pm$",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
}


def escaped_latex(text: str) -> str:
    """Text as LaTeX takes it."""
    return "".join(_SPECIAL.get(character, character) for character in text)
