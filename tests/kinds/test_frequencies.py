"""How often categories occur, counted piece by piece."""

from dataclasses import dataclass

import pytest
import torch

from usd3.kinds.array import Array
from usd3.kinds.dataset import Dataset, Sequences
from usd3.kinds.frequencies import frequencies, frequencies_of_elements

TOKENS = torch.randint(3, (50, 2, 2), generator=torch.Generator().manual_seed(0))
PAD = torch.rand(50, 2, 2, generator=torch.Generator().manual_seed(1)) < 0.2
PAD[:, 1, 1] = False
SUPPORT = torch.tensor([True, True, True, False]).expand(2, 2, 4)


@dataclass(frozen=True)
class Supported(Array):
    support = SUPPORT


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr("usd3.kinds.rows.PIECE", 12)
    monkeypatch.setattr("usd3.kinds.frequencies.PIECE", 12)


@pytest.mark.parametrize("pad", [None, PAD])
def test_padding_does_not_count_and_every_category_counts_once_more(pad):
    data = Dataset("toy", 4, Sequences(TOKENS, pad), Sequences(TOKENS[:1]))
    real = TOKENS if pad is None else TOKENS[~pad]
    counts = 1 + torch.bincount(real.flatten(), minlength=4).double()
    torch.testing.assert_close(frequencies(data), counts / counts.sum())
    of_elements = frequencies_of_elements(data)
    for place in ((0, 0), (1, 0)):
        own = TOKENS[:, place[0], place[1]]
        own = own if pad is None else own[~pad[:, place[0], place[1]]]
        counts = 1 + torch.bincount(own, minlength=4).double()
        torch.testing.assert_close(of_elements[place], counts / counts.sum())


def test_categories_outside_the_support_have_frequency_0():
    data = Dataset("toy", 4, Sequences(TOKENS), Sequences(TOKENS[:1]), kind=Supported(4, (2, 2)))
    assert torch.equal(frequencies_of_elements(data) > 0, SUPPORT)
