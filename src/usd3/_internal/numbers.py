"""Lists of numbers in options, as in --steps "4 8 16"."""

from collections.abc import Callable
from typing import TypeVar

from usd3._internal.checks import require

__all__ = ["numbers_in"]

Number = TypeVar("Number", int, float)


def numbers_in(text: str, option: str, number: Callable[[str], Number]) -> list[Number]:
    """The numbers of a text with spaces between; errors name the option."""
    try:
        found = [number(word) for word in str(text).split()]
    except ValueError:
        found = []
    require(len(found) > 0, option, text, "numbers with spaces between, as in " + ("4 8" if number is int else "1 0.8"))
    return found
