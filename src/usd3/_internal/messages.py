"""What the parser of the command line says, in words for a user."""

import difflib
import re
from collections.abc import Iterable

__all__ = ["KINDS", "explained", "near"]

KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "NoneType": "null",
    "tuple": "a list",
    "list": "a list",
    "dict": "a mapping, as in '{\"name\": 1}'",
}


def explained(text: str, options: Iterable[str]) -> str:
    """A message of the parser as the others are: the option, its value and what was expected; in one line.

    `options` are all that there are, to name the nearest where one is not known.
    """
    text = " ".join(text.split())
    about = re.match(r'Parser key "([^"]+)": ', text)
    value = re.search(r"(?:Got|Given) value: (.*)$", text)
    denied = re.search(r"Importing '([^']+)' is not allowed", text)
    if denied:
        return f"{about[1] if about else 'option'} = {denied[1]}: expected plain data, which name no class"
    kinds = re.findall(r"Expected an? (?:<class '(\w+)'>|typing\.Literal\[(.*?)\])", text)
    if about and value and kinds:
        expected = dict.fromkeys(KINDS.get(kind, kind) if kind else _choices(names) for kind, names in kinds)
        return f"{about[1]} = {value[1]}: expected {' or '.join(expected)}"
    if "unrecognized arguments" not in text.lower():
        return text
    return text + _hint(text.partition("arguments: ")[2].split(), options)


def _choices(names: str) -> str:
    found = [name.strip(" '\"") for name in names.split(",")]
    return found[0] if len(found) == 1 else f"one of {', '.join(found)}"


def _hint(words: list[str], options: Iterable[str]) -> str:
    """What may have been meant."""
    unknown = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
    if unknown is None or unknown != words[0].partition("=")[0]:
        return " (words come before the options, and a value of several words is quoted)"
    return near(unknown, options) or " (--help shows all options)"


def near(word: str, known: Iterable[str]) -> str:
    """A question for the known word that is like one that is not known; empty where none is."""
    found = difflib.get_close_matches(word, list(known), n=1)
    return f" (is {found[0]} meant?)" if found else ""
