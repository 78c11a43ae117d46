"""A text as a data set: windows at every place of its beginning to train on, and the windows of its end held out."""

import hashlib
import itertools
import math
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.messages import suggestion
from usd3._internal.progress import say
from usd3.kinds.dataset import Dataset, Windows, compact
from usd3.kinds.text.kind import Text
from usd3.kinds.text.options import TOKENIZERS
from usd3.kinds.text.sources import TextFile, TextSource
from usd3.kinds.text.tokenizers import MOST_JSON, Bytes, Characters, Pieces, Tokenizer, learnt_pieces
from usd3.kinds.token_files import as_tensor, map_bytes, token_dtype, token_file

if TYPE_CHECKING:
    from usd3.kinds.options import DataConfig

__all__ = ["load_text"]

_MOST_IN_MEMORY = 2**26  # bytes of a file; a larger one is memory-mapped
_MOST_CHARACTERS = 1024  # of an alphabet that nobody asked for
_LEARNT_FROM = 2**27  # characters that pieces of words are learnt from, evenly spread over a longer text
_TRIED = 10_000  # characters that must come back as they were


def load_text(source: TextSource, data: "DataConfig", kind: Text | None = None) -> Dataset:
    """The windows of a text.

    The end of the text, `data.test_fraction` of its characters, is held out: windows side by side, in a random order,
    so that the first ones stand for all. Large files stay on the disk: plain
    ASCII, and bytes, where they are; others as tokens in the cache.

    Args:
        source: the text.
        data: the options: the length of a window, the held-out fraction, and the section `text`.
        kind: read the text as a model of this kind does, with its tokenizer; None: by the options.
    """
    if data.text.tokenizer == "bytes" and data.text.encoding is None and isinstance(source, TextFile):
        parts = _raw_parts(source.path, data)
        kind = Text(256, (data.length,), "bytes") if kind is None else kind
    else:
        length = source.survey.length
        require(length >= 2 * data.length, source.name, f"{length:,} characters", _enough(data.length))
        if source.survey.line_ends:
            say(f"{source.name}: the line ends {source.survey.line_ends} are read as '\\n'")
        split = _cut(length, data)
        kind = _kind_for(source, split, data) if kind is None else _as_trained(kind, source)
        parts = _parts(source, split, kind)
    for name, part in (("to train on", parts.train), ("held out", parts.test)):
        count = f"{len(part):,} {kind.tokens_are} {name}"
        require(len(part) >= data.length, source.name, count, f"at least {data.length}: {_advice(data.length)}")
    train = Windows(parts.train, data.length, table=parts.table)
    test = Windows(parts.test, data.length, data.length, parts.table, seed=data.seed)
    return Dataset(Path(source.name).stem, kind.num_classes, train, test, kind=kind)


@dataclass(frozen=True)
class _Parts:
    """The stream to train on, the held-out one, and the token of each of their integers; None: they are tokens."""

    train: Tensor
    test: Tensor
    table: Tensor | None = None


def _enough(length: int) -> str:
    return f"at least {2 * length:,}, two windows: {_advice(length)}"


def _advice(length: int) -> str:
    return f"a longer text, or --data.length below {length}"


def _cut(length: int, data: "DataConfig") -> int:
    """Where the held-out part begins; it has room for one window."""
    return min(int(length * (1 - data.test_fraction)), length - data.length)


def _raw_parts(path: Path, data: "DataConfig") -> _Parts:
    """The bytes of a file as they are."""
    size = os.path.getsize(path)
    require(size >= 2 * data.length, str(path), f"{size:,} bytes", _enough(data.length))
    stream = map_bytes(path) if size > _MOST_IN_MEMORY else torch.from_numpy(np.fromfile(path, dtype=np.uint8))
    cut, every_byte = _cut(size, data), torch.arange(256, dtype=torch.uint8)  # so that nobody looks which ones occur
    return _Parts(stream[:cut], stream[cut:], every_byte)


# ---- the kind: which tokens ---------------------------------------------------------------------------------------


