"""FASTA files: named sequences of letters, also packed by gzip."""

import gzip
import io
import warnings
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from usd3._internal.checks import require
from usd3._internal.files import written_whole
from usd3.kinds.sequence.records import Records

__all__ = ["ENDINGS", "PACKED_ENDINGS", "fasta_record", "has_lines", "read_fasta", "write_fasta"]

ENDINGS = (".fa", ".fasta", ".fna", ".faa")
"""The usual endings of names of FASTA files."""
PACKED_ENDINGS = tuple(f"{ending}.gz" for ending in ENDINGS)
"""Those of files that are packed by gzip."""

_PART = 2**16  # characters of a line that are read at once
_ALWAYS_ALLOWED = 2**28  # unpacked, a file may have this many characters, or this many times its packed size
_LARGEST_RATIO = 100
_WIDTH = 60  # letters in a line that is written
_BYTE_ORDER_MARK = "ï»¿"  # of UTF-8, read as Latin-1
_GZIP = b"\x1f\x8b"
_HEAD = 2**12  # bytes of a text that tell whether it is FASTA


def has_lines(path: Path) -> bool:
    """Whether a file is a .txt with one sequence in each line, and not FASTA, which begins with `>` or a comment."""
    if path.suffix.lower() != ".txt" or not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD).removeprefix(_BYTE_ORDER_MARK.encode("latin-1")).lstrip()
    return not head.startswith((b">", b";"))


def read_fasta(path: Path) -> Records:
    """The sequences of a FASTA file with their names, the whole lines after `>`.

    A sequence may have many lines. Blanks in it, blank lines and lines that begin with `;` are skipped. A record
    without letters is left out, with a warning, and names that occur several times are kept, with a warning. The file
    is read once, and the result takes a byte for each letter.
    """
    if not path.is_file():
        seen = "a folder" if path.is_dir() else "no such file"
        raise FileNotFoundError(f"{path}: {seen}; expected a FASTA file")
    letters, starts, names = bytearray(), array("q"), list[str]()
    for is_name, text in _lines(path):
        if is_name:
            starts.append(len(letters))
            names.append(text)
        else:
            letters += text.encode("latin-1")
    ends = np.append(np.array(starts, np.int64), len(letters))
    has_letters = np.diff(ends) > 0
    if empty := int((~has_letters).sum()):
        number, verb = ("1 record", "is") if empty == 1 else (f"{empty:,} records", "are")
        warnings.warn(f"{path}: {number} without letters {verb} left out", stacklevel=2)
        ends, names = ends[np.append(has_letters, True)], [n for n, keep in zip(names, has_letters) if keep]
    _warn_equal_names(path, names)
    records = Records(np.frombuffer(letters, np.uint8), ends, tuple(names))
    _require_letters(records, path)
    return records


def write_fasta(path: Path, names: Sequence[str], sequences: Sequence[str]) -> None:
    """Write named sequences, whole or not at all, with 60 letters in a line."""
    with written_whole(path) as part, open(part, "w", encoding="utf-8", newline="\n") as file:
        for name, sequence in zip(names, sequences, strict=True):
            file.write(fasta_record(name, sequence))


def fasta_record(name: str, sequence: str) -> str:
    """The lines of one sequence, with 60 letters in a line."""
    lines = [sequence[start : start + _WIDTH] for start in range(0, len(sequence), _WIDTH)]
    return "\n".join([f">{name}", *lines]) + "\n"


def _lines(path: Path) -> Iterator[tuple[bool, str]]:
    """(True, name) of each record, and (False, letters) of each line after it, or part of a long line."""
    name: list[str] | None = None  # the parts of a name that is being read
    number, is_new, is_comment, has_names = 0, True, False, False
    for text in _parts(path):
        if is_new:
            number += 1
            text = text.removeprefix(_BYTE_ORDER_MARK) if number == 1 else text
            is_comment, name = text.startswith(";"), [] if text.startswith(">") else None
        ends = text.endswith("\n")
        if name is not None:
            name.append(text)
            if ends:
                yield True, _named(name)
                name, has_names = None, True
        elif not is_comment and (letters := "".join(text.split())):
            if not has_names:
                seen = repr(letters if len(letters) <= 20 else f"{letters[:17]}...")
                raise ValueError(f"{path}, line {number}: expected `>` and a name before the first letters, not {seen}")
            yield False, letters
        is_new = ends
    if name is not None:  # the file ends with a name
        yield True, _named(name)


def _named(parts: list[str]) -> str:
    """The name in the parts of a line after `>`."""
    return "".join(parts)[1:].strip().encode("latin-1").decode("utf-8", "replace")


def _parts(path: Path) -> Iterator[str]:
    """The lines of a file, long ones in parts. A packed file that is far larger unpacked is refused."""
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        most = max(_ALWAYS_ALLOWED, _LARGEST_RATIO * path.stat().st_size)
        size = 0
        try:
            with _as_text(file, packed) as stream:
                while text := stream.readline(_PART):
                    size += len(text)
                    too_large = f"at most {most:,} characters unpacked"
                    require(not packed or size <= most, f"size of {path}", f"more than {most:,}", too_large)
                    yield text
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path}: expected a FASTA file, or one packed by gzip ({error})") from None


def _as_text(file: IO[bytes], packed: bool) -> IO[str]:
    """The text of a file, a character for each byte; lines may end as on Unix, Windows or an old Mac."""
    stream = gzip.GzipFile(fileobj=file) if packed else file
    return io.TextIOWrapper(stream, encoding="latin-1", newline=None)


def _warn_equal_names(path: Path, names: Sequence[str]) -> None:
    repeated = len(names) - len(set(names))
    if repeated:
        name, times = Counter(names).most_common(1)[0]
        shown = name if len(name) <= 40 else f"{name[:37]}..."
        have = "1 sequence has" if repeated == 1 else f"{repeated:,} sequences have"
        what = f"{have} the name of another one; {shown!r} occurs {times:,} times"
        warnings.warn(f"{path}: {what}", stacklevel=3)


def _require_letters(records: Records, path: Path) -> None:
    """Raise an error if a sequence has a character that is no printable one of ASCII."""
    bad = (records.codes <= 32) | (records.codes >= 127)
    if bad.any():
        place = int(bad.argmax())
        seen = f"the byte {int(records.codes[place])} in {records.name_at(place)}"
        require(False, f"letters of {path}", seen, "printable characters of ASCII")
