"""Sequences in the studio."""

import pytest
import torch

from usd3.kinds.page import Frame
from usd3.kinds.rendering import Request
from usd3.kinds.sequence.kind import LetterSequence


def dna(has_ends=True):
    return LetterSequence(4 + has_ends, (8,), "ACGT", "dna", has_ends, True).page(Request())


def test_a_shorter_sequence_may_go_on_where_lengths_differ():
    page = dna()
    assert page.editor()["hole"] == "N"
    assert page.from_page(["ACG"]).given.tolist() == [[True] * 3 + [False] * 5]
    assert page.from_page(["ANG"]).given.tolist() == [[True, False, True] + [True] * 5]
    assert page.to_page(torch.tensor([[0, 1, 2, 4, 0, 0, 0, 0]])) == ["ACG"]
    with pytest.raises(ValueError, match="length of sequence 1"):
        dna(False).from_page(["ACG"])


def test_an_empty_one_beside_others_is_open():
    tokens, given, _ = dna().from_page(["", "ACGTACGT", ""])
    assert given.any(1).tolist() == [False, True, False]
    assert tokens[1].tolist() == [0, 1, 2, 3] * 2


def test_frames_show_every_element():
    page = dna()
    frame = Frame(torch.tensor([0, 4, 2, 3, 4, 4, 4, 4]), torch.ones(8), torch.zeros(8, dtype=torch.bool))
    assert page.frame(frame, page.from_page([""]))["object"] == "A·GT····"


def test_files_hold_what_was_drawn(tmp_path):
    page = dna()
    page.write(["ACG", "ACGTACGT"], tmp_path / "a.fa")
    assert (tmp_path / "a.fa").read_text() == ">sample-1\nACG\n>sample-2\nACGTACGT\n"
    page.write(["ACG", "T"], tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == "ACG\nT\n"
    for bad in (["ANG"], ["ACG", ""], ["A-"]):
        with pytest.raises(ValueError, match="holes"):
            page.write(bad, tmp_path / "b.fa")
    (tmp_path / "c.txt").write_bytes(b"\x1f\x8b packed")
    with pytest.raises(ValueError, match="packed"):
        page.read(tmp_path / "c.txt")
