"""The held-out objects of an evaluation: long enough, and no more than memory holds."""

import pytest
import torch

from usd3.evaluation import held_out
from usd3.evaluation.held_out import HeldOut
from usd3.evaluation.references import fitted_models
from usd3.kinds.dataset import Dataset, Sequences, Windows

TOKENS = torch.arange(60).reshape(10, 6) % 5
PAD = torch.arange(6) >= torch.tensor([6, 3, 5, 4, 6, 2, 6, 5, 1, 6])[:, None]


def data(pad=None):
    rows = Sequences(TOKENS, pad)
    return Dataset("d", 5, rows, rows)


@pytest.mark.parametrize("piece", [6, 2**22])
def test_objects_that_end_too_soon_are_left_out(piece, monkeypatch):
    """Also if they are looked at one after the other."""
    monkeypatch.setattr(held_out, "PIECE", piece)
    long_enough = [0, 2, 4, 6, 7, 9]  # five or more real elements: three after a prefix of two
    found = HeldOut.after(2, data(PAD))
    assert torch.equal(found.truth, TOKENS[long_enough])
    assert torch.equal(found.pad, PAD[long_enough])
    assert found.skipped == 4
    limited = HeldOut.after(2, data(PAD), 3)
    assert torch.equal(limited.truth, TOKENS[long_enough[:3]])
    assert limited.skipped == 4


def test_too_many_objects_are_told_and_not_read(monkeypatch):
    stream = torch.zeros(1, dtype=torch.uint8).expand(10**13)
    many = Dataset("d", 2, Windows(stream[:100], 64), Windows(stream, 64, stride=64, table=torch.tensor([0, 1])))
    monkeypatch.setattr(held_out, "_MOST_ELEMENTS", 640)
    with pytest.warns(UserWarning, match=r"of 156,250,000,000 held-out objects the first 10 are used \(--limit says"):
        assert HeldOut.after(0, many).truth.shape == (10, 64)
    assert HeldOut.after(0, many, 12).truth.shape == (12, 64)  # as the user says


def test_a_chain_of_very_many_categories_is_left_out(monkeypatch):
    """It would need a number for each pair of them."""
    assert list(fitted_models(data()).drawn) == ["Markov chain"]
    monkeypatch.setattr("usd3.evaluation.references._MOST_STATES", 4)
    assert fitted_models(data()) == ({}, {})
