"""The form of a file of text, told from its beginning: encoding, delimiter, padding, header."""

import codecs
import csv
import io
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from usd3._internal.checks import require
from usd3.kinds.table.cells import as_texts, is_number
from usd3.kinds.table.dates import date_formats
from usd3.kinds.table.form import TableForm
from usd3.kinds.table.options import MISSING, TableOptions

__all__ = ["form_of_file", "is_wide", "require_no_nul"]

_SAMPLE = 2**18  # bytes
_BLOCK = 2**22
_DELIMITERS = ("\t", ";", "|", ",")  # the comma last: it may stand inside of cells
_BOMS = {  # that of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_BINARY = {  # first bytes
    b"PAR1": "a Parquet file, whose name ends with .parquet",
    b"PK\x03\x04": "an Excel or zip file: save the table as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel file: save the table as CSV",
    b"\x1f\x8b": "a gzip file: unpack it",
}


def form_of_file(path: Path, options: TableOptions, named: Sequence[str] | None = None) -> TableForm:
    """The form of a file of text.

    Args:
        path: the file.
        options: what the user says about it.
        named: names of columns that the file may have; if the first line has one of them, it is a header.
    """
    with path.open("rb") as file:
        start = file.read(_SAMPLE)
    if not (is_wide(options.encoding) or start.startswith(tuple(_BOMS))):
        require_no_nul(path, start)
    encoding = options.encoding or _encoding(path, start)
    text = _decoded(start, encoding, path)
    require("\0" not in text, str(path), f"NUL characters in {encoding}", "text; --data.table.encoding names another")
    newline = "\r\n" if "\r\n" in text else "\n" if "\n" in text or "\r" not in text else "\r"
    is_whole = len(start) < _SAMPLE
    lines = text if is_whole else text[: text.rfind("\n") + 1] or text
    delimiter = options.delimiter or ("\t" if path.suffix.lower() == ".tsv" else _delimiter(lines))
    padded = _is_padded(lines, delimiter)
    rows = _rows(lines, delimiter, padded)
    require(len(rows) > 0, str(path), "an empty file", "rows of cells")
    missing = tuple(MISSING if options.missing is None else options.missing)
    header = options.header
    if header is None:
        known = named is not None and any(cell.strip() in named for cell in rows[0])
        header = known or (named is None and _has_header(rows, missing))
    if options.names is not None:
        fits = len(options.names) == len(rows[0])
        require(fits, "data.table.names", f"{len(options.names)} names", f"{len(rows[0])}, one for each column")
        names = tuple(options.names)
    else:
        names = _names(rows[0], path) if header else tuple(f"column_{i + 1}" for i in range(len(rows[0])))
    return TableForm(path.suffix.lower(), delimiter, header, padded, encoding, newline, missing, names)


def is_wide(encoding: str | None) -> bool:
    """Whether letters of an encoding are two bytes or four, so that NUL bytes are parts of them."""
    return encoding is not None and codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))


def require_no_nul(path: Path, block: bytes, position: int = 0) -> None:
    """Raise an error if bytes of a file, which begin at a position, have a NUL: it is no text."""
    first = block.find(0)
    if first < 0:
        return
    seems = next((name for magic, name in _BINARY.items() if position == 0 and block.startswith(magic)), "")
    if not seems:
        halves = [block[i::2].count(0) / len(block[i::2] or b"-") for i in (0, 1)]
        is_utf16 = max(halves) > 0.5 and min(halves) < 0.1
        ending = "le" if halves[1] > halves[0] else "be"
        seems = f"UTF-16 without a mark: --data.table.encoding utf-16-{ending}" if is_utf16 else "a binary file"
    place = f"the first at byte {position + first:,}"
    raise ValueError(f"{path}: NUL characters, {place}: expected text (it seems to be {seems})")


