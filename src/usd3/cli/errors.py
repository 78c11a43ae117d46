"""Error messages of the command-line parser, rewritten for a user."""

import re
from collections.abc import Iterable

from usd3._internal.messages import KINDS, suggestion

__all__ = ["explained"]


def explained(text: str, options: Iterable[str]) -> str:
    """A message of the parser in the form of all others, on one line: the option, its value and what was expected.

    Args:
        text: The parser's message.
        options: All options that exist. If the user misspelled one, the message suggests the most similar.
    """
    text = " ".join(text.split())
    option = re.match(r'Parser key "([^"]+)": ', text)
    value = re.search(r"(?:Got|Given) value: (.*)$", text)
    denied = re.search(r"Importing '([^']+)' is not allowed", text)
    if denied:
        return f"{option[1] if option else 'option'} = {denied[1]}: expected plain data, which name no class"
    kinds = re.findall(r"Expected an? (?:<class '(\w+)'>|typing\.Literal\[(.*?)\])", text)
    if option and value and kinds:
        expected = dict.fromkeys(KINDS.get(kind, kind) if kind else _choices(names) for kind, names in kinds)
        return f"{option[1]} = {value[1]}: expected {' or '.join(expected)}"
    if "unrecognized arguments" not in text.lower():
        return text
    return text + _hint(text.partition("arguments: ")[2].split(), options)


def _choices(names: str) -> str:
    choices = [name.strip(" '\"") for name in names.split(",")]
    return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"


def _hint(words: list[str], options: Iterable[str]) -> str:
    """What the user may have meant by words that the parser does not know."""
    unknown = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
    if unknown is None or unknown != words[0].partition("=")[0]:
        return " (words come before the options, and a value of several words is quoted)"
    return suggestion(unknown, options) or " (--help shows all options)"
