"""What commands print reaches every terminal, whatever signs it knows."""

import codecs
import io
import sys
import unicodedata

__all__ = ["show_plainly"]

_PLAIN = {"±": "+-", "↓": "v", "↑": "^", "→": "->", "Δ": "D", "ᾱ": "abar", "β": "beta", "π": "pi"}
_HANDLER = "usd3.plain"


def show_plainly() -> None:
    """From now on stdout shows signs that its encoding does not have as plain ones: +- for ±, v and ^ for arrows."""
    codecs.register_error(_HANDLER, _plain)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_HANDLER)


def _plain(error: UnicodeError) -> tuple[bytes, int]:
    """Bytes for what cannot be encoded; a byte of a file's name that was no text stays what it was."""
    assert isinstance(error, UnicodeEncodeError)
    return b"".join(map(_byte_by_byte, error.object[error.start : error.end])), error.end


def _byte_by_byte(sign: str) -> bytes:
    if "\udc80" <= sign <= "\udcff":
        return bytes([ord(sign) - 0xDC00])
    plain = _PLAIN.get(sign) or unicodedata.normalize("NFKD", sign)
    return plain.encode("ascii", "ignore") or b"?"
