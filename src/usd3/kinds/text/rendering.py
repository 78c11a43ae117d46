"""Texts as files and pages, and texts with gaps as prompts."""

from pathlib import Path

import torch
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.files import write_whole
from usd3._internal.progress import say
from usd3.kinds.dataset import Sequences
from usd3.kinds.rendering import Drawn, Renderer, Request, lengths
from usd3.kinds.text.kind import Text
from usd3.kinds.text.printing import printable
from usd3.kinds.text.sources import TextFile

__all__ = ["TextRenderer", "together"]

_MOST_TEXTS = 4  # in one picture, and on the terminal
_LARGEST_PROMPT = 2**24  # bytes
_SOME = "a gap, a run of _, or fewer, so that some are drawn"


class TextRenderer(Renderer):
    """Writes texts and pages, and reads texts whose gaps are runs of `_`."""

    prompts = (".txt",)
    has_holes = True
    reads_text = True
    num_animated = 2
    kind: Text

    def __init__(self, kind: Text, request: Request):
        super().__init__(kind)
        options = request.options
        self._fills = any(getattr(options, name, None) is not None for name in ("fill", "given"))
        self._end: int | None = None  # of the texts to write, if a prompt was filled

    def prompt(self, path: Path) -> tuple[Sequences, Tensor]:
        """The text of a file, without the line end that editors put at its end."""
        size = path.stat().st_size
        require(size <= _LARGEST_PROMPT, "prompt", f"{path} of {size:,} bytes", f"at most {_LARGEST_PROMPT:,}")
        return self.text_prompt("".join(TextFile(path).chunks()).removesuffix("\n"))

    def text_prompt(self, text: str) -> tuple[Sequences, Tensor]:
        """A text with gaps is filled; one without is continued to the end of the window.

        What comes after a text with gaps is drawn too, and then left out: the network has learnt whole windows, and
        guesses worse where it sees the end of one.
        """
        gapped, length = self.kind.with_gaps(text, "the prompt"), self.kind.shape[0]
        size = len(gapped.tokens)
        is_filled = gapped.has_gaps or self._fills
        require(is_filled or size < length, "the prompt", f"{size} {self.kind.tokens_are} without a gap", _SOME)
        if gapped.has_gaps and self.kind.tokenizer == "pieces":
            number = gapped.given.count(False)
            tokens_have = "1 token, which has" if number == 1 else f"{number} tokens, which have"
            say(f"the gaps are {tokens_have} any number of characters")
        self._end = size if is_filled else None
        tokens = torch.tensor([[*gapped.tokens, *[0] * (length - size)]])
        return Sequences(tokens), torch.tensor([*gapped.given, *[False] * (length - size)])

    def write_objects(self, drawn: Drawn, out: Path) -> None:
        """Write all texts into one file; several have a line with their number before each."""
        if out.suffix in ("", ".txt"):
            write_whole(out if out.suffix else out / "samples.txt", together(self._texts(drawn)))

    def shown(self, drawn: Drawn) -> str:
        """The first texts as in the file, with their control characters escaped."""
        return printable(together(self._texts(drawn)[:_MOST_TEXTS]))

    def picture(self, drawn: Drawn, path: Path) -> None:
        """Draw the first texts on a page."""
        from usd3.pictures import text_page

        rows = self._rows(drawn.tokens[:_MOST_TEXTS], drawn.pad)
        text_page([self.kind.codec.pieces(row) for row in rows], path, self._flags(drawn, len(rows)))

    def animate(self, drawn: Drawn, path: Path) -> None:
        """Draw the way from noise to the first texts as an animation."""
        from usd3.pictures import animate_text

        count, mask = len(drawn.frames[0]), self.kind.num_classes
        pad = None if drawn.pad is None else drawn.pad[:count]
        frames = [[self._known(row, mask) for row in self._rows(frame, pad)] for frame in drawn.frames]
        animate_text(frames, path, self._flags(drawn, count))

    def _flags(self, drawn: Drawn, count: int) -> list[list[bool]] | None:
        """For each token of the first texts whether it was given; None: none was."""
        given = drawn.given_of_first(count)
        return None if given is None else [row.tolist() for row in given.expand(count, -1)]

    def _rows(self, tokens: Tensor, pad: Tensor | None) -> list[list[int]]:
        """The tokens of texts (N, L) up to their ends."""
        ends = lengths(tokens, pad) if self._end is None else [self._end] * len(tokens)
        return [row[:end] for row, end in zip(tokens.tolist(), ends)]

    def _known(self, tokens: list[int], mask: int) -> list[str | None]:
        """The piece of each token, None for the mask."""
        pieces = iter(self.kind.codec.pieces([token for token in tokens if token != mask]))
        return [None if token == mask else next(pieces) for token in tokens]

    def _texts(self, drawn: Drawn) -> list[str]:
        return [self.kind.codec.decode(row) for row in self._rows(drawn.tokens, drawn.pad)]


def together(texts: list[str]) -> str:
    """Texts one after the other; several have a line with their number before each."""
    numbered = (f"----- {i} -----\n{text}\n" for i, text in enumerate(texts, 1))
    return "\n".join(numbered) if len(texts) > 1 else texts[0]
