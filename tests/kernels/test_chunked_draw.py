"""The chunked draw at the ends of what it takes."""

import pytest
import torch

from usd3.kernels.draw import Leap, draw_rows
from usd3.kernels.loss import NoiseTables


@pytest.mark.parametrize(("u", "dtype"), [(None, torch.float64), (torch.zeros(2, 0).double(), torch.int64)], ids=str)
def test_a_draw_without_rows_is_empty(u, dtype):
    leap = Leap(torch.zeros(0, dtype=torch.long), torch.zeros(5, 0, dtype=torch.float64), NoiseTables(4))
    drawn = draw_rows(torch.zeros(0, 4), leap, u, "chunked")
    assert (drawn.shape, drawn.dtype) == ((0,), dtype)
