"""Text as a kind of data: windows of characters, bytes or pieces of words.

Readers, metrics and pictures are imported where they are used: `usd3 sample` needs few of them.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from usd3._internal.checks import as_number, require, require_type
from usd3.kinds.base import Kind, ReferenceModel
from usd3.kinds.dataset import Dataset
from usd3.kinds.image.images import spread
from usd3.kinds.options import DataConfig
from usd3.kinds.rendering import Renderer, Request
from usd3.kinds.text.gaps import Gapped, with_gaps
from usd3.kinds.text.sources import TextFile, TextInMemory
from usd3.kinds.text.tokenizers import MOST_JSON, Bytes, Characters, Pieces, Tokenizer
from usd3.metrics.summary import Metric, Summary, summarise

if TYPE_CHECKING:
    from usd3.kinds.text.page import TextPage

__all__ = ["Text"]

_ORDERS = (1, 3, 5)  # of the n-gram models
_COUNTED = 2**23  # tokens of the training text from which n-grams and words are counted


@dataclass(frozen=True)
class Text(Kind):
    """A window of a text.

    Args:
        num_classes: number of different tokens.
        shape: (L,), tokens of a window.
        tokenizer: "characters", "bytes" or "pieces".
        alphabet: the characters in the order of their tokens, if tokens are characters.
        pieces: the content of a tokenizer.json, if tokens are pieces of words.
        characters_per_token: how many characters a token has on average.
    """

    tokenizer: str = "characters"
    alphabet: str = ""
    pieces: str = ""
    characters_per_token: float = 1.0

    name: ClassVar[str] = "text"
    plural: ClassVar[str] = "texts"
    sources: ClassVar[tuple[str, ...]] = ("text",)
    files: ClassVar[tuple[str, ...]] = (".txt",)
    suffixes: ClassVar[tuple[str, ...]] = (".npz", ".txt", ".png", ".gif")
    columns: ClassVar[Mapping[str, Metric]] = {
        "bits_per_character": Metric("bits/character"),
        "bits_per_byte": Metric("bits/byte"),
        "perplexity": Metric("perplexity/token"),
        "entropy": Metric("entropy", None),
        "distinct_4grams": Metric("distinct 4-grams", None),
        "known_words": Metric("words in training", None),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        require(len(self.shape) == 1, "shape", self.shape, "(L,), the tokens of a window")
        tokenizers = ("characters", "bytes", "pieces")
        require(self.tokenizer in tokenizers, "tokenizer", self.tokenizer, f"one of {', '.join(tokenizers)}")
        for name in ("alphabet", "pieces"):
            require_type(isinstance(getattr(self, name), str), name, getattr(self, name), "a text")
        require(len(self.pieces) <= MOST_JSON, "size of pieces", len(self.pieces), f"at most {MOST_JSON:,}")
        as_number(self.characters_per_token, "characters_per_token", 0)
        if self.tokenizer == "characters":
            fits = len(set(self.alphabet)) == len(self.alphabet) == self.num_classes
            require(fits, "alphabet", repr(self.alphabet), f"{self.num_classes} different characters")
        elif self.tokenizer == "bytes":
            require(self.num_classes == 256, "num_classes", self.num_classes, "256 for bytes")

    @functools.cached_property
    def codec(self) -> Tokenizer:
        """The tokenizer. Pieces of words need the library `tokenizers`."""
        if self.tokenizer == "characters":
            return Characters(self.alphabet)
        if self.tokenizer == "bytes":
            return Bytes()
        pieces = Pieces(self.pieces)
        require(pieces.num_classes == self.num_classes, "pieces", f"{pieces.num_classes} tokens", f"{self.num_classes}")
        return pieces

    @property
    def tokens_are(self) -> str:
        """What a token is called: "characters", "bytes" or "tokens"."""
        return "tokens" if self.tokenizer == "pieces" else self.tokenizer

    def describe(self) -> str:
        """Such as "texts of 256 characters, 65 different ones"."""
        return f"texts of {self.shape[0]} {self.tokens_are}, {self.num_classes:,} different ones"

    def require_same(self, other: Mapping[str, Any], name: str) -> None:
        """Raise an error if `other` is another kind, or has another tokenizer."""
        super().require_same(other, name)
        for part in ("tokenizer", "alphabet", "pieces"):
            require(other[part] == getattr(self, part), f"{part} of {name}", repr(other[part]), "that of the model")

    # ---- reading ------------------------------------------------------------------------------------------------

    @classmethod
    def read(cls, data: DataConfig) -> Dataset:
        """The windows of a text file."""
        from usd3.kinds.text.loading import load_text  # it imports this class

        return load_text(TextFile(Path(data.file("a text file")), data.text.encoding), data)

    def read_again(self, data: DataConfig) -> Dataset:
        """The windows of a text file, which may be another one, by the tokenizer of the model."""
        from usd3.kinds.text.loading import load_text

        return load_text(TextFile(Path(data.file("a text file")), data.text.encoding), data, self)

    @classmethod
    def claims_objects(cls, objects: Any) -> bool:
        """A string is a text."""
        return isinstance(objects, str)

    @classmethod
    def from_objects(cls, objects: Any, data: DataConfig) -> Dataset:
        """The windows of a string."""
        from usd3.kinds.text.loading import load_text

        return load_text(TextInMemory(objects), data)

    @classmethod
    def describe_split(cls, data: DataConfig) -> str:
        """How much of the end of the text is held out."""
        return f"the last {data.test_fraction:g} of the text is held out"

    # ---- tokens and texts ---------------------------------------------------------------------------------------

    def objects(self, tokens: Tensor, seed: int = 0) -> list[str]:
        """The texts of tokens (N, L)."""
        return [self.codec.decode(row) for row in tokens.tolist()]

    def tokens(self, objects: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Tokens (N, L) of texts, and False where a text has a gap of `_`, or has ended."""
        require_type(not isinstance(objects, str), "objects", objects, "a list of texts")
        return self.in_windows([self.with_gaps(text, f"objects[{i}]") for i, text in enumerate(objects)])

    def in_windows(self, texts: Sequence[Gapped]) -> tuple[Tensor, Tensor]:
        """Tokens (N, L) of texts with gaps, and False where a text has a gap, or has ended."""
        tokens = torch.zeros(len(texts), *self.shape, dtype=torch.int64)
        given = torch.zeros_like(tokens, dtype=torch.bool)
        for i, gapped in enumerate(texts):
            tokens[i, : len(gapped.tokens)] = torch.tensor(gapped.tokens, dtype=torch.int64)
            given[i, : len(gapped.given)] = torch.tensor(gapped.given, dtype=torch.bool)
        return tokens, given

    def with_gaps(self, text: str, name: str) -> Gapped:
        """The tokens of a text with gaps, at most as many as a window has; errors call the text `name`."""
        require_type(isinstance(text, str), name, text, "a text")
        try:
            gapped = with_gaps(text, self.codec, self.characters_per_token)
        except ValueError as error:
            raise ValueError(f"{name} has {error}") from None
        most = self.shape[0]
        expected = f"at most {most}, a window: shorten it, or train with a larger --data.length"
        require(len(gapped.tokens) <= most, name, f"{len(gapped.tokens)} {self.tokens_are}", expected)
        return gapped

    # ---- files and pictures -------------------------------------------------------------------------------------

    def renderer(self, request: Request) -> Renderer:
        """The renderer of text files and pages."""
        from usd3.kinds.text.rendering import TextRenderer

        return TextRenderer(self, request)

    def page(self, request: Request) -> "TextPage":
        """The texts as the studio shows them."""
        from usd3.kinds.text.page import TextPage

        return TextPage(self, request)

    def sample_examples(self, given: str | None, prefix: int) -> list[str]:
        """New texts, and the words in a gap."""
        return [" --out new.txt", ' --prompt "the ____ of the"']

    # ---- measures -----------------------------------------------------------------------------------------------

    def informed_by(self, dataset: Dataset) -> "InformedText":
        """The kind with the words of the training text, for the share of words that are known."""
        from usd3.metrics.texts import words_of

        words, left = set[str](), _COUNTED
        for tokens, _ in dataset.train.pieces():
            text = self.codec.decode(dataset.decoded(tokens.flatten()[:left]).tolist())
            words.update(words_of(text))
            left -= tokens.numel()
            if left <= 0:
                break
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return InformedText(**values, words=frozenset(words))

    def structure(self, runs: Tensor, pad: Tensor | None = None) -> dict[str, Summary]:
        """Entropy of the tokens and share of different 4-grams."""
        from usd3.metrics import distinct_ngrams, unigram_entropy

        found = {"entropy": unigram_entropy(runs, pad)}
        if runs.shape[-1] >= 4:
            found["distinct_4grams"] = distinct_ngrams(runs, 4, pad)
        return {key: summarise(values) for key, values in found.items()}

    def likelihoods(self, bits: float, truth: Tensor) -> dict[str, Summary]:
        """Bits per character and per byte of the text, and perplexity per token."""
        tokens = truth[: max(1, _COUNTED // truth.shape[1])].flatten().tolist()
        text = self.codec.decode(tokens)
        size = len(text.encode("utf-8", "surrogatepass"))
        rates = {"bits_per_character": len(tokens) / len(text), "bits_per_byte": len(tokens) / size}
        if self.tokenizer == "bytes":
            rates["bits_per_byte"] = 1.0
        found = {key: Summary(bits * rate, 0.0) for key, rate in rates.items()}
        return found | {"perplexity": Summary(2.0**bits if bits < 1024 else math.inf, 0.0)}

    def reference_models(self, train: Tensor) -> dict[str, ReferenceModel]:
        """n-gram models with contexts of 1, 3 and 5 tokens, as far as there are numbers for so many n-grams."""
        from usd3.kinds.ngram_model import NgramModel

        train = spread(train, max(1, _COUNTED // train.shape[1]))
        orders = [order for order in _ORDERS if NgramModel.is_possible(order, self.num_classes)]
        return {f"{order + 1}-grams": NgramModel(order, self.num_classes).fit(train) for order in orders}


@dataclass(frozen=True)
class InformedText(Text):
    """Texts, and the words of the training text. It is made for an evaluation, and never saved."""

    words: frozenset[str] = field(default=frozenset(), repr=False)

    def structure(self, runs: Tensor, pad: Tensor | None = None) -> dict[str, Summary]:
        """Also the share of words that the training text has."""
        from usd3.metrics import known_words

        texts = [self.objects(run) for run in runs]
        return super().structure(runs, pad) | {"known_words": summarise(known_words(texts, self.words))}
