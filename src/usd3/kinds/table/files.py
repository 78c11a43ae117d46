"""Tables as chunks of rows, from files of text, Parquet files and DataFrames; and written into files."""

import csv
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from usd3._internal.checks import require
from usd3._internal.files import written_whole
from usd3.kinds.table.form import ENDINGS, TableForm
from usd3.kinds.table.frames import require_pandas, require_pyarrow
from usd3.kinds.table.options import TableOptions
from usd3.kinds.table.sniff import form_of_file, is_wide, require_no_nul

__all__ = ["FrameSource", "ParquetSource", "Source", "TextSource", "source_of", "write_text"]

_CHUNK = 2**16  # rows
_CHUNK_BYTES = 2**24  # of text
_BLOCK = 2**21
_LONGEST_CELL = 2**20


class Source(Protocol):
    """Where the rows of a table come from."""

    name: str
    form: TableForm
    is_text: bool

    def chunks(self) -> Iterator[Any]:
        """DataFrames of some rows each, with the columns of `form.names`."""


def source_of(path: str, options: TableOptions, named: Sequence[str] | None = None, is_prompt: bool = False) -> Source:
    """The table in a file, by its ending.

    Args:
        path: of the file.
        options: what the user says.
        named: names of columns that it may have.
        is_prompt: whether cells are to be drawn: an empty line of a table of one column is an empty cell then.
    """
    file = Path(path)
    if not file.is_file():
        seen = "a folder" if file.is_dir() else "no such file"
        raise FileNotFoundError(f"{path}: {seen}; expected a table that ends with {', '.join(ENDINGS)}")
    if file.suffix.lower() == ".parquet":
        return ParquetSource(file, options)
    return TextSource(file, options, named, is_prompt)


class TextSource:
    """A file of text with one row a line."""

    is_text = True

    def __init__(self, path: Path, options: TableOptions, named: Sequence[str] | None = None, is_prompt: bool = False):
        require_pandas(f"{path}")
        self.is_prompt = is_prompt
        self.path, self.name = path, path.name
        self.form = form_of_file(path, options, named)
        _require_same_width(path, self.form)

    def chunks(self) -> Iterator[Any]:
        """DataFrames of texts."""
        pd = require_pandas()
        form = self.form
        rows = _rows_at_once(self.path)
        try:
            with pd.read_csv(
                self.path,
                sep=form.delimiter,
                header=0 if form.header else None,
                names=list(form.names),
                index_col=False,
                dtype=str,
                na_filter=False,
                skipinitialspace=form.padded,
                skip_blank_lines=not (self.is_prompt and len(form.names) == 1),
                encoding=form.encoding,
                chunksize=rows,
            ) as reader:
                for chunk in reader:
                    yield chunk.apply(lambda column: column.str.strip()) if form.padded else chunk
        except UnicodeError:
            raise ValueError(f"data.table.encoding = {form.encoding}: expected the encoding of {self.path}") from None
        except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
            reason = re.sub(r"^Error tokenizing data\. C error: ", "", " ".join(str(error).split()))
            raise ValueError(f"{self.path}: expected lines of {len(form.names)} cells ({reason})") from None


