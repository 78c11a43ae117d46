"""Words of error messages that several parts of the package share."""

import difflib
from collections.abc import Iterable

__all__ = ["KINDS", "suggestion"]

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
"""What a user calls a value of each Python type."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """The hint "(is X meant?)" with the known word X that is most similar to `word`; empty if none is similar."""
    similar = difflib.get_close_matches(word, list(known), n=1)
    return f" (is {similar[0]} meant?)" if similar else ""
