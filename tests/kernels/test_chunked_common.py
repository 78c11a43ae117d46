"""What the chunked losses and draws share."""

import pytest
import torch

from usd3.kernels.chunked_common import data_logits, fill_softmax, numbers_of_rows
from usd3.kernels.loss import NoiseTables

NUMBERS = torch.arange(10.0).reshape(2, 5)  # of 5 objects, with 3 rows each


@pytest.mark.parametrize("first", [0, 4])
@pytest.mark.parametrize(("start", "stop"), [(0, 3), (0, 11), (2, 4), (4, 5), (5, 11), (7, 7)])
def test_rows_of_any_chunk_have_the_numbers_of_their_objects(first, start, stop):
    """Chunks begin and end inside an object, and in a part of a problem rows are counted from its first one."""
    expected = NUMBERS[:, [(first + row) // 3 for row in range(start, stop)]]
    assert torch.equal(numbers_of_rows(NUMBERS, 3, slice(start, stop), first), expected)
    assert torch.equal(numbers_of_rows(NUMBERS, 3, torch.arange(start, stop), first), expected)


def test_rows_out_of_order_have_the_numbers_of_their_objects():
    rows = torch.tensor([9, 0, 4])
    assert numbers_of_rows(NUMBERS, 3, rows, 4)[0].tolist() == [4, 1, 2]


@pytest.mark.parametrize("mask", [-1, 0, 3])
def test_the_softmax_is_relative_to_the_largest_logit_of_data(mask):
    """The logit of the mask, however large, counts neither for the maximum nor for the sum."""
    logits = torch.tensor([[9.0, 1.0, 2.0, 8.0], [5.0, 7.0, -1.0, 4.0]])
    e, at = torch.empty(2, 4), torch.tensor([[2], [1]])
    total, below_top = fill_softmax(data_logits(logits, e, NoiseTables(4, mask), slice(0, 2)), e, at)
    data = [z for z in range(4) if z != mask]
    top = logits[:, data].amax(1, keepdim=True)
    expected = torch.where(torch.arange(4) == mask, 0.0, (logits - top).exp()).scatter(1, at, 0.0)
    torch.testing.assert_close(e, expected)
    torch.testing.assert_close(total, expected.sum(1).double())
    torch.testing.assert_close(below_top, (logits.gather(1, at) - top).double())


@pytest.mark.parametrize("rows", [slice(1, 4), torch.tensor([1, 2, 3])])
@pytest.mark.parametrize("first", [0, 5])
def test_each_row_has_the_support_of_its_element(rows, first):
    support = torch.tensor([[True, False], [False, True], [True, True]])
    logits = torch.ones(3, 2)
    chosen = data_logits(logits, torch.empty(3, 2), NoiseTables(2, support=support), rows, first)
    expected = support[[(row + first) % 3 for row in (1, 2, 3)]]
    assert torch.equal(chosen == 1, expected)
    assert torch.equal(chosen == -torch.inf, ~expected)
    assert (logits == 1).all()
