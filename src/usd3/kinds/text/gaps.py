"""Texts with gaps: a run of `_` stands for as many characters to draw; `\\_` is an underscore."""

import re
from typing import NamedTuple

from usd3.kinds.text.tokenizers import Tokenizer

__all__ = ["Gapped", "with_gaps"]

_PART = re.compile(r"(\\_)|(_+)|([^\\_]+|\\)", re.DOTALL)


class Gapped(NamedTuple):
    """A text with gaps as tokens.

    Args:
        tokens: the tokens; 0 in gaps.
        given: for each token whether it is given, and not part of a gap.
    """

    tokens: list[int]
    given: list[bool]

    @property
    def has_gaps(self) -> bool:
        """Whether anything is left to draw inside the text."""
        return not all(self.given)


def with_gaps(text: str, tokenizer: Tokenizer, characters_per_token: float = 1.0) -> Gapped:
    """The tokens of a text with gaps.

    A piece of a word has the space before the word in it. So a space before a gap is drawn with the gap, if tokens are
    pieces: a space alone is a token that a text hardly ever has there.

    Args:
        text: a run of n underscores is a gap of n characters.
        tokenizer: encodes what is given.
        characters_per_token: a gap of n characters has about n / characters_per_token tokens, at least one.
    """
    tokens, given = list[int](), list[bool]()
    parts = _parts(text)
    for (part, is_gap), following in zip(parts, [*parts[1:], None]):
        if following is not None and tokenizer.unit == "tokens" and not is_gap:
            part = part.removesuffix(" ")
        size = max(1, round(len(part) / characters_per_token))
        new = [0] * size if is_gap else tokenizer.encode(part).tolist()
        tokens += new
        given += [not is_gap] * len(new)
    return Gapped(tokens, given)


def _parts(text: str) -> list[tuple[str, bool]]:
    """The text in turns: what is given, and the gaps as runs of underscores."""
    parts = list[tuple[str, bool]]()
    for escaped, gap, plain in _PART.findall(text):
        part, is_gap = ("_", False) if escaped else (gap or plain, bool(gap))
        if parts and parts[-1][1] == is_gap:
            parts[-1] = parts[-1][0] + part, is_gap
        else:
            parts.append((part, is_gap))
    return parts
