"""The options of sequences: how they are read, and how they are measured."""

from dataclasses import dataclass

from usd3._internal.checks import as_count, require
from usd3._internal.fields import require_fields

__all__ = ["SequenceOptions", "SequenceSettings"]


@dataclass
class SequenceOptions:
    """How sequences are read.

    Args:
        alphabet: the letters, such as "ACGT"; other characters are refused, but for those that mean "unknown". null:
            those of DNA, RNA or proteins if the sequences look like these, otherwise all characters that occur.
        length: longest sequence. Longer ones are cut into pieces of this length, one after the other; the last piece
            ends with the sequence, and overlaps the one before it. null: that of the longest sequence.
    """

    alphabet: str | None = None
    length: int | None = None

    def __post_init__(self) -> None:
        require_fields(self, "data.sequence")
        if self.alphabet is not None:
            distinct = len(set(self.alphabet)) == len(self.alphabet) >= 2
            require(distinct, "data.sequence.alphabet", self.alphabet, "at least two different letters")
            plain = self.alphabet.isprintable() and ">" not in self.alphabet
            require(plain, "data.sequence.alphabet", repr(self.alphabet), "printable characters other than >")
        if self.length is not None:
            as_count(self.length, "data.sequence.length", 1)


@dataclass
class SequenceSettings:
    """How sequences are measured; only for a model of sequences.

    Args:
        num: number of sequences in a run, drawn from nothing; null: as many as are held out.
    """

    num: int | None = None

    def __post_init__(self) -> None:
        require_fields(self, "sequences")
        as_count(4 if self.num is None else self.num, "sequences.num", 4)