def _kind_for(source: TextSource, split: int, data: "DataConfig") -> Text:
    """The kind that the options ask for."""
    chosen, shape = _chosen(source, data.text.tokenizer), (data.length,)
    if chosen == "characters":
        alphabet = source.survey.alphabet
        require(len(alphabet) >= 2, source.name, f"one character, {alphabet!r}", "a text")
        return Text(len(alphabet), shape, "characters", alphabet)
    if chosen == "bytes":
        return Text(256, shape, "bytes")
    if chosen == "bpe":
        say(f"learning pieces of words from {source.name}")
        every = math.ceil(split / _LEARNT_FROM)
        content = learnt_pieces(itertools.islice(_between(source, 0, split), 0, None, every), data.text.vocabulary)
    else:
        content = _tokenizer_json(chosen)
    tokenizer = Pieces(content)
    tried = "".join(_between(source, 0, min(_TRIED, split)))
    tokens = tokenizer.encode(tried)
    if tokenizer.decode(tokens.tolist()) != tried:
        warnings.warn(f"{chosen}: this tokenizer changes the text, in spaces, case or unknown characters", stacklevel=2)
    rate = round(len(tried) / max(1, len(tokens)), 2)
    return Text(tokenizer.num_classes, shape, "pieces", pieces=content, characters_per_token=rate)


def _chosen(source: TextSource, name: str | None) -> str:
    """The tokenizer that the options name, or the one that suits the text."""
    if name is not None:
        return name
    count = len(source.survey.alphabet)
    if count <= _MOST_CHARACTERS:
        return "characters"
    say(f"{source.name} has {count:,} different characters, so its bytes are learnt; see --data.text.tokenizer")
    return "bytes"


def _tokenizer_json(name: str) -> str:
    path = Path(name)
    if not path.is_file():
        names = ", ".join(TOKENIZERS)
        hint = suggestion(name, TOKENIZERS)
        raise ValueError(f"data.text.tokenizer = {name}: expected {names} or a tokenizer.json that exists{hint}")
    size = path.stat().st_size
    require(size <= MOST_JSON, f"bytes of {name}", f"{size:,}", f"at most {MOST_JSON:,} for a tokenizer")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"data.text.tokenizer = {name}: expected a tokenizer.json, but it is no text") from None


def _as_trained(kind: Text, source: TextSource) -> Text:
    """The kind of a model, if it can read the text."""
    if kind.tokenizer == "characters":
        other = "".join(sorted(set(source.survey.alphabet) - set(kind.alphabet)))
        known = f"the {len(kind.alphabet)} that the model has learnt"
        require(not other, f"characters of {source.name}", repr(other), known)
    return kind


# ---- the streams --------------------------------------------------------------------------------------------------


def _parts(source: TextSource, split: int, kind: Text) -> _Parts:
    """The tokens of a text: in memory, in the file itself, or in files of tokens."""
    tokenizer, length = kind.codec, source.survey.length
    ends = ((0, split), (split, length))
    if not isinstance(source, TextFile) or source.path.stat().st_size <= _MOST_IN_MEMORY:
        train, test = (_in_memory(tokenizer, _between(source, *end)) for end in ends)
        return _Parts(train, test)
    if source.survey.is_plain and isinstance(tokenizer, Characters | Bytes):
        stream = map_bytes(source.path)
        return _Parts(stream[:split], stream[split:], _ascii_table(tokenizer))
    about = {"tokenizer": _digest(kind), "encoding": source.encoding}
    train, test = (_in_file(source, tokenizer, about, *end) for end in ends)
    return _Parts(train, test)


def _in_memory(tokenizer: Tokenizer, chunks: Iterator[str]) -> Tensor:
    dtype = token_dtype(tokenizer.num_classes)
    parts = [tokens.astype(dtype) for tokens in tokenizer.encode_all(chunks)]
    return torch.from_numpy(np.concatenate([np.zeros(0, dtype), *parts]))


def _in_file(source: TextFile, tokenizer: Tokenizer, about: dict[str, Any], first: int, last: int) -> Tensor:
    def chunks() -> Iterator[NDArray[Any]]:
        return tokenizer.encode_all(_between(source, first, last))

    options = {**about, "part": [first, last]}
    count = last - first if isinstance(tokenizer, Characters) else None
    return as_tensor(token_file(source.path, options, tokenizer.num_classes, chunks, count=count))


def _ascii_table(tokenizer: Tokenizer) -> Tensor | None:
    """(256,) the token of each byte; bytes that the text does not have get 0."""
    if not isinstance(tokenizer, Characters):
        return None
    known = tokenizer.table[:256]
    table = np.zeros(256, dtype=np.int64)
    table[: len(known)] = np.maximum(known, 0)
    return compact(torch.from_numpy(table), tokenizer.num_classes)


def _digest(kind: Text) -> str:
    return hashlib.sha256("\0".join((kind.tokenizer, kind.alphabet, kind.pieces)).encode()).hexdigest()[:16]


def _between(source: TextSource, first: int, last: int) -> Iterator[str]:
    """The characters first..last-1 of a text, in parts."""
    position = 0
    for chunk in source.chunks():
        part = chunk[max(0, first - position) : max(0, last - position)]
        if part:
            yield part
        position += len(chunk)
        if position >= last:
            return
