"""Checks that the networks share."""

from usd3._internal.checks import as_count, require

__all__ = ["require_sizes"]


def require_sizes(dim: int, depth: int, heads: int, dropout: float) -> None:
    """Raise a ValueError for sizes that no transformer can have. Rotary positions need an even width of each head."""
    as_count(depth, "depth", 1)
    require(dim % (2 * heads) == 0, "dim", dim, f"a multiple of {2 * heads}, twice the number of heads")
    require(0 <= dropout < 1, "dropout", dropout, "a number in [0, 1)")
