"""From named sequences of characters to tokens: categories, unknown letters, ends, pieces, splits."""

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from usd3._internal.checks import require
from usd3.kinds.dataset import Sequences
from usd3.kinds.sequence.alphabet import NO_LETTER, UNKNOWN, Alphabet, alphabet_of, are_unknown, counted, form_of
from usd3.kinds.sequence.options import SequenceOptions
from usd3.kinds.sequence.records import Records
from usd3.kinds.splits import grouped, is_test_group

__all__ = ["LONGEST", "Encoded", "alphabet_for", "encoded", "prompt_rows", "split"]

LONGEST = 4096  # letters of a sequence that is learnt whole unless the user says so
_AT_ONCE = 2**22  # elements
_MOST_ELEMENTS, _MOST_FILL = 2**31, 4  # of all tokens, where they are more than so many times the letters
_ENOUGH = "at least 2, one to train on and one held out"


@dataclass(frozen=True)
class Encoded:
    """Sequences as tokens of one length.

    Args:
        tokens: (N, L) categories; that of unknown letters is 0.
        unknown: (N, L) True where a letter is not known.
        names: one for each row; may be empty.
        origins: (N,) the number of the sequence that a row is, or is a piece of.
        overlaps: (N,) True where a piece overlaps the one before it.
        has_ends: whether sequences differ in length; shorter ones are filled with a category of their own, the last.
        labels: (N,) the number of the class of each row; None: there are no classes.
    """

    tokens: NDArray[Any]
    unknown: NDArray[np.bool_]
    names: tuple[str, ...]
    origins: NDArray[np.int64]
    overlaps: NDArray[np.bool_]
    has_ends: bool
    labels: NDArray[np.int64] | None = None


def alphabet_for(records: Records, options: SequenceOptions, whole: bool, name: str) -> Alphabet:
    """The alphabet that the options name, or that the sequences have. Warns of letters that are changed or unknown.

    Args:
        records: the sequences.
        options: how they are read.
        whole: see `alphabet_of`.
        name: what the sequences are called in messages.
    """
    counts = counted(records.codes)
    require(len(counts) > 0, f"sequences of {name}", 0, _ENOUGH)
    given = options.alphabet
    if whole and given is None:  # else N would be an amino acid
        require(not are_unknown(counts), f"sequences of {name} with a known letter", 0, _ENOUGH)
    alphabet = alphabet_of(counts, whole) if given is None else Alphabet(given, form_of(given))
    table = alphabet.table()
    for character in counts:
        if table[ord(character)] == NO_LETTER:
            place = int((records.codes == ord(character)).argmax())
            option = f"{alphabet.expected()} (data.sequence.alphabet)"
            require(False, f"letter of {records.name_at(place)} of {name}", repr(character), option)
    _warn_changed(counts, alphabet, name)
    unknown = {c: n for c, n in counts.items() if table[ord(c)] == UNKNOWN}
    if unknown:
        shown = ", ".join(f"{n:,} {c}" for c, n in Counter(unknown).most_common(4))
        share = sum(unknown.values()) / sum(counts.values())
        warnings.warn(f"{name}: {shown} ({share:.2%} of the letters) are unknown, and not learnt", stacklevel=3)
    return alphabet


def _warn_changed(counts: dict[str, int], alphabet: Alphabet, name: str) -> None:
    """Warn of small letters that are read as capital ones, and of U where T is meant."""
    if alphabet.has_cases:
        return
    small = sum(n for c, n in counts.items() if c.islower() and c not in alphabet.letters)
    if small:
        many = f"{small:,} small letters are read as capital ones"
        warnings.warn(f"{name}: {many if small > 1 else '1 small letter is read as a capital one'}", stacklevel=4)
    for form, read, as_letter in (("dna", "U", "T"), ("rna", "T", "U")):
        number = counts.get(read, 0) + counts.get(read.lower(), 0)
        if alphabet.form == form and read not in alphabet.letters and number:
            what = f"1 letter {read} is" if number == 1 else f"{number:,} letters {read} are"
            warnings.warn(f"{name}: {what} read as {as_letter}", stacklevel=4)


