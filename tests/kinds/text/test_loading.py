"""Texts as data: windows, the split by position, and large files that stay on the disk."""

import json

import numpy as np
import pytest
import torch

from usd3.kinds.options import DataConfig
from usd3.kinds.text import loading
from usd3.kinds.text.kind import Text
from usd3.kinds.text.tokenizers import learnt_pieces
from usd3.kinds.token_files import token_file

LINES = [f"line {i}: the quick brown fox jumps over {i * 7} lazy dogs\n" for i in range(60)]
TEXT = "".join(LINES)


@pytest.fixture
def load(tmp_path, monkeypatch):
    """A function that loads a text with options."""
    monkeypatch.setenv("USD3_CACHE", str(tmp_path / "cache"))

    def load(content=TEXT, kind=None, length=16, **options):
        path = tmp_path / "book.txt"
        if content is not None:  # else the file stays as it is
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        data = DataConfig("text", str(path), length=length, test_fraction=options.pop("test_fraction", 0.1))
        data.text = type(data.text)(**options)
        return data.load(kind)

    return load


def text_of(dataset, rows):
    return "".join(dataset.kind.objects(rows))


def test_training_windows_begin_everywhere_and_the_end_is_held_out(load):
    dataset = load()
    cut = int(len(TEXT) * 0.9)
    assert dataset.name == "book"
    assert dataset.kind.alphabet == "".join(sorted(set(TEXT)))
    assert len(dataset.train) == cut - 15
    assert dataset.kind.objects(dataset.train.take(torch.tensor([0, 7]))[0]) == [TEXT[:16], TEXT[7:23]]
    held_out = TEXT[cut:]
    windows = [held_out[i : i + 16] for i in range(0, len(held_out) - 15, 16)]
    found = dataset.kind.objects(dataset.test.tokens)
    assert sorted(found) == sorted(windows)
    assert found != windows  # in a random order: the first ones stand for all


def test_a_short_text_holds_one_window_out(load):
    dataset = load("ab" * 20, length=16)
    assert (len(dataset.train), len(dataset.test)) == (9, 1)


@pytest.mark.parametrize("content", ["", "ab" * 15 + "a"])
@pytest.mark.parametrize("tokenizer", [None, "bytes"])
def test_a_text_shorter_than_two_windows_is_refused_with_advice(load, content, tokenizer):
    message = rf"{len(content)} (characters|bytes): expected at least 32, two windows: .*--data\.length below 16"
    with pytest.raises(ValueError, match=message):
        load(content, tokenizer=tokenizer)


def test_a_text_of_too_few_pieces_is_refused(load):
    with pytest.raises(ValueError, match=r"tokens held out: expected at least 64: a longer text"):
        load(TEXT[:1000], length=64, tokenizer="bpe", vocabulary=400)


def test_a_text_of_one_character_is_refused(load):
    with pytest.raises(ValueError, match="one character, 'a': expected a text"):
        load("a" * 100)


def test_bytes_are_those_of_the_file_as_it_is(load):
    content = b"\xff\x00\r\nany bytes " * 20
    dataset = load(content, tokenizer="bytes")
    assert dataset.num_classes == 256
    assert bytes(dataset.train.take(torch.tensor([0]))[0][0].tolist()) == content[:16]


def test_bytes_of_another_encoding_are_those_of_utf8(load):
    dataset = load(("né " * 50).encode("latin-1"), tokenizer="bytes", encoding="latin-1")
    assert bytes(dataset.train.take(torch.tensor([0]))[0][0].tolist()) == ("né " * 50).encode()[:16]


def test_very_many_characters_are_learnt_as_bytes(load, capsys):
    many = "".join(map(chr, range(0x4E00, 0x4E00 + 1100))) * 2
    assert load(many[:2000]).kind.tokenizer == "bytes"
    assert "has 1,100 different characters, so its bytes are learnt" in capsys.readouterr().err
    assert load(many[:2000], tokenizer="characters").num_classes == 1100


def test_other_line_ends_are_told(load, capsys):
    dataset = load(TEXT.replace("\n", "\r\n"))
    assert r"the line ends '\r\n' are read as '\n'" in capsys.readouterr().err
    assert "\r" not in dataset.kind.alphabet


def test_pieces_are_learnt_from_the_training_part_alone(load):
    secret = "zyzzyva " * 100
    dataset = load(TEXT + secret, tokenizer="bpe", vocabulary=400, test_fraction=0.2)
    assert dataset.kind.tokenizer == "pieces"
    assert "zyzzyva" not in dataset.kind.pieces
    assert TEXT.startswith(text_of(dataset, dataset.train.take(torch.tensor([0]))[0]))
    assert 1.5 < dataset.kind.characters_per_token < 8


