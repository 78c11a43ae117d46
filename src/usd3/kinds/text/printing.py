"""Texts on a terminal: a drawn control character must not move the cursor, change colours or ring a bell."""

import unicodedata

__all__ = ["printable"]

_KEPT = "\n\t"
_ESCAPED = ("Cc", "Cs")  # control characters, and surrogates, which no encoding has


def printable(text: str) -> str:
    """The text with its control characters escaped, such as ESC as `\\x1b`; line ends and tabs stay."""
    return "".join(c if c in _KEPT or unicodedata.category(c) not in _ESCAPED else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
