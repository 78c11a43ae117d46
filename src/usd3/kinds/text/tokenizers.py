"""Tokenizers: a text as tokens and back, by characters, bytes or pieces of words."""

import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from usd3._internal.checks import require
from usd3.kinds.text.sources import code_points

__all__ = ["MOST_JSON", "Bytes", "Characters", "Pieces", "Tokenizer", "learnt_pieces", "require_tokenizers"]

MOST_JSON = 2**25
"""Most characters of a tokenizer.json."""
_MOST_CLASSES = 2**24
_MOST_GAPS = 10  # the largest token divided by the number of tokens
_LONGEST_CONTENT = 16  # characters that replace a match, multiplied over the regular expressions
_MOST_GROWING = 8  # steps that may lengthen a text
_AT_ONCE = 2**16  # characters that are cut into pieces together: the library needs much memory for each token


class Tokenizer(Protocol):
    """Turns a text into tokens and back."""

    unit: str
    """What a token is called: "characters", "bytes" or "tokens"."""

    @property
    def num_classes(self) -> int:
        """Number of different tokens."""

    def encode(self, text: str) -> NDArray[Any]:
        """The tokens of a text, integers (n,)."""

    def encode_all(self, chunks: Iterable[str]) -> Iterator[NDArray[Any]]:
        """The tokens of a long text, which comes in parts."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """The text of each token; together they are the text."""


class Characters:
    """Each character is a token: its place in the alphabet.

    Args:
        alphabet: the characters, each once.
    """

    unit = "characters"

    def __init__(self, alphabet: str):
        self.alphabet = alphabet

    @property
    def num_classes(self) -> int:
        """Number of characters in the alphabet."""
        return len(self.alphabet)

    @functools.cached_property
    def table(self) -> NDArray[np.int32]:
        """The token of each code point up to the largest of the alphabet, and -1 for characters that have none."""
        points = code_points(self.alphabet)
        table = np.full(int(points.max()) + 1, -1, dtype=np.int32)
        table[points] = np.arange(len(points))
        return table

    def encode(self, text: str) -> NDArray[Any]:
        """The tokens of a text; a character outside the alphabet raises an error that names it."""
        points = code_points(text)
        tokens = self.table[np.minimum(points, len(self.table) - 1)]
        unknown = np.flatnonzero((tokens < 0) | (points >= len(self.table)))
        if unknown.size:
            known = self.alphabet if len(self.alphabet) <= 120 else self.alphabet[:120] + "..."
            raise ValueError(f"the character {text[unknown[0]]!r}: expected those of the training text, {known!r}")
        return tokens

    def encode_all(self, chunks: Iterable[str]) -> Iterator[NDArray[Any]]:
        """The tokens of each part."""
        return (self.encode(chunk) for chunk in chunks)

    def decode(self, tokens: Sequence[int]) -> str:
        """The characters of tokens."""
        return "".join(self.pieces(tokens))

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """The character of each token."""
        return [self.alphabet[token] for token in tokens]


class Bytes:
    """Each byte of the text in UTF-8 is a token. Bytes that are no UTF-8 are shown as U+FFFD."""

    unit = "bytes"
    num_classes = 256

    def encode(self, text: str) -> NDArray[Any]:
        """The bytes of a text."""
        return np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)

    def encode_all(self, chunks: Iterable[str]) -> Iterator[NDArray[Any]]:
        """The bytes of each part."""
        return (self.encode(chunk) for chunk in chunks)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text that the bytes are."""
        return bytes(tokens).decode("utf-8", "replace")

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """What each byte adds to the text."""
        return _grown([self.decode(tokens[: i + 1]) for i in range(len(tokens))])


class Pieces:
    """Pieces of words, by the library `tokenizers`. Special tokens are ordinary tokens here.

    Args:
        content: the content of a tokenizer.json.
    """

    unit = "tokens"

    def __init__(self, content: str):
        self.content = content
        self._tokenizer = _opened(content)

    @functools.cached_property
    def num_classes(self) -> int:
        """The largest token + 1."""
        count: int = 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
        return count

    def encode(self, text: str) -> NDArray[Any]:
        """The tokens of a text."""
        return np.concatenate([np.zeros(0, dtype=np.int32), *self.encode_all([text])])

    def encode_all(self, chunks: Iterable[str]) -> Iterator[NDArray[Any]]:
        """The tokens of a long text. It is cut at line ends or spaces, where pieces end anyway."""
        for part in _whole_words(chunks):
            tokens = self._tokenizer.encode_batch_fast([part], add_special_tokens=False)[0].ids
            yield np.array(tokens, dtype=np.int32)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        text: str = self._tokenizer.decode(list(map(int, tokens)), skip_special_tokens=False)
        return text

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """What each token adds to the text."""
        return _grown([self.decode(tokens[: i + 1]) for i in range(len(tokens))])


