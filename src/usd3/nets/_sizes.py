"""Checks that the networks share."""

from usd3._internal.checks import as_count, require

__all__ = ["require_sizes"]


def require_sizes(dim: int, depth: int, heads: int, dropout: float) -> None:
    """Refuse sizes that no encoder can have."""
    as_count(depth, "depth", 1)
    require(dim % (2 * heads) == 0, "dim", dim, f"a multiple of 2 heads = {2 * heads}")
    require(0 <= dropout < 1, "dropout", dropout, "a number in [0, 1)")
