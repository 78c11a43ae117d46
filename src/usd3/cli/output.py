"""Make what commands print readable on every terminal, whatever characters its encoding has."""

import codecs
import io
import sys
import unicodedata

__all__ = ["show_plainly"]

_PLAIN = {"±": "+-", "↓": "v", "↑": "^", "→": "->", "Δ": "D", "ᾱ": "abar", "β": "beta", "π": "pi"}
_HANDLER = "usd3.plain"


def show_plainly() -> None:
    """From now on, stdout replaces characters that its encoding lacks: ± becomes +-, arrows become v and ^."""
    codecs.register_error(_HANDLER, _plain)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_HANDLER)


def _plain(error: UnicodeError) -> tuple[bytes, int]:
    """An error handler for `codecs`: bytes for the characters that cannot be encoded, and where to go on."""
    assert isinstance(error, UnicodeEncodeError)
    return b"".join(map(_plain_character, error.object[error.start : error.end])), error.end


def _plain_character(character: str) -> bytes:
    if "\udc80" <= character <= "\udcff":  # a byte of a file's name that is not text: print it unchanged
        return bytes([ord(character) - 0xDC00])
    plain = _PLAIN.get(character) or unicodedata.normalize("NFKD", character)
    return plain.encode("ascii", "ignore") or b"?"