def _encoding(path: Path, start: bytes) -> str:
    """The encoding of a file: by its first bytes, else UTF-8 if all of it is, else that of Windows, with a warning."""
    for bom, name in _BOMS.items():
        if start.startswith(bom):
            return name
    decoder, position = codecs.getincrementaldecoder("utf-8")(), 0
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                decoder.decode(block)
                position += len(block)
            decoder.decode(b"", final=True)
        return "utf-8"
    except UnicodeDecodeError as error:
        found = "cp1252" if _is_cp1252(path) else "latin-1"
        place = position + error.start
        how = f"--data.table.encoding NAME where it is another, such as utf-16 or cp1250; byte {place:,} is no UTF-8"
        warnings.warn(f"{path} is read as {found}: {how}", stacklevel=4)
        return found


def _is_cp1252(path: Path) -> bool:
    undefined = bytes([0x81, 0x8D, 0x8F, 0x90, 0x9D])
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            if len(block.translate(None, undefined)) < len(block):
                return False
    return True


def _decoded(start: bytes, encoding: str, path: Path) -> str:
    """The text of the first bytes of a file; the last letter may be cut."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(start)
    except UnicodeError:
        raise ValueError(f"data.table.encoding = {encoding}: expected the encoding of {path}") from None


def _rows(text: str, delimiter: str, padded: bool) -> list[list[str]]:
    """The rows of a text that are not empty; one that is cut at the end of the text is left out."""
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=padded):
            if row:
                rows.append(row)
    except csv.Error:  # read again, and reported with its line, later
        pass
    return rows


def _delimiter(text: str) -> str:
    """The delimiter that cuts all lines into the same number of cells, or else most of them; a comma if none does."""
    best, share = ",", 0.0
    for delimiter in _DELIMITERS:
        widths = Counter(len(row) for row in _rows(text, delimiter, padded=True))
        width, count = widths.most_common(1)[0] if widths else (1, 0)
        if width > 1 and count / sum(widths.values()) > share:
            best, share = delimiter, count / sum(widths.values())
    return best


def _is_padded(text: str, delimiter: str) -> bool:
    """Whether a space follows nearly every delimiter, as in the files of the UCI repository."""
    count = text.count(delimiter)
    return delimiter != " " and count > 0 and text.count(f"{delimiter} ") >= 0.9 * count


# ---- header -------------------------------------------------------------------------------------------------------


def _has_header(rows: Sequence[Sequence[str]], missing: Sequence[str]) -> bool:
    """Whether the first row has names: a vote of the columns.

    A word above numbers or dates is a name. A number, a missing cell, or a word that occurs below is none.
    """
    if len(rows) == 1:
        return not any(is_number(as_texts(rows[0])))
    votes = 0
    for first, *below in zip(*(row for row in rows if len(row) == len(rows[0]))):
        votes += _vote(first.strip(), [cell.strip() for cell in below if cell.strip() not in missing], missing)
    return votes >= 0


def _vote(first: str, below: Sequence[str], missing: Sequence[str]) -> int:
    """2 or 1 if the first cell of a column is a name rather than a value, -1 or -2 if not, 0 if it says nothing."""
    if first == "" or not below:
        return 0
    texts = as_texts(below)
    if first in missing or bool(is_number(as_texts([first]))[0]):
        return -2 if bool(is_number(texts).all()) else -1
    if bool(is_number(texts).all()) or date_formats(texts.head(100)):
        return -2 if date_formats(as_texts([first])) else 2
    return -1 if first in below else 1 if len(set(below)) < len(below) else 0


def _names(cells: Sequence[str], path: Path) -> tuple[str, ...]:
    """The names of the columns: empty ones and repeated ones are changed, with a warning."""
    names: list[str] = []
    for i, cell in enumerate(cells):
        name = cell.strip() or f"column_{i + 1}"
        number = 2
        while name in names:
            name, number = f"{cell.strip() or f'column_{i + 1}'}_{number}", number + 1
        if name != cell.strip():
            what = f"column {i + 1} is called {cell.strip()!r}" if cell.strip() else f"column {i + 1} has no name"
            because = ", as another one is" if cell.strip() else ""
            warnings.warn(f"{path}: {what}{because}; it becomes {name}", stacklevel=4)
        names.append(name)
    return tuple(names)
