"""What the chunked losses and draws share."""

import pytest
import torch

from usd3.kernels.chunked_common import numbers_of_rows

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
