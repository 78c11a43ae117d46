"""Named sequences of characters in one block of memory, and strings."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usd3._internal.checks import require, require_type
from usd3.kinds.sequence.alphabet import Alphabet

__all__ = ["Records", "are_strings", "as_strings", "joined", "read_lines", "records_of", "strings_of"]


@dataclass(frozen=True)
class Records:
    """Named sequences, one after the other.

    Args:
        codes: (C,) the characters of all sequences by their numbers in Unicode, uint8 or uint32.
        starts: (N + 1,) where each sequence begins, and where the last one ends.
        names: one for each sequence; may be empty.
        labels: (N,) the number of the class of each sequence; None: there are no classes.
    """

    codes: NDArray[Any]
    starts: NDArray[np.int64]
    names: tuple[str, ...] = ()
    labels: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(N,) the number of characters of each sequence."""
        return np.diff(self.starts)

    def name(self, number: int) -> str:
        """The name of a sequence, at most 40 characters of it, or else its number, counted from 1."""
        name = self.names[number] if self.names else ""
        return (name if len(name) <= 40 else f"{name[:37]}...") or f"sequence {number + 1}"

    def name_at(self, place: int) -> str:
        """The name of the sequence that a place of `codes` belongs to."""
        return self.name(int(np.searchsorted(self.starts, place, side="right")) - 1)


def joined(parts: Sequence[Records]) -> Records:
    """The sequences of several parts, one after the other; the number of a part is the class of its sequences."""
    lengths = np.concatenate([part.lengths for part in parts])
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    has_names = all(part.names for part in parts)
    names = tuple(name for part in parts for name in part.names) if has_names else ()
    labels = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return Records(np.concatenate([part.codes for part in parts]), starts, names, labels)


def records_of(strings: Sequence[str], names: tuple[str, ...] = ()) -> Records:
    """The records of strings."""
    codes = np.frombuffer("".join(strings).encode("utf-32-le", "surrogatepass"), np.uint32)
    lengths = np.array([0, *map(len, strings)], np.int64)
    return Records(codes, np.cumsum(lengths), names)


def read_lines(path: Path, name: str, keeps_blanks: bool = False) -> Records:
    """The lines of a text in UTF-8 that are not empty, without names.

    Args:
        path: the file.
        name: what it is called in error messages.
        keeps_blanks: whether blanks around a line are letters of it.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: expected a text in UTF-8 ({error})") from None
    lines = [line.rstrip("\r") if keeps_blanks else line.strip() for line in lines]
    return records_of([line for line in lines if line])


def strings_of(tokens: NDArray[Any], alphabet: Alphabet, unknown: NDArray[np.bool_] | None) -> list[str]:
    """The strings of tokens (N, L), each up to its first category that is no letter; unknown letters are marked."""
    characters = np.array([ord(c) for c in alphabet.letters] + [0], np.uint32)
    ended = tokens >= len(alphabet.letters)
    lengths = np.where(ended.any(1), ended.argmax(1), tokens.shape[1]).tolist()
    codes = characters[np.where(ended, len(alphabet.letters), tokens)]
    if unknown is not None:
        codes = np.where(unknown, np.uint32(ord((alphabet.unknown or "_")[0])), codes)
    return [row[:n].tobytes().decode("utf-32-le", "surrogatepass") for row, n in zip(codes, lengths)]


def are_strings(objects: Any) -> bool:
    """Whether `objects` are a list, a tuple, an array or a Series of strings, at least one."""
    listed = _listed(objects)
    return bool(listed) and all(isinstance(one, str) for one in listed or ())


def as_strings(objects: Any, name: str) -> list[str]:
    """`objects` as a list of strings of one line each; an error calls them `name`."""
    listed = _listed(objects)
    require_type(listed is not None, name, objects, "a list of strings")
    strings: list[str] = listed or []
    for i, string in enumerate(strings):
        require_type(isinstance(string, str), f"{name}[{i}]", string, "a string")
        require("\n" not in string and "\r" not in string, f"{name}[{i}]", repr(string), "a string without line breaks")
    return strings


def _listed(objects: Any) -> list[Any] | None:
    """`objects` as a list; None: they are neither a list nor an array or a Series of objects."""
    if isinstance(objects, list | tuple):
        return list(objects)
    is_column = getattr(objects, "ndim", None) == 1 and hasattr(objects, "tolist")
    if is_column and getattr(getattr(objects, "dtype", None), "kind", "") in ("U", "O", "T"):
        return list(objects.tolist())
    return None
