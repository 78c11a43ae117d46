"""Texts on the studio's page: strings, with a gap of `_` for each character to draw."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from usd3._internal.checks import require, require_type
from usd3._internal.files import write_whole
from usd3.kinds.page import Frame, FromPage, Page, nested
from usd3.kinds.rendering import Drawn
from usd3.kinds.text.gaps import with_gaps
from usd3.kinds.text.kind import Text
from usd3.kinds.text.rendering import together
from usd3.kinds.text.sources import TextFile

__all__ = ["TextPage"]

_LONGEST_TOKEN = 100  # characters: a longer text is refused before it is cut into tokens


class TextPage(Page):
    """A text with gaps. One with gaps is filled; one without is continued to the end of the window."""

    reads = (".txt",)
    most_num = 16
    kind: Text

    def editor(self) -> dict[str, Any]:
        """The sign of a gap, and the length of a window in tokens."""
        length = self.kind.shape[0]
        about = {"name": "text", "hole": "_", "length": length, "unit": self.kind.tokens_are, "multiline": True}
        return about | {"alphabet": self.kind.alphabet if self.kind.tokenizer == "characters" else None}

    def empty(self) -> Any:
        """Nothing: all of it is drawn."""
        return ""

    @property
    def writes(self) -> tuple[str, ...]:
        """Texts, pages and tokens."""
        return (".txt", ".png", ".npz")

    def to_page(self, tokens: Tensor, prompt: FromPage | None = None, seed: int = 0, where: Any = None) -> list[Any]:
        """The texts; those that filled gaps are as long as the prompt."""
        return [self.kind.codec.decode(row[: self._end(prompt)]) for row in tokens.tolist()]

    def from_page(self, objects: Any) -> FromPage:
        """The tokens of texts, and which of them are no gaps."""
        require_type(isinstance(objects, list), "objects", objects, "a list of texts")
        for text in objects:
            require_type(isinstance(text, str), "object", text, "a text")
            most = _LONGEST_TOKEN * self.kind.shape[0]
            require(len(text) <= most, "object", f"a text of {len(text):,} characters", f"at most {most:,}")
        tokens, given = self.kind.in_windows([self.kind.with_gaps(text, "the text") for text in objects])
        return FromPage(tokens, given, objects)

    def frame(self, frame: Frame, prompt: FromPage) -> dict[str, Any]:
        """The text of the best guess; each character is as sure as its token."""
        end = self._end(prompt)
        pieces = self._pieces(frame.tokens.tolist()[:end])
        sizes = torch.tensor([len(piece) for piece in pieces])
        sure, is_open = (part[:end].repeat_interleave(sizes) for part in (frame.sure, frame.open))
        return {"object": "".join(pieces), "sure": nested(sure), "open": is_open.int().tolist()}

    def read(self, path: Path) -> tuple[Any, list[str]]:
        """The text of a file, as far as a window reaches; without the line end that editors put at its end."""
        text = "".join(TextFile(path).chunks()).removesuffix("\n")
        shown = text[: round(self.kind.shape[0] * self.kind.characters_per_token)]
        while self._size(shown) > self.kind.shape[0]:  # it has more tokens than a text of its length usually has
            shown = shown[: len(shown) * 9 // 10]
        notes = [] if shown == text else [f"the first {len(shown):,} of {len(text):,} characters"]
        return shown, notes

    def write(self, objects: Any, path: Path, options: Any = None) -> None:
        """Write the texts as they are: in them `_` is an ordinary character."""
        self.from_page(objects)
        if path.suffix == ".txt":
            write_whole(path, together(objects) + "\n")
            return
        length = self.kind.shape[0]
        rows = [self.kind.codec.encode(text).tolist() for text in objects]
        longest = max(map(len, rows))
        require(0 < longest <= length, "objects", f"{longest} {self.kind.tokens_are}", f"texts of 1..{length}")
        tokens = torch.tensor([row + [0] * (length - len(row)) for row in rows])
        pad = torch.arange(length) >= torch.tensor([[len(row)] for row in rows])
        if path.suffix == ".npz":
            self.kind.write_arrays(path, tokens=tokens.numpy(), pad=pad.numpy())
        else:
            self.kind.renderer(self.request_for(path, options)).write(Drawn(tokens, pad=pad), path)

    def _size(self, text: str) -> int:
        """The number of tokens of a text; an error if a character is unknown."""
        try:
            return len(with_gaps(text, self.kind.codec, self.kind.characters_per_token).tokens)
        except ValueError as error:
            raise ValueError(f"the text has {error}") from None

    def _end(self, prompt: FromPage | None) -> int | None:
        """How many tokens of a drawn text are shown; None: all."""
        if prompt is None:
            return None
        gapped = self.kind.with_gaps(prompt.typed[0], "object")
        return len(gapped.tokens) if gapped.has_gaps else None

    def _pieces(self, tokens: list[int]) -> list[str]:
        """About the text of each token. Pieces of words are read beside the one before, which takes little time."""
        codec = self.kind.codec
        if self.kind.tokenizer != "pieces":
            return codec.pieces(tokens)
        first = codec.decode(tokens[:1])
        return [first, *(codec.decode([a, b])[len(codec.decode([a])) :] for a, b in pairwise(tokens))]
