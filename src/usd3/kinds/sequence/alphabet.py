"""The letters of sequences: which there are, which of them mean "unknown", and the category of each character."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from usd3._internal.checks import require

__all__ = ["NO_LETTER", "UNKNOWN", "Alphabet", "Form", "alphabet_of", "are_unknown", "counted", "form_of"]

Form = Literal["dna", "rna", "protein", "other"]
"""What letters stand for: nucleotides, amino acids, or anything else."""

UNKNOWN, NO_LETTER = -1, -2
"""In a table of categories: a character that means "unknown", and one that is no letter at all."""

_LETTERS: dict[Form, str] = {"dna": "ACGT", "rna": "ACGU", "protein": "ACDEFGHIKLMNPQRSTVWY"}
_RARE: dict[Form, str] = {"dna": "RYSWKMBDHV", "rna": "RYSWKMBDHV", "protein": "BJOUZ"}
"""Letters that may occur in a form, and are rare there: codes for one of several, and two rare amino acids."""
_UNKNOWN: dict[Form, str] = {"dna": "N-X._", "rna": "N-X._", "protein": "X-._", "other": "_"}
_STOP = "*"
_TWINS: dict[Form, tuple[str, str]] = {"dna": ("U", "T"), "rna": ("T", "U")}
_MOST_RARE: dict[Form, float] = {
    "dna": 0.1,
    "rna": 0.1,
    "protein": 0.02,
}  # share of the letters; in other texts they are more frequent
_CODE_POINTS = 0x110000
_AT_ONCE = 2**22  # characters


@dataclass(frozen=True)
class Alphabet:
    """The letters of sequences. The category of a letter is its place in `letters`.

    Args:
        letters: the letters that a model knows.
        form: what they stand for.
    """

    letters: str
    form: Form

    def __post_init__(self) -> None:
        require(self.form in get_args(Form), "form", self.form, f"one of {', '.join(get_args(Form))}")
        require(len(set(self.letters)) == len(self.letters) > 0, "letters", self.letters, "different letters")

    @property
    def unknown(self) -> str:
        """The characters that mean "unknown", and in a prompt a hole. The first is the one that is written."""
        ambiguous = _RARE[self.form] if self.form in ("dna", "rna") else ""
        return "".join(c for c in _UNKNOWN[self.form] + ambiguous if c not in self.letters)

    @property
    def has_cases(self) -> bool:
        """Whether a small letter means another letter than the capital one."""
        return self.form == "other"

    def table(self) -> NDArray[np.int32]:
        """(1114112,) the category of each character by its number in Unicode, `UNKNOWN` or `NO_LETTER`.

        Nucleotides and amino acids may be small letters too. U stands for T in DNA, and T for U in RNA.
        """
        table = np.full(_CODE_POINTS, NO_LETTER, np.int32)
        category = {letter: i for i, letter in enumerate(self.letters)} | dict.fromkeys(self.unknown, UNKNOWN)
        twin, letter = _TWINS.get(self.form, ("", ""))
        if letter in category and twin not in category and twin:
            category[twin] = category[letter]
        small = {} if self.has_cases else {c.lower(): number for c, number in category.items()}
        for character, number in (small | category).items():
            table[ord(character)] = number
        return table

    def expected(self) -> str:
        """The letters, and what means "unknown", for error messages."""
        letters = self.letters if len(self.letters) <= 40 else f"{self.letters[:37]}..."
        return f"one of {letters}" + (f", or {' '.join(self.unknown[:2])} for unknown ones" if self.unknown else "")


def form_of(letters: str) -> Form:
    """What an alphabet that the user gave stands for."""
    for form, known in _LETTERS.items():
        others = set(letters) - set(known)
        allowed = set(_RARE[form] + _UNKNOWN[form] + _STOP * (form == "protein"))
        if not others or (others <= allowed and set(known) <= set(letters)):
            return form
    return "other"


def alphabet_of(counts: Mapping[str, int], whole: bool) -> Alphabet:
    """The alphabet of sequences with so many of each character.

    DNA has the letters ACGT, and codes for one of several nucleotides in at most a tenth; RNA has U for T. Proteins
    have 20 letters, `*`, and BJOUZ in at most a fiftieth. Everything else is any characters, the unknown one aside.

    Args:
        counts: how often each character occurs. Small letters of nucleotides and amino acids count as capital ones if
            `whole`.
        whole: nucleotides and amino acids have all their letters, and others mean "unknown", as in a FASTA file. Else
            the letters are the characters that occur: in a list of words, X is a letter like any other.
    """
    if not whole:
        letters = "".join(sorted(counts))
        return Alphabet(letters, form_of(letters))
    folded: dict[str, int] = {}
    for character, count in counts.items():
        folded[character.upper()] = folded.get(character.upper(), 0) + count
    for form, known in _LETTERS.items():
        if _is_form(folded, form):
            more = "".join(c for c in _RARE[form] + _STOP if c in folded) if form == "protein" else ""
            return Alphabet(known + more, form)
    letters = "".join(sorted(c for c in counts if c not in _UNKNOWN["other"]))
    require(len(letters) > 0, "letters", "".join(counts)[:20], "some that are known")
    return Alphabet(letters, "other")


def are_unknown(characters: Iterable[str]) -> bool:
    """Whether all characters mean "unknown" in DNA, RNA or proteins, as in a genome that is masked whole."""
    return {c.upper() for c in characters} <= set(_UNKNOWN["dna"])


def _is_form(counts: Mapping[str, int], form: Form) -> bool:
    rare, known, twin = _RARE[form], _LETTERS[form], _TWINS.get(form, ("", ""))[0]
    allowed = set(known + rare + _UNKNOWN[form] + _STOP * (form == "protein"))
    if form == "dna" and "T" in counts:  # where both T and U occur, U is read as T
        allowed.add(twin)
    usual, unusual = (sum(counts.get(c, 0) for c in letters) for letters in (known, rare))
    return usual > 0 and set(counts) <= allowed and unusual <= _MOST_RARE[form] * (usual + unusual)


def counted(codes: NDArray[Any]) -> dict[str, int]:
    """How often each character occurs among their numbers."""
    if codes.dtype == np.uint8:
        parts = (codes[first : first + _AT_ONCE] for first in range(0, len(codes), _AT_ONCE))
        counts = sum((np.bincount(part, minlength=256) for part in parts), np.zeros(256, np.int64))
        return {chr(code): int(counts[code]) for code in np.flatnonzero(counts)}
    values, numbers = np.unique(codes, return_counts=True)
    return {chr(code): int(number) for code, number in zip(values.tolist(), numbers.tolist())}
