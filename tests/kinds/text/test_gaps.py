"""Gaps in texts."""

import pytest

from usd3.kinds.text.gaps import with_gaps
from usd3.kinds.text.tokenizers import Bytes, Characters, Pieces, learnt_pieces

LETTERS = Characters("\n _abcdefghijklmnopqrstuvwxyz\\")


def shown(text, tokenizer=LETTERS, rate=1.0):
    """The text with * for what is to draw."""
    gapped = with_gaps(text, tokenizer, rate)
    pieces = tokenizer.pieces(gapped.tokens)
    return "".join(piece if given else "*" for piece, given in zip(pieces, gapped.given))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it was the ____ of times", "it was the **** of times"),
        ("___", "***"),
        ("no gap", "no gap"),
        ("a_b__c", "a*b**c"),
        ("snake\\_case ____", "snake_case ****"),
        ("\\__", "_*"),
        ("_\\_", "*_"),
        ("a\\b\\", "a\\b\\"),
        ("two\nlines__", "two\nlines**"),
        ("", ""),
    ],
)
def test_underscores_are_gaps_unless_they_are_escaped(text, expected):
    assert shown(text) == expected
    assert with_gaps(text, LETTERS).has_gaps == ("*" in expected)


def test_a_gap_of_pieces_is_about_as_long():
    pieces = Pieces(learnt_pieces(["it was the best of times " * 20], 300))
    gapped = with_gaps("it was the ________ of times", pieces, 4.0)
    assert gapped.given.count(False) == 2
    assert with_gaps("it was _", pieces, 4.0).given.count(False) == 1
    before, after = gapped.tokens[: gapped.given.index(False)], gapped.tokens[gapped.given.index(False) + 2 :]
    assert (pieces.decode(before), pieces.decode(after)) == ("it was the", " of times")  # a word has its space in it
    assert pieces.decode(with_gaps("it was the ", pieces, 4.0).tokens) == "it was the "


def test_a_gap_of_bytes_has_as_many_bytes():
    assert with_gaps("é__", Bytes()).given == [True, True, False, False]