def test_a_tokenizer_can_be_given(load, tmp_path):
    (tmp_path / "tokenizer.json").write_text(learnt_pieces([TEXT], 300))
    kind = load(tokenizer=str(tmp_path / "tokenizer.json")).kind
    (tmp_path / "tokenizer.json").unlink()  # the model is complete by itself
    assert Text(kind.num_classes, kind.shape, kind.tokenizer, "", kind.pieces).codec.encode("fox").size > 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"data\.text\.tokenizer = .*: expected characters, bytes, bpe or a tokenizer\.json that exists"),
        (b"\xff\xfe", "expected a tokenizer.json, but it is no text"),
        (b"{}", "Model missing"),
        (b" " * 101, r"bytes of .*tokenizer\.json = 101: expected at most 100"),
    ],
)
def test_a_tokenizer_that_is_none_is_refused(load, tmp_path, monkeypatch, content, message):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(loading, "MOST_JSON", 100)
    with pytest.raises(ValueError, match=message):
        load(tokenizer=str(path))
    with pytest.raises(ValueError, match=r"\(is bytes meant\?\)"):
        load(tokenizer="byte")


def test_a_tokenizer_that_loses_something_is_told(load, tmp_path):
    lower = json.loads(learnt_pieces([TEXT], 300)) | {"normalizer": {"type": "Lowercase"}}
    (tmp_path / "lower.json").write_text(json.dumps(lower))
    with pytest.warns(UserWarning, match="changes the text, in spaces, case or unknown characters"):
        load(TEXT.replace("fox", "Fox"), tokenizer=str(tmp_path / "lower.json"))


def test_a_model_reads_another_text_with_its_own_tokenizer(load):
    kind = load().kind
    other = load("fox over fox " * 20, kind)
    assert other.kind == kind
    assert text_of(other, other.train.take(torch.tensor([0]))[0]) == "fox over fox fox"
    with pytest.raises(
        ValueError, match=r"characters of .*book\.txt = '!É': expected the \d+ that the model has learnt"
    ):
        load("fox É! " * 20, kind)


# ---- larger than memory -------------------------------------------------------------------------------------------


def same(first, second):
    """Whether two data sets have the same windows."""
    return all(
        torch.equal(a.tokens.long(), b.tokens.long())
        for a, b in ((first.train, second.train), (first.test, second.test))
    )


@pytest.mark.parametrize("tokenizer", ["characters", "bytes", None])
def test_a_large_ascii_file_is_mapped_as_it_is(load, monkeypatch, tokenizer):
    small = load(tokenizer=tokenizer)
    monkeypatch.setattr(loading, "_MOST_IN_MEMORY", 100)
    monkeypatch.setattr(loading, "token_file", lambda *_: pytest.fail("tokens were written"))
    large = load(tokenizer=tokenizer)
    assert same(small, large)
    assert large.train.stream.dtype == torch.uint8
    assert bytes(large.train.stream[:6].tolist()) == b"line 0"


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (TEXT.replace("fox", "fuchß"), {}),
        (TEXT.replace("fox", "狐"), {"tokenizer": "bytes", "encoding": "utf-8"}),
        (TEXT.replace("\n", "\r\n"), {}),
        (TEXT, {"tokenizer": "bpe", "vocabulary": 300}),
        (TEXT.encode("utf-16"), {}),
    ],
    ids=["characters", "bytes", "line ends", "pieces", "utf-16"],
)
def test_other_large_files_are_tokenised_into_a_file_once(load, monkeypatch, content, options):
    small = load(content, **options)
    monkeypatch.setattr(loading, "_MOST_IN_MEMORY", 100)
    monkeypatch.setattr("usd3.kinds.text.sources.BLOCK", 64)
    made = []

    def counted(source, about, num_classes, chunks, *rest, **count):
        return token_file(source, about, num_classes, lambda: made.append(1) or chunks(), *rest, **count)

    monkeypatch.setattr(loading, "token_file", counted)
    large = load(content, **options)
    assert same(small, large)
    assert made == [1, 1]  # the two parts
    assert same(small, load(None, **options))
    assert made == [1, 1]


def test_tokens_of_a_large_file_depend_on_the_alphabet(load, monkeypatch):
    monkeypatch.setattr(loading, "_MOST_IN_MEMORY", 100)
    first = load(TEXT.replace("fox", "fuchß"))
    wider = Text(first.num_classes + 1, (16,), "characters", "\t" + first.kind.alphabet)
    assert np.array_equal(load(TEXT.replace("fox", "fuchß"), wider).test.tokens, first.test.tokens + 1)
