"""Objects that break the rules of their kind, such as Sudoku boards, drawn again."""

from collections.abc import Callable

import torch
from torch import Tensor

from usd3._internal.random import seed_of

__all__ = ["TRIES", "until_valid"]

TRIES = 5
"""How often an object is drawn at most, unless the user says otherwise."""


def until_valid(
    draw: Callable[[Tensor, int], Tensor], obeys: Callable[[Tensor], Tensor | None], num: int, tries: int, seed: int
) -> Tensor:
    """Objects (num, ...); one that breaks the rules of its kind is drawn again, at most `tries` times in all.

    Args:
        draw: `draw(rows, seed)` draws the objects of these rows, int64 (n,).
        obeys: `Kind.obeys`.
        num: number of objects.
        tries: how often an object is drawn at most.
        seed: of the first draws; the others have seeds of their own.
    """
    x = draw(torch.arange(num), seed)
    for attempt in range(1, tries):
        valid = obeys(x)
        wrong = torch.empty(0) if valid is None else (~valid).nonzero().squeeze(1)
        if not len(wrong):
            break
        x = x.index_copy(0, wrong, draw(wrong, seed_of(seed, -2 - attempt)))
    return x
