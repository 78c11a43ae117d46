"""Texts in pieces, from a file or from memory: encodings, line ends, and which characters occur.

A file is read in blocks, so it may be larger than memory.
"""

import codecs
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from usd3._internal.checks import require

__all__ = ["BLOCK", "Survey", "TextFile", "TextInMemory", "TextSource", "code_points"]

BLOCK = 2**22
"""Bytes or characters that are read at once."""
_CODE_POINTS = 0x110000
_MARKS = {  # byte order marks; the one of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_ANY_FILE = "--data.text.tokenizer bytes learns any file as it is"
_SAY = "--data.text.encoding says which encoding it has"


@dataclass(frozen=True)
class Survey:
    """What one pass over a text finds out.

    Args:
        length: number of characters.
        alphabet: the characters that occur, each once, sorted.
        line_ends: line ends that were read as "\\n", such as "\\r\\n"; "": none.
        is_plain: every byte of the file is one ASCII character of the text.
    """

    length: int
    alphabet: str
    line_ends: str = ""
    is_plain: bool = False


class TextSource(Protocol):
    """A text that can be read several times from its beginning."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def survey(self) -> Survey:
        """Facts on the whole text."""

    def chunks(self) -> Iterator[str]:
        """The text, one part after the other."""


def code_points(text: str) -> "np.typing.NDArray[np.uint32]":
    """The number of each character in Unicode, (len(text),)."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


class TextInMemory:
    """A string. Windows line ends become "\\n"."""

    def __init__(self, text: str, name: str = "the text"):
        self.name = name
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        position = self.text.find("\0")
        require(position < 0, self.name, f"a NUL character at {position}", "text")

    @cached_property
    def survey(self) -> Survey:
        """Facts on the whole text."""
        return Survey(len(self.text), "".join(sorted(set(self.text))))

    def chunks(self) -> Iterator[str]:
        """The text, one part after the other."""
        return (self.text[first : first + BLOCK] for first in range(0, len(self.text), BLOCK))


class TextFile:
    """A text in a file. Windows line ends become "\\n"; a byte order mark is no part of the text.

    Args:
        path: the file.
        encoding: the name of its encoding; None: that of its byte order mark, else UTF-8, else cp1252 with a warning.
    """

    def __init__(self, path: Path, encoding: str | None = None):
        if not path.is_file():
            raise FileNotFoundError(f"{path}: {'a folder' if path.is_dir() else 'no such file'}; expected a text file")
        self.path, self._given = path, encoding
        if encoding is not None:
            _require_encoding(encoding)

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def encoding(self) -> str:
        """The encoding of the file."""
        return self._read[0]

    @property
    def survey(self) -> Survey:
        """Facts on the whole text."""
        return self._read[1]

    def chunks(self) -> Iterator[str]:
        """The text, one part after the other."""
        lines = io.IncrementalNewlineDecoder(None, translate=True)
        for part in _decoded(self.path, self.encoding):
            yield lines.decode(part)
        yield lines.decode("", final=True)

    @cached_property
    def _read(self) -> tuple[str, Survey]:
        """The encoding and the survey: the whole file is read once, and once more if it is not UTF-8."""
        with self.path.open("rb") as file:
            head = file.read(4)
        marked = next((encoding for mark, encoding in _MARKS.items() if head.startswith(mark)), None)
        encoding = self._given or marked
        if encoding is not None:
            try:
                return encoding, self._surveyed(encoding)
            except _UndecodableError as error:
                raise ValueError(f"{self.path}: {error}: {_SAY}; {_ANY_FILE}") from None
        try:
            return "utf-8", self._surveyed("utf-8")
        except _UndecodableError as error:
            reason = str(error)
        try:
            survey = self._surveyed("cp1252")
        except _UndecodableError:
            raise ValueError(f"{self.path}: neither UTF-8 nor cp1252 ({reason}): {_SAY}; {_ANY_FILE}") from None
        warnings.warn(f"{self.path}: not UTF-8 ({reason}), so it is read as cp1252; {_SAY}", stacklevel=2)
        return "cp1252", survey

    def _surveyed(self, encoding: str) -> Survey:
        lines = io.IncrementalNewlineDecoder(None, translate=True)
        seen, length, is_ascii = _Seen(), 0, encoding in ("utf-8", "ascii")
        for part in _decoded(self.path, encoding):
            text = lines.decode(part)
            seen.add(text)
            length, is_ascii = length + len(text), is_ascii and part.isascii()
        text = lines.decode("", final=True)
        seen.add(text)
        newlines = lines.newlines
        ends = {newlines} if isinstance(newlines, str) else set(newlines or ())
        others = ", ".join(repr(end) for end in sorted(ends - {"\n"}))
        return Survey(length + len(text), seen.alphabet, others, is_ascii and not others)


class _UndecodableError(ValueError):
    """Bytes that the encoding does not have."""


class _Seen:
    """The set of characters of a long text."""

    def __init__(self) -> None:
        self._ascii, self._others = b"", np.zeros(_CODE_POINTS, dtype=bool)

    def add(self, text: str) -> None:
        """Add the characters of a text. Few are new, and the known ones of ASCII are dropped fast."""
        if text.isascii():
            self._ascii += bytes(set(text.encode().translate(None, self._ascii)))
        else:
            self._others[code_points(text)] = True

    @property
    def alphabet(self) -> str:
        """All characters that were added, sorted."""
        self._others[list(self._ascii)] = True
        return "".join(map(chr, np.flatnonzero(self._others)))


def _decoded(path: Path, encoding: str) -> Iterator[str]:
    """The characters of a file, block by block, with their line ends. NUL and undecodable bytes raise an error."""
    decoder, offset = codecs.getincrementaldecoder(encoding)(), 0
    with path.open("rb") as file:
        while True:
            block = file.read(BLOCK)
            kept = len(decoder.getstate()[0])  # bytes of a character that the last block began
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                place = offset - kept + error.start
                reason = f"byte 0x{error.object[error.start]:02x} at {place:,} is not {encoding}"
                raise _UndecodableError(reason) from None
            except UnicodeError as error:  # no byte order mark, where the encoding needs one
                raise _UndecodableError(f"not {encoding} ({error})") from None
            if "\0" in text:
                where = f"the first at byte {offset + block.find(0):,}" if 0 in block else "some"
                raise ValueError(
                    f"{path}: NUL characters, {where}: expected text "
                    f"(UTF-16 without a mark: --data.text.encoding utf-16-le; {_ANY_FILE})"
                )
            offset += len(block)
            yield text
            if not block:
                return


def _require_encoding(name: str) -> None:
    """Raise an error unless Python knows a text encoding of this name."""
    try:
        is_text = codecs.lookup(name)._is_text_encoding
        codecs.getincrementaldecoder(name)
    except LookupError:
        is_text = False
    require(is_text, "data.text.encoding", name, "an encoding such as utf-8, latin-1 or shift_jis, or null")
