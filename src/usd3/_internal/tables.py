"""Tables: which of their rows are best, and their cells as plain text, Markdown and LaTeX."""

import math
from collections.abc import Sequence

__all__ = ["aligned", "escaped", "markdown", "places", "short", "tabular"]


def places(values: Sequence[float], higher: bool, most: int = 2) -> list[int]:
    """1 for the best, 2 for the second best, ... up to `most`, 0 for the others; equal values share a place.

    A value that is nan is not known, and nothing has a place where all that are known are equal.
    """
    known = {value for value in values if not math.isnan(value)}
    ordered = sorted(known, reverse=higher)[:most] if len(known) > 1 else []
    return [ordered.index(value) + 1 if value in ordered else 0 for value in values]


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Lines of cells as text, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table for a page in Markdown."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def short(value: float) -> str:
    """A number in few digits; "-" where it is not known."""
    if not math.isfinite(value):
        return "-"
    whole = value == round(value) and abs(value) >= 1
    return f"{value:,.0f}" if whole or abs(value) >= 1000 else f"{value:.3g}"


def tabular(
    head: Sequence[str], body: Sequence[Sequence[str]], below: Sequence[Sequence[str]] = (), names: int = 1
) -> str:
    """A table for LaTeX's package booktabs, of cells that are LaTeX already.

    The first `names` columns are aligned to the left; `below` comes under a line of its own.
    """
    columns = "l" * names + "c" * (len(head) - names)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _line(head), r"\midrule", *map(_line, body)]
    lines += [r"\midrule", *map(_line, below)] if below else []
    return "\n".join(["% needs \\usepackage{booktabs}", *lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


_SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
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


def escaped(text: str) -> str:
    """Text as LaTeX takes it."""
    return "".join(_SPECIAL.get(character, character) for character in text)