def encoded(records: Records, alphabet: Alphabet, options: SequenceOptions, name: str) -> Encoded:
    """The sequences as tokens, cut into pieces if the options say so. Sequences without a known letter are left out."""
    longest = int(records.lengths.max())
    if options.length is None:
        which = f"data.sequence.length, such as 1024, which cuts longer ones into pieces (up to {LONGEST:,} need none)"
        require(longest <= LONGEST, f"longest sequence of {name}", f"{longest:,} letters", which)
    starts, lengths, origins, overlaps = _pieces(records, options.length)
    length = int(lengths.max())
    _require_dense(len(starts), length, int(lengths.sum()), name)
    if options.length is None:
        _warn_sparse(lengths, name)
    names = _piece_names(records, starts, lengths, origins)
    tokens, unknown = _rows(records, starts, lengths, length, alphabet)
    if unknown.any():
        known = unknown.sum(1) < lengths
        require(bool(known.any()), f"sequences of {name} with a known letter", 0, _ENOUGH)
        if lost := int((~known).sum()):
            number, verb = ("1 sequence", "is") if lost == 1 else (f"{lost:,} sequences", "are")
            warnings.warn(f"{name}: {number} without a known letter {verb} left out", stacklevel=2)
            tokens, unknown, lengths = tokens[known], unknown[known], lengths[known]
            origins, overlaps = origins[known], overlaps[known]
            names = tuple(n for n, keep in zip(names, known) if keep)
    labels = None if records.labels is None else records.labels[origins]
    return Encoded(tokens, unknown, names, origins, overlaps, bool((lengths < length).any()), labels)


