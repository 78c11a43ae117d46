"""A table read into categories: one pass over the rows for its columns, one for its tokens.

No file is in memory as a whole. The tokens of a large table are in a file of the cache, mapped into memory.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from usd3._internal.checks import require
from usd3._internal.files import cache_folder, write_whole
from usd3._internal.yaml_json import read_json
from usd3.kinds.dataset import Dataset, Rows, Sequences
from usd3.kinds.mapped import Facts, MappedRows
from usd3.kinds.options import DataConfig
from usd3.kinds.splits import Part, split_rows
from usd3.kinds.table.columns import Cells, Column
from usd3.kinds.table.detection import columns_of
from usd3.kinds.table.dtypes import normalised
from usd3.kinds.table.files import FrameSource, Source, source_of
from usd3.kinds.table.form import ENDINGS
from usd3.kinds.table.frames import require_pandas
from usd3.kinds.table.summary import summarised
from usd3.kinds.token_files import token_file

if TYPE_CHECKING:
    from usd3.kinds.table.kind import Table

__all__ = ["TableDataset", "read_frame", "read_table", "token_chunks"]

_LARGE = 2**28  # bytes of a file, or of tokens: the tokens of a larger table stay in a file
_READER_VERSION = 3  # increase it when the reader makes other columns or tokens of a file


@dataclass(frozen=True, eq=False)
class TableDataset(Dataset):
    """The tokens of a table, and where its rows come from.

    Args:
        sources: where the rows of training come from, and the held-out rows.
        parts: which rows of the sources these are; None: all.
    """

    sources: tuple[Source, Source] | None = None
    parts: tuple[Part | None, Part | None] = (None, None)

    def rows(self, test: bool, chosen: NDArray[np.int64]) -> Any:
        """Rows of training or held-out rows, by their numbers (n,) in the split, as the kind's DataFrame.

        These are the rows of the file with their own numbers; where it is unknown, numbers are drawn within bins.
        """
        index = torch.from_numpy(chosen)
        if self.sources is None:
            return self.kind.objects(self.decoded((self.test if test else self.train).take(index)[0]))
        part = self.parts[test]
        numbers = chosen if part is None else part.rows(index).numpy()
        return _rows(self.sources[test], self.kind, numbers)  # type: ignore[arg-type]


def _rows(source: Source, kind: "Table", chosen: NDArray[np.int64]) -> Any:
    """The rows of a source with these numbers, in this order."""
    pd = require_pandas()
    order = np.argsort(chosen, kind="stable")
    wanted, parts, first = chosen[order], [], 0
    for chunk in source.chunks():
        inside = wanted[(wanted >= first) & (wanted < first + len(chunk))]
        if len(inside):
            parts.append(kind.typed(chunk.iloc[inside - first].reset_index(drop=True)))
        first += len(chunk)
    return pd.concat(parts, ignore_index=True).iloc[np.argsort(order)].reset_index(drop=True)


def read_table(kind: "type[Table]", data: DataConfig) -> TableDataset:
    """The table in a file."""
    path = Path(data.file(f"a {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]} file"))
    source = source_of(str(path), data.table)
    is_small = path.stat().st_size <= _LARGE
    if is_small:
        table, rows = _columns(kind, source, data)
    else:
        table, rows = _remembered(kind, path, data, lambda: _columns(kind, source, data))
    if is_small and rows * len(table.schema) * table.token_dtype.itemsize <= _LARGE:
        return _dataset(table, source, data, _in_memory(table, source, rows))
    options = {"table": asdict(data.table), "reader": _READER_VERSION}
    tokens = token_file(
        path, options, table.num_classes, lambda: token_chunks(table, source), (len(table.schema),), rows
    )
    return _dataset(table, source, data, tokens)


def read_frame(kind: "type[Table]", frame: Any, data: DataConfig) -> TableDataset:
    """The table in a DataFrame."""
    source = FrameSource(frame, data.table.missing or ())
    table, rows = _columns(kind, source, data)
    return _dataset(table, source, data, _in_memory(table, source, rows))


def _columns(kind: "type[Table]", source: Source, data: DataConfig) -> tuple["Table", int]:
    """The columns of a table, and the number of its rows."""
    summary = summarised(source)
    require(summary.rows >= 2, f"rows of {source.name}", summary.rows, "at least 2, one to train on and one held out")
    return kind.of(columns_of(summary, data.table, source.is_text), source.form), summary.rows


def _remembered(
    kind: "type[Table]", path: Path, data: DataConfig, read: Callable[[], tuple["Table", int]]
) -> tuple["Table", int]:
    """What `read` returns, from the cache if the same file was read before."""
    state = path.stat()
    about = [str(path.resolve()), state.st_size, state.st_mtime_ns, asdict(data.table), _READER_VERSION]
    key = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]
    file = cache_folder() / "tables" / f"{path.stem[:40]}-{key}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):  # it is made again
        stored = read_json(file)
        return kind(stored["num_classes"], stored["shape"], stored["schema"], stored["form"]), int(stored["rows"])
    table, rows = read()
    fields = {key: value for key, value in table.as_dict().items() if key != "name"}
    with suppress(OSError):  # without a cache the next run reads the file again
        text = json.dumps({"num_classes": table.num_classes, "shape": table.shape, "rows": rows, **fields})
        write_whole(file, text)
    return table, rows


def _in_memory(table: "Table", source: Source, rows: int) -> NDArray[Any]:
    """The tokens (rows, D) of a table."""
    tokens, first = np.empty((rows, len(table.schema)), dtype=table.token_dtype), 0
    for chunk in token_chunks(table, source):
        tokens[first : first + len(chunk)] = chunk
        first += len(chunk)
    return tokens


def _dataset(table: "Table", source: Source, data: DataConfig, tokens: NDArray[Any]) -> TableDataset:
    """The splits of a table with these tokens, in memory or in a file."""
    name = source.name.rpartition(".")[0] or source.name
    if data.table.test_path is not None:
        held_out, rows = _held_out(table, source_of(data.table.test_path, data.table, source.form.names))
        test = Sequences(torch.from_numpy(held_out))
        return TableDataset(name, table.num_classes, _split(table, tokens, None), test, None, table, (source, rows))
    parts = split_rows(len(tokens), data.test_fraction, data.seed)
    train, rest = (_split(table, tokens, part) for part in parts)
    return TableDataset(name, table.num_classes, train, rest, None, table, (source, source), parts)


def _split(table: "Table", tokens: NDArray[Any], part: Part | None) -> Rows:
    """A part of the rows, in memory, or in the file in which the tokens are."""
    if isinstance(tokens, np.memmap):
        return MappedRows(tokens, table.num_classes, Facts(0, table.num_classes - 1, False), part=part)
    chosen = torch.from_numpy(tokens)
    return Sequences(chosen if part is None else chosen[part.rows(torch.arange(len(part)))])


def token_chunks(table: "Table", source: Source) -> Iterator[NDArray[Any]]:
    """The tokens (n, D) of some rows of a table at a time."""
    for chunk in source.chunks():
        yield np.stack([_tokens_of(column, chunk, table) for column in table.schema], axis=1)


def _tokens_of(column: Column, chunk: Any, table: "Table") -> NDArray[Any]:
    cells = Cells(normalised(chunk[column.name])[1], table.form.missing, "the data")
    return column.encode_data(cells).astype(table.token_dtype)


def _held_out(table: "Table", source: Source) -> tuple[NDArray[Any], Source]:
    """The tokens of a file of held-out rows, and the rows; those that training cannot have are left out."""
    pd = require_pandas()
    parts, frames, left_out, reason = [], [], 0, ""
    for chunk in source.chunks():
        absent = [column.name for column in table.schema if column.name not in chunk.columns]
        require(not absent, f"columns of {source.name}", ", ".join(chunk.columns), f"also {', '.join(absent)}")
        known = np.ones(len(chunk), dtype=bool)
        for column in table.schema:
            bad, why = column.impossible(Cells(normalised(chunk[column.name])[1], table.form.missing, source.name))
            known &= ~bad
            reason = reason or why
        left_out += int((~known).sum())
        frames.append(chunk[known].reset_index(drop=True))
        if known.any():
            parts.append(np.stack([_tokens_of(column, frames[-1], table) for column in table.schema], axis=1))
    require(len(parts) > 0, f"rows of {source.name}", "none that training could have", f"such rows ({reason})")
    if left_out:
        what = f"{source.name}: {left_out:,} rows are left out, as training has no such cells"
        warnings.warn(f"{what}: {reason}", stacklevel=4)
    return np.concatenate(parts), FrameSource(pd.concat(frames, ignore_index=True), table.form.missing, source.name)