def _rows_at_once(path: Path) -> int:
    """Rows of a chunk: fewer where lines are long."""
    with path.open("rb") as file:
        start = file.read(2**16)
    return int(max(16, min(_CHUNK, _CHUNK_BYTES // max(1, len(start) // max(1, start.count(b"\n"))))))


class ParquetSource:
    """A Parquet file."""

    is_text = False

    def __init__(self, path: Path, options: TableOptions):
        parquet = require_pyarrow(f"{path}")
        self.path, self.name = path, path.name
        try:
            with parquet.ParquetFile(path) as file:
                schema, rows = file.schema_arrow, file.metadata.num_rows
                self._integers = _integers_with_nulls(schema, file.metadata)
        except (OSError, ValueError) as error:
            reason = str(error).partition(". ")[0]
            raise ValueError(f"{path}: expected a Parquet file ({reason})") from None
        require(rows > 0, str(path), "no rows", "at least 2")
        index = re.compile("__index_level_[0-9]+__")
        self.columns = [name for name in schema.names if not index.fullmatch(name)]
        self.form = TableForm(ending=".parquet", missing=tuple(options.missing or ()), names=tuple(self.columns))
        require(len(set(self.columns)) == len(self.columns), str(path), "two columns of one name", "different names")

    def chunks(self) -> Iterator[Any]:
        """DataFrames with the dtypes of the file; a named index is a column, and integers with nulls stay integers."""
        parquet, pa = require_pyarrow(), __import__("pyarrow")
        with parquet.ParquetFile(self.path) as file:
            for batch in file.iter_batches(_CHUNK, columns=self.columns):
                table = _without_index(pa.Table.from_batches([batch]))
                frame = table.to_pandas().set_axis(self.columns, axis=1)
                for name, dtype in self._integers.items():
                    frame[name] = table.column(name).to_pandas(types_mapper=lambda _, dtype=dtype: dtype)
                yield frame


def _without_index(table: Any) -> Any:
    """A table of pyarrow whose columns all become columns of a DataFrame, and none its index."""
    metadata = dict(table.schema.metadata or {})
    if b"pandas" in metadata:
        metadata[b"pandas"] = json.dumps(json.loads(metadata[b"pandas"]) | {"index_columns": []}).encode()
    return table.replace_schema_metadata(metadata)


def _integers_with_nulls(schema: Any, metadata: Any) -> dict[str, Any]:
    """The columns of integers of which some are null, with the dtype of pandas that holds both."""
    pd, pa = require_pandas(), __import__("pyarrow")
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    parts = [group.column(i) for group in groups for i in range(group.num_columns)]
    found = {part.path_in_schema for part in parts if _may_have_nulls(part.statistics)}
    integers = [field for field in schema if pa.types.is_integer(field.type) and field.name in found]
    names = {field.name: str(field.type).replace("uint", "UInt").replace("int", "Int") for field in integers}
    return {name: pd.api.types.pandas_dtype(dtype) for name, dtype in names.items()}


def _may_have_nulls(statistics: Any) -> bool:
    return statistics is None or not statistics.has_null_count or statistics.null_count > 0


class FrameSource:
    """A DataFrame in memory."""

    is_text = False

    def __init__(self, frame: Any, missing: Sequence[str] = (), name: str = "table"):
        require(len(frame.columns) > 0, "data", "a DataFrame without columns", "at least one column")
        require(len(frame) > 0, "data", "a DataFrame without rows", "at least 2 rows")
        labels = list(frame.columns)
        names = [str(label) for label in labels]
        require(len(set(names)) == len(names), "columns of the DataFrame", names, "different names")
        self.frame = frame.set_axis(names, axis=1)
        self.name = name
        integers = all(isinstance(label, int | np.integer) for label in labels)
        self.form = TableForm(missing=tuple(missing), names=tuple(names), has_integer_names=integers)

    def chunks(self) -> Iterator[Any]:
        """Some rows of the DataFrame at a time."""
        for first in range(0, len(self.frame), _CHUNK):
            yield self.frame.iloc[first : first + _CHUNK].reset_index(drop=True)


# ---- lines of different length ------------------------------------------------------------------------------------


def _require_same_width(path: Path, form: TableForm) -> None:
    """Raise an error if a line has more or fewer cells than the first: counted fast, and exactly where in doubt."""
    if is_wide(form.encoding) or not (form.delimiter.isascii() and _has_same_width(path, form)):
        _require_width_of_lines(path, form)


def _has_same_width(path: Path, form: TableForm) -> bool:
    """Whether all lines surely have the same number of delimiters outside of quotes."""
    left = b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            require_no_nul(path, block, file.tell() - len(block))
            lines = np.frombuffer(left + block, np.uint8)
            outside = np.cumsum(lines == ord('"'), dtype=np.int32) % 2 == 0 if b'"' in left + block else True
            breaks = np.flatnonzero((lines == ord("\n")) & outside)
            if len(breaks) == 0:
                return False  # a very long line, or a quote that does not end
            cells = np.flatnonzero((lines == ord(form.delimiter)) & outside)
            if not _have_width(breaks, np.searchsorted(cells, breaks), form):
                return False
            left = lines[breaks[-1] + 1 :].tobytes()
    return left == b"" or (b'"' not in left and left.count(form.delimiter.encode()) == len(form.names) - 1)


def _have_width(breaks: NDArray[np.int64], cells: NDArray[np.int64], form: TableForm) -> bool:
    """Whether all lines that are not empty have the same number of delimiters.

    Args:
        breaks: (n,) where each line ends.
        cells: (n,) the number of delimiters up to there.
        form: how many columns there are.
    """
    empty = np.diff(breaks, prepend=-1) - 1 <= (1 if form.newline == "\r\n" else 0)
    return bool((np.diff(cells, prepend=0)[~empty] == len(form.names) - 1).all())


def _require_width_of_lines(path: Path, form: TableForm) -> None:
    """As `_require_same_width`, line by line."""
    csv.field_size_limit(_LONGEST_CELL)
    width = len(form.names)
    with path.open(encoding=form.encoding, newline="") as file:
        reader = csv.reader(
            _lines_of_text(file, path), delimiter=form.delimiter, skipinitialspace=form.padded, strict=True
        )
        line = 1
        try:
            for row in reader:
                seen = f"{len(row)} {'cell' if len(row) == 1 else 'cells'}"
                require(len(row) in (0, width), f"line {line} of {path}", seen, f"{width}, as the first line has")
                line = reader.line_num + 1
        except csv.Error as error:
            raise ValueError(f"line {line} of {path}: expected cells with a closing quote ({error})") from None
        except UnicodeError:
            raise ValueError(f"data.table.encoding = {form.encoding}: expected the encoding of {path}") from None


def _lines_of_text(file: Iterable[str], path: Path) -> Iterator[str]:
    """The lines of a file; one with a NUL character raises an error."""
    for number, line in enumerate(file, start=1):
        require("\0" not in line, f"line {number} of {path}", "a NUL character", "text")
        yield line


# ---- writing ------------------------------------------------------------------------------------------------------


def write_text(columns: Mapping[str, NDArray[Any]], path: Path | str, form: TableForm) -> None:
    """Write columns of texts into a file of text in the form of the training file; its ending chooses the delimiter."""
    delimiter = form.delimiter_for(Path(path).suffix.lower())
    between = delimiter + " " * form.padded
    special = re.compile(f'["\r\n{re.escape(delimiter)}]')
    lines = list(zip(*(_quoted(cells, special, len(columns) == 1) for cells in columns.values())))
    if form.header:
        lines.insert(0, tuple(_quoted(np.array(list(columns), dtype=object), special, False)))
    encoding = _encoding(lines, path, form)
    with written_whole(path) as part, open(part, "w", encoding=encoding, newline="") as file:
        for first in range(0, len(lines), _CHUNK):
            file.writelines(f"{between.join(line)}{form.newline}" for line in lines[first : first + _CHUNK])


def _encoding(lines: Sequence[tuple[str, ...]], path: Path | str, form: TableForm) -> str:
    """The encoding of the training file; UTF-8, with a warning, if it lacks a letter, which a prompt may have."""
    try:
        for line in lines:
            "".join(line).encode(form.encoding)
    except UnicodeEncodeError as error:
        letter = error.object[error.start]
        what = f"{path} is written in UTF-8, not in the {form.encoding} of the training file"
        warnings.warn(f"{what}, which has no {letter!r}", stacklevel=4)
        return "utf-8"
    return form.encoding


def _quoted(cells: NDArray[Any], special: "re.Pattern[str]", alone: bool) -> list[str]:
    """The cells with quotes around those that need them. A line with one empty cell would be an empty line."""
    found: dict[str, str] = {}
    for cell in set(cells.tolist()):
        needs = special.search(cell) is not None or cell != cell.strip() or (alone and cell == "")
        found[cell] = '"{}"'.format(cell.replace('"', '""')) if needs else cell
    return [found[cell] for cell in cells.tolist()]


def write_parquet(frame: Any, path: Path | str) -> None:
    """Write a DataFrame into a Parquet file."""
    require_pyarrow()
    with written_whole(path) as part:
        frame.to_parquet(part, index=False)
