"""The options of texts in a recipe: its section `data.text`."""

import os
from dataclasses import dataclass, replace

from usd3._internal.checks import as_count
from usd3._internal.fields import require_fields

__all__ = ["TOKENIZERS", "TextOptions"]

TOKENIZERS = ("characters", "bytes", "bpe")
"""The tokenizers that need no file."""


@dataclass
class TextOptions:
    """How a text is read.

    Args:
        tokenizer: "characters", "bytes" (of any file), "bpe" (pieces of words, learnt from the file), or the path of a
            tokenizer.json; null: characters, or bytes if there are more than 1,024 different ones.
        vocabulary: number of pieces that "bpe" learns.
        encoding: of the text, such as "latin-1"; null: by its byte order mark, else UTF-8, else cp1252.
    """

    tokenizer: str | None = None
    vocabulary: int = 4096
    encoding: str | None = None

    def __post_init__(self) -> None:
        require_fields(self, "data.text")
        as_count(self.vocabulary, "data.text.vocabulary", 258)

    def without_places(self) -> "TextOptions":
        """The options with the name of the tokenizer's file instead of its path."""
        return replace(self, tokenizer=None if self.tokenizer is None else os.path.basename(self.tokenizer))

    def made_absolute(self) -> "TextOptions":
        """The options with the whole path of the tokenizer's file."""
        is_path = self.tokenizer is not None and self.tokenizer not in TOKENIZERS
        return replace(self, tokenizer=os.path.abspath(str(self.tokenizer))) if is_path else self
