"""SDDM's masked network: one pass per element, in which that element is masked."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from usd3._internal.checks import as_count, require
from usd3.nets._prenorm import Encoder, Readout
from usd3.nets._sizes import require_sizes
from usd3.nets._time import time_features

__all__ = ["MaskedTransformer"]

_TOKENS = 2**14  # in one pass
_WITHOUT_GRADIENT = 8  # times as many, because no activations are kept


class MaskedTransformer(nn.Module):
    """Logits (B, ..., K): those of element i depend on all elements of x_t except x_i itself.

    For element i, x_i is replaced by one more category, the mask. A bidirectional pre-norm encoder with a leading time
    token reads this masked copy of the object, and the logits are those at i. It knows which elements are `given`, and
    does not attend to `pad`.

    An object of L elements has L masked copies. They are read in chunks. With more than one chunk, the backward pass
    computes each chunk again, so that memory does not grow with their number.

    Args:
        num_classes: K.
        length: Number of elements of an object, in row-major order.
        dim: Width.
        depth: Number of layers.
        heads: Attention heads.
        mlp: Hidden width of the MLPs.
        dropout: Dropout rate.
        output_blocks: Residual blocks of the readout.
        timeless: The network ignores t, and `ignores_time` is True.
        chunk: Masked copies in one chunk, and eight times as many without a gradient; None: 16384 tokens.
    """

    is_hollow = True
    can_compile = False  # a loop over many chunks, each of which would be compiled

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
        require_sizes(dim, depth, heads, dropout)
        as_count(dim, "dim", 4)  # at least two frequencies of the time
        self.dim, self.dropout, self.embed = dim, dropout, nn.Embedding(num_classes + 1, dim)
        nn.init.normal_(self.embed.weight, std=dim**-0.5)  # small enough that the positions matter
        self.given = nn.Parameter(torch.zeros(dim))
        self.encoder = Encoder(length + 1, dim, depth, heads, mlp, dropout)
        self.readout = Readout(num_classes, dim, dim, mlp, as_count(output_blocks, "output_blocks", 0))

    def forward(
        self, x_t: Tensor, t: Tensor, pad: Tensor | None = None, given: Tensor | None = None, at: Tensor | None = None
    ) -> Tensor:
        """Logits (B, ..., K), or (B, P, K) at the elements `at`, (B, P) indices in row-major order."""
        x = x_t.flatten(1)
        require(x.shape[1] == self.length, "x_t.shape", tuple(x_t.shape), f"{self.length} elements in each object")
        given, pad = (None if mask is None else mask.flatten(1) for mask in (given, pad))
        time = time_features(torch.zeros_like(t) if self.ignores_time else t, self.dim).to(self.embed.weight.dtype)
        masked = torch.arange(self.length, device=x.device).expand_as(x) if at is None else at
        objects = torch.arange(len(x), device=x.device)[:, None].expand_as(masked)
        with_gradient = torch.is_grad_enabled()
        size = self.chunk if with_gradient or self.training else _WITHOUT_GRADIENT * self.chunk
        chunks = list(zip(objects.flatten().split(size), masked.flatten().split(size)))
        recompute = with_gradient and len(chunks) > 1

        def read(rows: Tensor, masked: Tensor) -> Tensor:
            masks = (None if mask is None else mask[rows] for mask in (given, pad))
            return self._read(x[rows], time[rows], masked, *masks)

        has_dropout = self.training and self.dropout > 0
        logits = [
            checkpoint(read, *part, use_reentrant=False, preserve_rng_state=has_dropout) if recompute else read(*part)
            for part in chunks
        ]
        shape = x_t.shape if at is None else at.shape
        return torch.cat(logits).reshape(*shape, self.num_classes)

    def _read(self, x: Tensor, time: Tensor, masked: Tensor, given: Tensor | None, pad: Tensor | None) -> Tensor:
        """Logits (n, K) of n objects (n, L), each at its masked element `masked` (n,)."""
        h = self.embed(x.scatter(1, masked[:, None], self.num_classes))
        if given is not None:
            h = h + given[..., None] * self.given
        attend = None if pad is None else F.pad(~pad, (1, 0), value=True)[:, None]
        h = self.encoder(torch.cat([time[:, None], h], 1), attend)
        h = h.gather(1, (masked + 1)[:, None, None].expand(-1, -1, self.dim))
        return self.readout(h, time).squeeze(1)  # type: ignore[no-any-return]
