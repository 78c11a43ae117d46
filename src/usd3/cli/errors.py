"""Errors and warnings as the user sees them: one line each on stderr."""

import re
import sys
from collections.abc import Iterable
from typing import Any

from jsonargparse import ArgumentError

from usd3._internal.messages import KINDS, suggestion

__all__ = ["explained", "one_line", "print_warning"]

_EXPECTED = (ArgumentError, ValueError, TypeError, OSError, ImportError, ArithmeticError, MemoryError)


def one_line(error: Exception) -> str:
    """The message of an error in one line. An unexpected type of error is named, and its message cut short."""
    text = " ".join(str(error).split())
    if isinstance(error, _EXPECTED) and text:
        return text
    return f"{type(error).__name__}: {text[:300]} (USD3_DEBUG=1 shows where)"


def print_warning(message: Warning | str, *_: Any) -> None:
    """Replaces `warnings.showwarning`: the message alone, without file and line."""
    print(f"usd3: warning: {' '.join(str(message).split())}", file=sys.stderr)


def explained(text: str, options: Iterable[str]) -> str:
    """A message of the command-line parser in the form of our own: option, value, what was expected; in one line.

    Args:
        text: the parser's message.
        options: all options that exist. If the user misspelled one, the message suggests the most similar.
    """
    text = " ".join(text.split())
    option = re.match(r'Parser key "([^"]+)": ', text)
    value = re.search(r"(?:Got|Given) value: (.*)$", text)
    denied = re.search(r"Importing '([^']+)' is not allowed", text)
    if denied:
        return f"{option[1] if option else 'option'} = {denied[1]}: expected plain data, which name no class"
    types = re.findall(r"Expected an? (?:<class '(\w+)'>|typing\.Literal\[(.*?)\])", text)
    if option and value and types:
        expected = dict.fromkeys(KINDS.get(name, name) if name else _choices(literals) for name, literals in types)
        return f"{option[1]} = {value[1]}: expected {' or '.join(expected)}"
    if "unrecognized arguments" not in text.lower():
        return text
    return text + _hint(text.partition("arguments: ")[2].split(), options)


def _choices(literals: str) -> str:
    choices = [literal.strip(" '\"") for literal in literals.split(",")]
    return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"


def _hint(words: list[str], options: Iterable[str]) -> str:
    """What the user may have meant by words that the parser does not know."""
    unknown = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
    if unknown is None or unknown != words[0].partition("=")[0]:
        return " (words come before the options, and a value of several words is quoted)"
    return suggestion(unknown, options) or " (--help shows all options)"
