"""Sequences of letters as a kind of data: DNA, RNA and proteins in FASTA files, and any list of strings.

Readers, metrics and pictures are imported where they are used: `usd3 sample` needs few of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from usd3._internal.checks import as_tokens, require
from usd3.kinds.base import Kind
from usd3.kinds.class_files import class_files
from usd3.kinds.dataset import Dataset
from usd3.kinds.labels import LABEL, require_fits
from usd3.kinds.options import DataConfig
from usd3.kinds.rendering import Request
from usd3.kinds.sequence.alphabet import Alphabet, Form
from usd3.kinds.sequence.fasta import ENDINGS, PACKED_ENDINGS
from usd3.kinds.sequence.records import Records, are_strings, as_strings, joined, read_lines, records_of
from usd3.metrics.summary import Metric

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from usd3.kinds.sequence.judge import SequenceJudge
    from usd3.kinds.sequence.page import SequencePage
    from usd3.kinds.sequence.rendering import SequenceRenderer

__all__ = ["LetterSequence"]

_MOST_OF_A_METHOD = 3  # sequences in one picture
_PLURALS: dict[Form, str] = {
    "dna": "DNA sequences",
    "rna": "RNA sequences",
    "protein": "protein sequences",
    "other": "strings",
}


@dataclass(frozen=True)
class LetterSequence(Kind):
    """A sequence of letters. The category of a letter is its place in the alphabet.

    Args:
        letters: the alphabet. It must be given; "" is an error.
        form: what the letters stand for: "dna", "rna", "protein" or "other".
        has_ends: whether sequences differ in length. Then the last category says that a sequence has ended.
        is_fasta: whether sequences are written as FASTA; otherwise as text, one in a line.
    """

    letters: str = ""
    form: Form = "other"
    has_ends: bool = False
    is_fasta: bool = True

    name: ClassVar[str] = "sequence"
    reads_classes: ClassVar[bool] = True  # one alphabet for all
    takes_labels: ClassVar[bool] = True
    plural: ClassVar[str] = "sequences"
    sources: ClassVar[tuple[str, ...]] = ("sequence",)
    files: ClassVar[tuple[str, ...]] = (*ENDINGS, *PACKED_ENDINGS)
    suffixes: ClassVar[tuple[str, ...]] = (".npz", *ENDINGS, ".txt", ".png", ".gif")
    draws_all_prompts: ClassVar[bool] = True
    is_judged: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Metric]] = {
        **{f"kmer_{k}": Metric(f"{k}-mers") for k in (3, 4, 5, 6)},
        "kmer_correlation": Metric("6-mer r", "higher"),
        "composition": Metric("composition"),
        "gc": Metric("GC", None),
        "gc_distance": Metric("GC distance"),
        "length": Metric("length", None),
        "length_distance": Metric("length distance"),
        "copies": Metric("copies", None),
        "nearest": Metric("nearest", None),
        "told_apart": Metric("told apart"),
    }
    main_metrics: ClassVar[tuple[str, ...]] = ("kmer_6", "kmer_5", "kmer_4", "kmer_3")

    def __post_init__(self) -> None:
        super().__post_init__()
        categories = len(self.alphabet.letters) + self.has_ends
        require(self.num_classes == categories, "num_classes", self.num_classes, f"{categories}, one for each letter")
        require(len(self.shape) == 1, "shape", self.shape, "the length of a sequence")

    @property
    def alphabet(self) -> Alphabet:
        """The letters, and the characters that mean "unknown"."""
        return Alphabet(self.letters, self.form)

    @property
    def end(self) -> int | None:
        """The category that says that a sequence has ended; None: all sequences have one length."""
        return self.num_classes - 1 if self.has_ends else None

    def describe(self) -> str:
        """Such as "DNA sequences of 251 letters"."""
        most = "at most " * self.has_ends
        different = f", {len(self.letters)} different ones" if self.form == "other" else ""
        return f"{_PLURALS[self.form]} of {most}{self.shape[0]} letters{different}"

    def require_same(self, other: Mapping[str, Any], name: str) -> None:
        """Raise an error for another kind, and for another alphabet: its categories are other letters."""
        super().require_same(other, name)
        for part in ("letters", "has_ends"):
            require(other[part] == getattr(self, part), f"{part} of {name}", other[part], str(getattr(self, part)))

    # ---- reading ------------------------------------------------------------------------------------------------

    @classmethod
    def read(cls, data: DataConfig) -> Dataset:
        """The sequences of a FASTA file, or of a .txt file with one in each line, which are strings.

        Several files are classes: "promoter=a.fa,none=b.fa", or a folder with one file for each class.
        """
        path = data.file("a FASTA file")
        files = class_files(path, (*cls.files, ".txt"))
        if files is None:
            records, is_fasta = _read(Path(path))
            return cls._dataset(records, data, Path(path).name.split(".")[0], path, is_fasta)
        parts, forms = zip(*(_read(file) for file in files.values()))
        require(len(set(forms)) == 1, "data.path", path, "FASTA files, or texts with a sequence in each line, not both")
        return cls._dataset(joined(parts), data, "-".join(files), path, forms[0], tuple(files))

    @classmethod
    def claims_objects(cls, objects: Any) -> bool:
        """Whether `objects` are strings: a list, a tuple, an array or a Series of them."""
        return are_strings(objects)

    @classmethod
    def from_objects(
        cls,
        objects: Any,
        data: DataConfig,
        numbers: "NDArray[np.int64] | None" = None,
        classes: tuple[str, ...] = (),
    ) -> Dataset:
        """Strings in memory, with the number of the class of each. Their characters are the alphabet."""
        strings = as_strings(objects, "strings")
        if numbers is not None:
            require_fits(numbers, len(strings), "labels")
        records = replace(records_of(strings), labels=numbers)
        return cls._dataset(records, data, "strings", "the strings", False, classes)

    @classmethod
    def _dataset(
        cls, records: Records, data: DataConfig, name: str, called: str, is_fasta: bool, classes: tuple[str, ...] = ()
    ) -> Dataset:
        from usd3.kinds.sequence.reading import alphabet_for, encoded, split

        options = data.sequence
        alphabet = alphabet_for(records, options, is_fasta, called)
        rows = encoded(records, alphabet, options, called)
        train, test = split(rows, data.test_fraction, data.seed, called)
        num_classes = len(alphabet.letters) + rows.has_ends
        require(num_classes >= 2, f"letters of {called}", alphabet.letters, "at least two different ones")
        shape = (rows.tokens.shape[1],)
        kind = cls(num_classes, shape, alphabet.letters, alphabet.form, rows.has_ends, is_fasta)
        return Dataset(name, num_classes, train, test, kind=kind, labels={LABEL: classes} if classes else {})

    @classmethod
    def describe_split(cls, data: DataConfig) -> str:
        """How the held-out sequences were chosen."""
        together = "equal ones and pieces of one stay together"
        return f"{data.test_fraction:g} held out of the sequences, {together}, seed {data.seed}"

    # ---- tokens and strings -------------------------------------------------------------------------------------

    def objects(self, tokens: Tensor, seed: int = 0) -> list[str]:
        """The strings of tokens (N, L), each up to its first end."""
        return self.strings(tokens)

    def strings(self, tokens: Tensor, pad: Tensor | None = None) -> list[str]:
        """The strings of tokens (N, L); a letter is unknown where `pad` (N, L) is True."""
        from usd3.kinds.sequence.records import strings_of

        rows = as_tokens(tokens).numpy()
        valid = rows.size == 0 or (rows.min() >= 0 and rows.max() < self.num_classes)
        require(valid, "tokens", "others", f"categories 0..{self.num_classes - 1}")
        return strings_of(rows, self.alphabet, None if pad is None else pad.numpy())

    def tokens(self, objects: Any) -> tuple[Tensor, Tensor]:
        """Tokens (N, L) of strings, and a mask (N, L) that is False where there is a hole.

        `N` and `-` are holes in DNA and RNA, `X` and `-` in proteins, `_` everywhere; a character that is in the
        alphabet is a letter. Where sequences differ in length, a shorter string without a hole can go on: its end is
        open. One with a hole ends where it ends.
        """
        return self.tokens_of(records_of(as_strings(objects, "sequences")))

    def tokens_of(self, records: Records) -> tuple[Tensor, Tensor]:
        """The same for named sequences, whose names are in error messages."""
        from usd3.kinds.sequence.reading import prompt_rows

        tokens, given = prompt_rows(records, self.alphabet, self.shape[0], self.has_ends)
        return torch.from_numpy(tokens).long(), torch.from_numpy(given)

    def possible(self, tokens: Tensor, given: Tensor) -> Tensor | None:
        """(N, L, K) False for an end in the holes before a given letter, and before the end of a prompt if it is given.

        A prompt ends at its first end. Where that is in a hole, the length is open: any hole after the last given
        letter may be the end.
        """
        if self.end is None:
            return None
        is_end = tokens == self.end
        is_first_end = is_end & (is_end.cumsum(1) == 1)
        known = given & (~is_end | is_first_end)
        goes_on = ~given & known.flip(1).cummax(1).values.flip(1)
        if not bool(goes_on.any()):
            return None
        possible = torch.ones(*tokens.shape, self.num_classes, dtype=torch.bool)
        possible[..., self.end] = ~goes_on
        return possible

    def num_counted(self, tokens: Tensor, pad: Tensor | None) -> int:
        """Number of letters that are known, and of ends: one for each sequence that ends before the last element."""
        counts = torch.ones_like(tokens, dtype=torch.bool) if pad is None else ~pad
        if self.end is not None:
            is_end = tokens == self.end
            counts = counts & (is_end.cumsum(1) <= 1)
        return int(counts.sum())

    # ---- files and pictures -------------------------------------------------------------------------------------

    def renderer(self, request: Request) -> "SequenceRenderer":
        """The renderer of FASTA files, and of rows of letters."""
        from usd3.kinds.sequence.rendering import SequenceRenderer

        return SequenceRenderer(self, request)

    def page(self, request: Request) -> "SequencePage":
        """The sequences as the studio shows them."""
        from usd3.kinds.sequence.page import SequencePage

        return SequencePage(self, request)

    def picture_methods(self, rows: Mapping[str, Tensor], compared_with: Mapping[str, Any], path: Path) -> bool:
        """Draw the first sequences of each method as rows of letters."""
        from usd3.pictures import letter_colours, letter_rows

        drawn = {label: self.strings(tokens[:_MOST_OF_A_METHOD]) for label, tokens in rows.items()}
        titles = [label for label, sequences in drawn.items() for _ in sequences]
        sequences = [sequence for part in drawn.values() for sequence in part]
        letter_rows(sequences, path, letter_colours(self.letters, self.form), titles=titles)
        return True

    def sample_examples(self, given: str | None, prefix: int) -> list[str]:
        """One for a file of new sequences, and one for a file with holes."""
        ending = ".fa" if self.is_fasta else ".txt"
        return [f" --num 100 --out new{ending}", f" --prompt holes{ending} --out filled{ending}"]

    # ---- measures -----------------------------------------------------------------------------------------------

    def judge(self, dataset: Dataset, settings: Any, device: str | None, option: str) -> "SequenceJudge":
        """The judge that compares sets of sequences with the held-out ones."""
        from usd3.kinds.sequence.judge import SequenceJudge

        return SequenceJudge(dataset, settings.sequences, settings.seed)

    @classmethod
    def describe_sets(cls, settings: Mapping[str, Any], compared_with: Mapping[str, Any]) -> str:
        """A line with the number of sequences drawn, and of those held out."""
        num = settings["sequences"]["num"] or compared_with["held_out"]
        drawn = f"{num} sequences in {settings['steps']} steps, seed {settings['seed']}"
        line = drawn if settings["runs"] == 1 else f"{settings['runs']} sets of {drawn}"
        return f"{line}, against {compared_with['held_out']} held-out sequences"


def _read(path: Path) -> tuple[Records, bool]:
    """The sequences of a file, and whether it is FASTA."""
    from usd3.kinds.sequence.fasta import has_lines, read_fasta

    is_fasta = not has_lines(path)
    return read_fasta(path) if is_fasta else read_lines(path, str(path)), is_fasta
