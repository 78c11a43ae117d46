"""Sequences on the studio's page: strings of letters, with a sign for each letter to draw."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from usd3._internal.checks import require, require_type
from usd3._internal.files import write_whole
from usd3.kinds.page import Frame, FromPage, Page, nested
from usd3.kinds.rendering import Drawn
from usd3.kinds.sequence.fasta import ENDINGS, has_lines, read_fasta
from usd3.kinds.sequence.kind import LetterSequence
from usd3.kinds.sequence.records import read_lines

__all__ = ["SequencePage"]

_NOTHING = "·"  # in a frame, an element after the end of the sequence
_PACKED = b"\x1f\x8b"


class SequencePage(Page):
    """A sequence of letters. An empty one is drawn whole."""

    reads = (*ENDINGS, ".txt")
    kind: LetterSequence

    def editor(self) -> dict[str, Any]:
        """The letters, the sign of an unknown one, and the length."""
        alphabet = self.kind.alphabet
        return {
            "name": "sequence",
            "alphabet": alphabet.letters,
            "hole": alphabet.unknown[:1] or None,
            "length": self.kind.shape[0],
            "shorter": self.kind.has_ends,
            "form": alphabet.form,
        }

    def empty(self) -> Any:
        """Nothing: all of it is drawn."""
        return ""

    @property
    def writes(self) -> tuple[str, ...]:
        """FASTA files, texts and pictures."""
        return (".fa", ".txt", ".png", ".npz")

    def to_page(self, tokens: Tensor, prompt: FromPage | None = None, seed: int = 0, where: Any = None) -> list[Any]:
        """The strings, each up to its end."""
        return list(self.kind.strings(tokens))

    def from_page(self, objects: Any) -> FromPage:
        """The tokens of strings, and which letters are known. Of an empty string nothing is."""
        require_type(isinstance(objects, list), "objects", objects, "a list of strings")
        for one in objects:
            require_type(isinstance(one, str), "object", one, "a string")
            most = self.kind.shape[0]
            require(len(one) <= most, "object", f"{len(one):,} letters", f"at most {most:,}, as the model has")
        shape = (len(objects), *self.kind.shape)
        tokens, given = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.bool)
        written = [i for i, one in enumerate(objects) if one]
        if written:
            tokens[written], given[written] = self.kind.tokens([objects[i] for i in written])
        return FromPage(tokens, given, objects)

    def frame(self, frame: Frame, prompt: FromPage) -> dict[str, Any]:
        """A letter for each element, also after the end."""
        letters = self.kind.letters + _NOTHING
        text = "".join(letters[token] for token in frame.tokens.tolist())
        return {"object": text, "sure": nested(frame.sure), "open": frame.open.int().tolist()}

    def read(self, path: Path) -> tuple[Any, list[str]]:
        """The first sequence of a FASTA file, or of a text with one in each line."""
        with path.open("rb") as file:
            require(file.read(2) != _PACKED, path.name, "a packed file", "one that is not packed")
        is_text = path.suffix.lower() == ".txt" and (has_lines(path) or not self.kind.is_fasta)
        records = read_lines(path, path.name, " " in self.kind.letters) if is_text else read_fasta(path)
        require(len(records) > 0, path.name, "nothing", "at least one sequence")
        first, most = "".join(map(chr, records.codes[: records.starts[1]].tolist())), self.kind.shape[0]
        notes = [] if len(records) == 1 else [f"the first of {len(records):,} sequences"]
        if len(first) > most:
            notes.append(f"its first {most:,} of {len(first):,} letters")
        self.from_page([first[:most]])
        return first[:most], notes

    def write(self, objects: Any, path: Path, options: Any = None) -> None:
        """Write the strings; one that is shorter than others ends where it ends."""
        tokens, given, _ = self.from_page(objects)
        lengths = torch.tensor([[len(one)] for one in objects])
        after = torch.arange(tokens.shape[1]) >= lengths
        whole = bool((given | after).all()) and bool((lengths > 0).all())
        require(whole, "objects", "a sequence with holes", "whole ones: fill them first")
        if path.suffix == ".txt":
            write_whole(path, "".join(f"{one}\n" for one in objects))
            return
        tokens = tokens if self.kind.end is None else tokens.masked_fill(after & ~given, self.kind.end)
        if path.suffix == ".npz":
            self.kind.write_arrays(path, tokens=tokens.numpy())
        else:
            self.kind.renderer(self.request_for(path, options)).write(Drawn(tokens), path)