def learnt_pieces(chunks: Iterable[str], vocabulary: int) -> str:
    """The tokenizer.json of a byte-level BPE that is learnt from a text: it writes every text, and reads it back.

    Args:
        chunks: the text, one part after the other.
        vocabulary: the largest number of pieces; a short text gives fewer.
    """
    require_tokenizers("a vocabulary of pieces of words")
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, pre_tokenizers, trainers

    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator(_whole_words(chunks), trainer)
    content: str = library.to_str()
    return content


def require_tokenizers(what: str) -> None:
    """Raise an error unless the library `tokenizers` is installed; `what` needs it."""
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        raise ImportError(f"{what} needs tokenizers: pip install 'usd3[text]'") from None


@functools.lru_cache(maxsize=4)
def _opened(content: str) -> Any:
    """The library's object for the content of a tokenizer.json, which is data alone: nothing of it is run."""
    require(len(content) <= MOST_JSON, "size of the tokenizer", f"{len(content):,}", f"at most {MOST_JSON:,}")
    require_tokenizers("a model of pieces of words")
    from tokenizers import Tokenizer as Library

    try:
        json.loads(content)
        library = Library.from_str(content)
        vocabulary = library.get_vocab(with_added_tokens=True)
    except BaseException as error:  # the library panics with errors of its own
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"the tokenizer: expected the content of a tokenizer.json ({reason})") from None
    largest = max(vocabulary.values(), default=0)
    require(1 <= largest < _MOST_CLASSES, "the largest token of the tokenizer", largest, f"1..{_MOST_CLASSES - 1}")
    dense = largest < _MOST_GAPS * len(vocabulary)
    expected = f"less than {_MOST_GAPS} times the size of the vocabulary, {len(vocabulary)}"
    require(dense, "the largest token of the tokenizer", largest, expected)
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        _require_short(getattr(library, part), part)
    library.no_truncation()
    library.no_padding()
    return library


def _require_short(part: Any, name: str) -> None:
    """Raise an error for a part of a tokenizer that can make a short text so long that it fills the memory."""
    rest, growing, longest = [] if part is None else [json.loads(part.__getstate__())], 0, 1
    while rest:
        step = rest.pop()
        if isinstance(step, list):
            rest.extend(step)
        elif isinstance(step, dict):
            rest.extend(value for value in step.values() if isinstance(value, dict | list))
            growing += step.get("type") == "ByteLevel"  # it writes a byte as a character of up to two
            if step.get("type") == "Replace":
                pattern, content = step["pattern"], step["content"]
                growing += "Regex" in pattern
                longest *= max(1, len(content)) if "Regex" in pattern else 1
                fits = "Regex" in pattern or len(content) <= len(pattern["String"])
                seen = f"{str(content)[:20]!r} for {str(pattern.get('String'))[:20]!r}"
                require(fits, f"Replace in the {name} of the tokenizer", seen, "nothing longer than what it replaces")
    expected = f"at most {_LONGEST_CONTENT} characters for a match, all steps multiplied"
    require(longest <= _LONGEST_CONTENT, f"Replace in the {name} of the tokenizer", longest, expected)
    steps = f"steps with Regex or ByteLevel in the {name} of the tokenizer"
    require(growing <= _MOST_GROWING, steps, growing, f"at most {_MOST_GROWING}")


def _whole_words(chunks: Iterable[str]) -> Iterator[str]:
    """The text in parts that end with a line end or before a space, unless there is none for long."""
    rest = ""
    for chunk in chunks:
        text, begin = rest + chunk, 0
        while len(text) - begin > _AT_ONCE:
            stop = begin + _AT_ONCE
            end = text.rfind("\n", begin, stop) + 1 or text.rfind(" ", begin + 1, stop)
            end = end if end > begin else stop
            yield text[begin:end]
            begin = end
        rest = text[begin:]
    if rest:
        yield rest


def _grown(texts: Sequence[str]) -> list[str]:
    """The last text in parts: part i ends where text i ends. A character counts from its first byte on."""
    text = texts[-1] if texts else ""
    ends = [0, *itertools.accumulate(map(len, texts), max)]
    return [text[begin:end] for begin, end in itertools.pairwise(ends)]
