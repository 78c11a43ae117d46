"""SDDM's masked network: an element is hidden, the network reads the rest, once for every element."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from usd3._internal.checks import as_count, require
from usd3.nets._prenorm import Encoder, Readout
from usd3.nets._sizes import require_sizes
from usd3.nets._time import time_features

__all__ = ["MaskedTransformer"]

_TOKENS = 2**14  # of masked copies read at once
_WITHOUT_GRADIENT = 8  # times as many then, as nothing is kept


class MaskedTransformer(nn.Module):
    """Logits (B, ..., K) of x_0 from all elements of x_t but the one in question; row-major order, `length` in all.

    For element d, x_d is replaced by one more category, a bidirectional pre-norm encoder with a leading time token
    reads the whole, and the logits are those at d: one pass for each element. It is told which elements are `given`,
    and does not attend to `pad`. With `timeless` it sees the same time always, and `ignores_time` is True.

    `chunk` masked copies are read at once, by default as many as have 16384 tokens, and without a gradient eight times
    as many. Where there are more, each chunk is computed once more in the backward pass, so that memory does not grow
    with their number.
    """

    is_hollow = True

    def __init__(
        self,
        num_classes: int,
        length: int,
        dim: int = 256,
        depth: int = 6,
        heads: int = 8,
        mlp: int = 1024,
        dropout: float = 0.0,
        output_blocks: int = 2,
        timeless: bool = False,
        chunk: int | None = None,
    ):
        super().__init__()
        self.ignores_time = timeless
        self.num_classes, self.length = as_count(num_classes, "num_classes", 2), as_count(length, "length", 1)
        self.chunk = max(1, _TOKENS // (length + 1)) if chunk is None else as_count(chunk, "chunk", 1)
        require_sizes(as_count(dim, "dim", 4), depth, heads, dropout)
        self.dim, self.dropout, self.embed = dim, dropout, nn.Embedding(num_classes + 1, dim)
        nn.init.normal_(self.embed.weight, std=dim**-0.5)  # not so large that the positions would be lost
        self.given = nn.Parameter(torch.zeros(dim))
        self.encoder = Encoder(length + 1, dim, depth, heads, mlp, dropout)
        self.readout = Readout(num_classes, dim, dim, mlp, as_count(output_blocks, "output_blocks", 0))

    def forward(
        self, x_t: Tensor, t: Tensor, pad: Tensor | None = None, given: Tensor | None = None, at: Tensor | None = None
    ) -> Tensor:
        """Logits at every element, or (B, P, K) at the elements `at`, (B, P) indices in row-major order."""
        x = x_t.flatten(1)
        require(x.shape[1] == self.length, "x_t.shape", tuple(x_t.shape), f"{self.length} elements in each object")
        given, pad = (None if mask is None else mask.flatten(1) for mask in (given, pad))
        time = time_features(torch.zeros_like(t) if self.ignores_time else t, self.dim).to(self.embed.weight.dtype)
        hidden = torch.arange(self.length, device=x.device).expand_as(x) if at is None else at
        objects = torch.arange(len(x), device=x.device)[:, None].expand_as(hidden)
        learning = torch.is_grad_enabled()
        size = self.chunk if learning or self.training else _WITHOUT_GRADIENT * self.chunk
        chunks = list(zip(objects.flatten().split(size), hidden.flatten().split(size)))
        again = learning and len(chunks) > 1

        def read(rows: Tensor, hidden: Tensor) -> Tensor:
            masks = (None if mask is None else mask[rows] for mask in (given, pad))
            return self._read(x[rows], time[rows], hidden, *masks)

        random = self.training and self.dropout > 0
        logits = [
            checkpoint(read, *part, use_reentrant=False, preserve_rng_state=random) if again else read(*part)
            for part in chunks
        ]
        shape = x_t.shape if at is None else at.shape
        return torch.cat(logits).reshape(*shape, self.num_classes)

    def _read(self, x: Tensor, time: Tensor, hidden: Tensor, given: Tensor | None, pad: Tensor | None) -> Tensor:
        """Logits (n, K) at one hidden element of each of n objects."""
        h = self.embed(x.scatter(1, hidden[:, None], self.num_classes))
        if given is not None:
            h = h + given[..., None] * self.given
        attend = None if pad is None else F.pad(~pad, (1, 0), value=True)[:, None]
        h = self.encoder(torch.cat([time[:, None], h], 1), attend)
        h = h.gather(1, (hidden + 1)[:, None, None].expand(-1, -1, self.dim))
        return self.readout(h, time).squeeze(1)  # type: ignore[no-any-return]
