"""Tokenizers: every text comes back, and strange ones do no harm."""

import json
import sys

import numpy as np
import pytest

from usd3.kinds.text import tokenizers
from usd3.kinds.text.tokenizers import Bytes, Characters, Pieces, learnt_pieces, require_tokenizers

TEXT = "the cat saw the café, 中文 and \U0001f600\n" * 5
PIECES = Pieces(learnt_pieces([TEXT], 300))
ALL = [Characters("".join(sorted(set(TEXT)))), Bytes(), PIECES]


@pytest.mark.parametrize("tokenizer", ALL, ids=lambda t: t.unit)
def test_a_text_comes_back(tokenizer):
    tokens = tokenizer.encode(TEXT)
    assert tokenizer.decode(tokens.tolist()) == TEXT
    assert 0 <= tokens.min() <= tokens.max() < tokenizer.num_classes
    assert "".join(tokenizer.pieces(tokens.tolist())) == TEXT
    assert len(tokenizer.pieces(tokens.tolist())) == len(tokens)
    assert np.concatenate(list(tokenizer.encode_all([TEXT[:50], TEXT[50:]]))).tolist() == tokens.tolist()
    assert tokenizer.encode("").size == 0


def test_pieces_write_what_they_never_saw():
    odd = "Ωmega\0\t\u200b  _ £"
    assert PIECES.decode(PIECES.encode(odd).tolist()) == odd
    assert 256 < PIECES.num_classes <= 300


def test_frequent_words_are_one_piece():
    assert " the" in PIECES.pieces(PIECES.encode("saw the cat").tolist())


def test_learning_again_gives_the_same_pieces():
    assert learnt_pieces([TEXT], 300) == PIECES.content


def test_long_texts_are_cut_between_words(monkeypatch):
    monkeypatch.setattr(tokenizers, "_AT_ONCE", 40)
    parts = list(tokenizers._whole_words([TEXT[:100], TEXT[100:]]))
    assert "".join(parts) == TEXT
    assert max(map(len, parts)) <= 40
    assert all(part.endswith("\n") for part in parts)
    assert list(tokenizers._whole_words(["x" * 90 + " y" * 10])) == ["x" * 40, "x" * 40, "x" * 10 + " y" * 10]


def test_an_unknown_character_is_named():
    with pytest.raises(ValueError, match=r"^the character 'Ω': expected those of the training text, 'abc'$"):
        Characters("abc").encode("abΩ")
    with pytest.raises(ValueError, match="the character 'b'"):
        Characters("ac\u4e2d").encode("acb")


def test_bytes_that_are_no_text_are_shown():
    assert Bytes().decode([0x61, 0xFF, 0xE4, 0xB8]) == "a\ufffd\ufffd"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "expected the content of a tokenizer.json"),
        ("no json", "expected the content of a tokenizer.json"),
        ("{}", "Model missing"),
        ("[1]", "expected the content of a tokenizer.json"),
        ('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}}', "out of vocabulary"),
        ('{"model": {"type": "WordLevel", "vocab": {"a": 4000000000}, "unk_token": "a"}}', "the largest token"),
        (
            '{"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 16777215}, "unk_token": "a"}}',
            "largest token of the tokenizer = 16777215: expected less than 10 times the size of the vocabulary, 2",
        ),
        ("[" * 5000, "expected the content of a tokenizer.json"),
    ],
)
def test_a_damaged_tokenizer_is_one_line(content, message):
    with pytest.raises(ValueError, match=message) as raised:
        Pieces(content)
    assert "\n" not in str(raised.value)


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def with_steps(part, *steps):
    """The content of a tokenizer.json with these steps, in a sequence in a sequence."""
    key = f"{part.replace('_', '')}s"
    inner = {"type": "Sequence", key: list(steps)}
    return json.dumps(json.loads(PIECES.content) | {part: {"type": "Sequence", key: [inner]}})


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


@pytest.mark.parametrize(
    ("part", "steps", "message"),
    [
        ("normalizer", [replace({"String": "a"}, "aa")] * 30, "Replace in the normalizer .* = 'aa' for 'a': expected"),
        ("decoder", [replace({"String": "a"}, "aa")], "Replace in the decoder of the tokenizer = 'aa' for 'a': expect"),
        ("normalizer", [replace({"Regex": "."}, "a" * 17)], "normalizer .* = 17: expected at most 16 characters"),
        ("normalizer", [replace({"Regex": "."}, "aaaa")] * 3, "= 64: expected at most 16 .*, all steps multiplied"),
        ("normalizer", [replace({"Regex": "x*"}, "a")] * 9, "steps with Regex or ByteLevel in .* = 9: expected at mos"),
        ("pre_tokenizer", [BYTES] * 9, "steps with Regex or ByteLevel in the pre_tokenizer .* = 9: expected at most 8"),
    ],
)
def test_a_tokenizer_that_makes_texts_ever_longer_is_refused(part, steps, message):
    with pytest.raises(ValueError, match=message) as raised:
        Pieces(with_steps(part, *steps))
    assert "\n" not in str(raised.value)


def test_a_tokenizer_may_replace_characters():
    steps = [{"type": "Prepend", "prepend": "_"}, replace({"String": " "}, "_"), replace({"Regex": "b+"}, "bb")]
    tokenizer = Pieces(with_steps("normalizer", *steps))
    assert tokenizer.decode(tokenizer.encode("a bbbb")) == "_a_bb"


def test_a_huge_tokenizer_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr(tokenizers, "MOST_JSON", 100)
    with pytest.raises(ValueError, match="size of the tokenizer = 101: expected at most 100"):
        Pieces(" " * 101)


def test_special_tokens_padding_and_truncation_change_nothing():
    """A tokenizer.json of a language model adds tokens at both ends, cuts and fills up."""
    content = json.loads(PIECES.content)
    end = PIECES.num_classes
    content["added_tokens"] = [
        {"id": end, "content": "<end>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
    ]  # fmt: skip
    content["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": end,
        "pad_type_id": 0, "pad_token": "<end>",
    }  # fmt: skip
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<end>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<end>": {"id": "<end>", "ids": [end], "tokens": ["<end>"]}},
    }
    tokenizer = Pieces(json.dumps(content))
    assert tokenizer.num_classes == end + 1
    assert tokenizer.decode(tokenizer.encode("the cat saw the cat").tolist()) == "the cat saw the cat"
    assert tokenizer.decode([*tokenizer.encode("the cat").tolist(), end]) == "the cat<end>"
    assert tokenizer.encode("a<end>").tolist()[-1] == end


def test_without_the_library_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"^pieces needs tokenizers: pip install 'usd3\[text\]'$"):
        require_tokenizers("pieces")
    with pytest.raises(ImportError, match="needs tokenizers"):
        learnt_pieces([TEXT], 300)