def _rows(
    records: Records, starts: NDArray[np.int64], lengths: NDArray[np.int64], length: int, alphabet: Alphabet
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Tokens (N, L) of the pieces that begin at `starts`, with the end category in what is left; and which are unknown.

    Args:
        records: the sequences.
        starts: (N,) where the pieces begin in `records.codes`.
        lengths: (N,) their lengths.
        length: L.
        alphabet: all characters of `records` are in its table.
    """
    end = len(alphabet.letters)
    tokens = np.full((len(starts), length), end, np.uint8 if end <= 255 else np.int32)
    unknown = np.zeros(tokens.shape, bool)
    table, position = alphabet.table(), np.arange(length)
    for first in range(0, len(starts), rows := max(1, _AT_ONCE // length)):
        part = slice(first, first + rows)
        inside = position < lengths[part, None]
        categories = table[records.codes[(starts[part, None] + position)[inside]]]
        unknown[part][inside] = categories == UNKNOWN
        tokens[part][inside] = np.maximum(categories, 0)
    return tokens, unknown


def prompt_rows(
    records: Records, alphabet: Alphabet, length: int, has_ends: bool
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Tokens (N, L) of prompts, and a mask (N, L) that is False where there is a hole; see `LetterSequence.tokens`.

    Args:
        records: the prompts.
        alphabet: their letters.
        length: L.
        has_ends: whether they may be shorter.
    """
    bad = alphabet.table()[records.codes] == NO_LETTER
    if bad.any():
        place = int(bad.argmax())
        seen = repr(chr(records.codes[place]))
        require(False, f"letter of {records.name_at(place)}", seen, alphabet.expected())
    lengths = records.lengths
    wrong = (lengths > length) | ((lengths < length) & (not has_ends))
    if wrong.any():
        number = int(wrong.argmax())
        hole = f", with {alphabet.unknown[0]} for each that is to be drawn" if alphabet.unknown else ""
        expected = f"{'at most ' * has_ends}{length} letters, as the model has{hole}"
        require(False, f"length of {records.name(number)}", int(lengths[number]), expected)
    tokens, unknown = _rows(records, records.starts[:-1], lengths, length, alphabet)
    is_open = (np.arange(length) >= lengths[:, None]) & ~unknown.any(1, keepdims=True)
    return tokens, ~unknown & ~is_open


def _pieces(
    records: Records, length: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Where each piece begins, its length, the number of its sequence, and whether it overlaps the one before."""
    begins, lengths = records.starts[:-1], records.lengths
    if length is None or lengths.max() <= length:
        return begins, lengths, np.arange(len(records)), np.zeros(len(records), bool)
    counts = -(-lengths // length)
    origins = np.repeat(np.arange(len(records)), counts)
    number = np.arange(len(origins)) - np.repeat(np.cumsum(counts) - counts, counts)  # of a piece in its sequence
    last = np.maximum(lengths - length, 0)[origins]
    offsets = np.minimum(number * length, last)
    overlaps = (number > 0) & (number * length > last)
    return begins[origins] + offsets, np.minimum(lengths[origins], length), origins, overlaps


def _piece_names(
    records: Records, starts: NDArray[np.int64], lengths: NDArray[np.int64], origins: NDArray[np.int64]
) -> tuple[str, ...]:
    """The names of the sequences; a piece also has its first and last letter, counted from 1, as in chr1:1-1024."""
    if not records.names or len(starts) == len(records):
        return records.names
    first = (starts - records.starts[origins] + 1).tolist()
    whole = (lengths == records.lengths[origins]).tolist()
    rows = zip(origins.tolist(), first, lengths.tolist(), whole)
    return tuple(records.names[i] if w else f"{records.names[i]}:{start}-{start + n - 1}" for i, start, n, w in rows)


def _require_dense(rows: int, length: int, letters: int, name: str) -> None:
    """Raise an error if a few long sequences would fill the memory with the ends of the others."""
    dense = rows * length <= max(_MOST_ELEMENTS, _MOST_FILL * letters)
    seen = f"{rows:,} sequences of up to {length:,}, {letters / rows:,.0f} on average"
    require(dense, f"lengths of {name}", seen, "more similar ones: data.sequence.length cuts the longest into pieces")


def _warn_sparse(lengths: NDArray[np.int64], name: str) -> None:
    """Warn if most of the tokens are the ends with which sequences are filled up to the longest."""
    longest, mean = int(lengths.max()), float(lengths.mean())
    if longest > _MOST_FILL * mean:
        usual = int(lengths[lengths <= _MOST_FILL * mean].max())
        seen = f"the longest sequence has {longest:,} letters, the mean is {mean:,.0f}"
        cost = f"filled up to the longest, the data are {longest / mean:,.0f} times larger"
        cure = f"--data.sequence.length {usual} cuts longer ones into pieces"
        warnings.warn(f"{name}: {seen}: {cost}; {cure}", stacklevel=3)


def split(rows: Encoded, fraction: float, seed: int, name: str) -> tuple[Sequences, Sequences]:
    """The sequences to train on and those held out, at random. Equal ones stay together, and so do pieces of one.

    Where all are pieces of one sequence, only those stay together that overlap.

    Args:
        rows: the sequences.
        fraction: how many are held out.
        seed: seed of the choice.
        name: what the sequences are called in messages.
    """
    groups = grouped(len(rows.tokens), _keys(rows))
    sizes = np.bincount(groups, minlength=1)
    require(len(sizes) >= 2, f"different sequences of {name}", len(sizes) if groups else 0, _ENOUGH)
    is_test = np.array(is_test_group(sizes.tolist(), fraction, seed))[groups]
    return _sequences(rows, ~is_test), _sequences(rows, is_test)


def _keys(rows: Encoded) -> Iterator[tuple[int, Any]]:
    """What each row shares with others: its letters, and the sequence that it is a piece of."""
    alone = len(np.unique(rows.origins)) == 1
    for i, (tokens, unknown) in enumerate(zip(rows.tokens, rows.unknown)):
        yield i, hashlib.blake2b(tokens.tobytes() + unknown.tobytes(), digest_size=16).digest()
        if not alone:
            yield i, int(rows.origins[i])
        elif rows.overlaps[i] and i:
            yield i - 1, ("overlap", i)
            yield i, ("overlap", i)


def _sequences(rows: Encoded, chosen: NDArray[np.bool_]) -> Sequences:
    unknown = rows.unknown[chosen]
    pad = torch.from_numpy(unknown) if unknown.any() else None
    names = tuple(name for name, keep in zip(rows.names, chosen) if keep)
    labels = None if rows.labels is None else torch.from_numpy(rows.labels[chosen])[:, None]
    return Sequences(torch.from_numpy(rows.tokens[chosen]), pad, names, labels)
