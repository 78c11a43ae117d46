"""Work in batches."""

import pytest
import torch

from usd3.pipeline.batches import in_batches


def test_batches_are_halved_where_memory_does_not_suffice():
    sizes = []

    def work(rows: slice) -> torch.Tensor:
        sizes.append(rows.stop - rows.start)
        if sizes[-1] > 3:
            raise torch.OutOfMemoryError
        return torch.arange(rows.start, rows.stop)

    assert in_batches(work, 10, 8).tolist() == list(range(10))
    assert sizes[:2] == [8, 4]

    def never(rows: slice) -> torch.Tensor:
        raise torch.OutOfMemoryError

    with pytest.raises(MemoryError, match="one object alone"):
        in_batches(never, 2, 2)
