"""Conditions on the columns of a table, typed as text or given as a mapping: `sex=Female,age=30..40`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from usd3._internal.checks import require, require_type
from usd3._internal.messages import suggestion

__all__ = ["Choice", "Condition", "conditions_of"]

_EXPECTED = "conditions such as sex=Female,age=30..40, with a comma between two of them"
_COMMA = 'quotes protect a comma: size="1,5"'


@dataclass(frozen=True)
class Choice:
    """One alternative: a value, a range, or no value at all.

    Args:
        value: the value; None: the cell is missing, unless this is a range.
        low: the smallest value of a range; None: open.
        high: the largest value of a range; None: open.
        is_range: whether it is a range.
    """

    value: Any = None
    low: Any = None
    high: Any = None
    is_range: bool = False

    @property
    def is_missing(self) -> bool:
        """Whether it stands for a missing cell."""
        return self.value is None and not self.is_range

    def __str__(self) -> str:
        ends = ("" if end is None else str(end) for end in (self.low, self.high))
        return "..".join(ends) if self.is_range else "" if self.value is None else str(self.value)


@dataclass(frozen=True)
class Condition:
    """What one part of a text says about a column.

    Args:
        column: name of the column.
        choices: the alternatives.
        excluded: whether the column must have none of them, instead of one of them.
    """

    column: str
    choices: tuple[Choice, ...]
    excluded: bool = False

    def __str__(self) -> str:
        return f"{self.column}{'!=' if self.excluded else '='}{'|'.join(map(str, self.choices))}"


def conditions_of(
    where: Mapping[str, Any] | str, columns: Sequence[str], left_out: Collection[str] = ()
) -> list[Condition]:
    """The conditions of a text or a mapping.

    Text: `name=value`, `name!=value`, alternatives `a|b`, ranges `30..40`, `30..` and `..40` with both ends included,
    and `name=` for a missing cell. Quotes protect commas, | and dots: `title="Smith, John"`. Mapping: a value, a tuple
    (low, high) for a range with None for an open end, a list, set, array, Series or range of these, or None for a
    missing cell.

    Args:
        where: the text or the mapping.
        columns: the names of the columns; others are refused.
        left_out: the names of columns that the data have and the model has not.
    """
    if isinstance(where, str):
        found = [_condition(part, where) for part in _split(where, ",", where)]
    else:
        require_type(isinstance(where, Mapping), "where", where, f"a mapping, or a text: {_EXPECTED}")
        found = [Condition(str(name), _choices(value, str(name))) for name, value in where.items()]
    listed = ", ".join(columns[:12]) + (", ..." if len(columns) > 12 else "")
    for condition in found:
        name = condition.column
        _require_no_comparison(condition, columns)
        why = f", as the model learnt without {name}" if name in left_out else suggestion(name, columns)
        require(name in columns, "column in where", name, f"one of {listed}{why}")
    return found


def _require_no_comparison(condition: Condition, columns: Sequence[str]) -> None:
    """Raise an error for `age>=30`, which is read as a column named `age>`."""
    name = condition.column[:-1].strip()
    if condition.column[-1:] in ("<", ">") and condition.column not in columns and name in columns:
        value = condition.choices[0]
        meant = f"{name}={value}.." if condition.column[-1] == ">" else f"{name}=..{value}"
        raise ValueError(f"where = {condition}: expected a range, {meant}, with {value} included")


def _choices(value: Any, name: str) -> tuple[Choice, ...]:
    if _is_list(value):
        require(len(value) > 0, f"where[{name}]", value, "at least one value")
        return tuple(_choice(item, name) for item in value)
    return (_choice(value, name),)


def _is_list(value: Any) -> bool:
    """Whether a value is a list of alternatives: also a set, a range, an array, a Series."""
    is_one = isinstance(value, str | bytes | tuple | Mapping) or getattr(value, "ndim", 1) != 1
    return isinstance(value, Collection) and not is_one


def _choice(value: Any, name: str) -> Choice:
    if not isinstance(value, tuple):
        return Choice(value)
    require(len(value) == 2 and value != (None, None), f"where[{name}]", value, "(low, high), one of which may be None")
    return Choice(low=value[0], high=value[1], is_range=True)


# ---- the text -----------------------------------------------------------------------------------------------------


def _condition(part: str, where: str) -> Condition:
    """One condition, such as `age=30..40`."""
    name, excluded, values = _divided(part, where)
    return Condition(name, tuple(_typed_choice(value, part) for value in _split(values, "|", where)), excluded)


def _divided(part: str, where: str) -> tuple[str, bool, str]:
    """The name, whether `!=` follows it, and the rest."""
    quoted = False
    for i, letter in enumerate(part):
        quoted ^= letter == '"'
        if letter == "=" and not quoted:
            excluded = part[i - 1 : i] == "!"
            name = _unquoted(part[: i - 1] if excluded else part[:i])
            require(name != "", "where", where, _EXPECTED)
            return name, excluded, part[i + 1 :]
    is_compared = "<" in part or ">" in part
    cure = " (ranges are age=30.. and age=..40)" if is_compared else "" if part == where else f" ({_COMMA})"
    raise ValueError(f"where = {where}: expected {_EXPECTED}; {part.strip()!r} has no ={cure}")


def _typed_choice(text: str, part: str) -> Choice:
    text = text.strip()
    if text == "":
        return Choice()
    low, *others = (end.strip() for end in _split(text, "..", part))
    if not others:
        return Choice(_unquoted(text))
    high = "..".join(others)
    require(bool(low or high), "where", part.strip(), "a range such as 30..40, 30.. or ..40")
    return Choice(text, _unquoted(low) or None, _unquoted(high) or None, is_range=True)


def _split(text: str, mark: str, where: str) -> list[str]:
    """The parts of a text between marks that stand outside of quotes."""
    parts, quoted, place = [""], False, 0
    while place < len(text):
        quoted ^= text[place] == '"'
        if text.startswith(mark, place) and not quoted:
            parts.append("")
            place += len(mark)
        else:
            parts[-1] += text[place]
            place += 1
    require(not quoted, "where", where, 'a second " after the first')
    return parts


def _unquoted(text: str) -> str:
    """The text without the quotes around it; two quotes inside stand for one."""
    text = text.strip()
    is_quoted = len(text) >= 2 and text[0] == text[-1] == '"'
    return text[1:-1].replace('""', '"') if is_quoted else text
