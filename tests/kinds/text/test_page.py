"""Texts with gaps in the studio."""

import json

import pytest
import torch

from usd3.kinds.page import Frame
from usd3.kinds.rendering import Request
from usd3.kinds.text.kind import Text
from usd3.kinds.text.tokenizers import learnt_pieces

LETTERS = " _abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def page():
    return Text(len(LETTERS), (12,), alphabet=LETTERS).page(Request())


def encoded(page, text):
    return torch.tensor([page.kind.codec.encode(text).tolist()])


def test_a_text_with_gaps_comes_back_as_long_as_it_was(page):
    prompt = page.from_page(["ab__e"])
    assert prompt.given[0].tolist() == [True, True, False, False, True] + [False] * 7
    assert page.to_page(encoded(page, "abcdefghijkl"), prompt) == ["abcde"]


def test_a_text_without_gaps_goes_on_to_the_end_of_the_window(page):
    prompt = page.from_page(["abc"])
    assert page.to_page(encoded(page, "abcdefghijkl"), prompt) == ["abcdefghijkl"]


def test_texts_are_refused_that_are_too_long_or_have_other_letters(page):
    for text, word in (
        ("a" * 13, "13 characters"),
        ("a" * 10**5, "100,000"),
        ("A", "^the text has the character 'A'"),
        ("a\0", r"\\x00"),
    ):
        with pytest.raises(ValueError, match=word):
            page.from_page([text])


def test_files_are_read_as_far_as_a_window_reaches(page, tmp_path):
    (tmp_path / "a.txt").write_text("abc def ghi jkl\n")
    assert page.read(tmp_path / "a.txt") == ("abc def ghi ", ["the first 12 of 15 characters"])
    (tmp_path / "b.txt").write_text("A")
    with pytest.raises(ValueError, match="'A'"):
        page.read(tmp_path / "b.txt")


def test_drawn_underscores_are_written_as_they_are(page, tmp_path):
    page.write(["a_b", "cd"], tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == "----- 1 -----\na_b\n\n----- 2 -----\ncd\n\n"
    for suffix in (".png", ".npz"):
        page.write(["a_b", "cd"], tmp_path / f"a{suffix}")
        assert (tmp_path / f"a{suffix}").stat().st_size > 0
    with pytest.raises(ValueError, match=r"1\.\.12"):
        page.write([""], tmp_path / "b.npz")


@pytest.mark.parametrize("tokenizer", ["bytes", "pieces"])
def test_frames_of_longer_tokens_have_a_number_for_each_character(tokenizer):
    pytest.importorskip("tokenizers")
    text = "the cat and the hat: Zoë"
    content = learnt_pieces([text * 20], 300)
    kind = Text(256, (24,), "bytes")
    if tokenizer == "pieces":
        size = len(json.loads(content)["model"]["vocab"])
        kind = Text(size, (24,), "pieces", pieces=content, characters_per_token=3.0)
    page = kind.page(Request())
    tokens = kind.codec.encode(text)[:24]
    row = torch.zeros(24, dtype=torch.long)
    row[: len(tokens)] = torch.as_tensor(tokens.astype("int64"))
    shown = page.frame(Frame(row, torch.linspace(0, 1, 24), torch.arange(24) > 3), page.from_page([""]))
    assert len(shown["object"]) == len(shown["sure"]) == len(shown["open"])
    assert shown["object"].startswith("the cat and the hat")


def test_a_file_with_many_rare_words_is_cut_to_the_tokens_of_a_window(tmp_path):
    pytest.importorskip("tokenizers")
    content = learnt_pieces(["the cat and the hat " * 20], 300)
    size = len(json.loads(content)["model"]["vocab"])
    page = Text(size, (24,), "pieces", pieces=content, characters_per_token=4.0).page(Request())
    (tmp_path / "a.txt").write_text("xyzzy qwrt " * 30)
    text, notes = page.read(tmp_path / "a.txt")
    assert 0 < len(page.kind.codec.encode(text)) <= 24
    assert notes == [f"the first {len(text)} of 330 characters"]
