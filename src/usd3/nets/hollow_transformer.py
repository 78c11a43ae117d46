"""SDDM's hollow transformer: two streams read in opposite directions, so that no output depends on its own element."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from usd3._internal.checks import as_count, require
from usd3.nets._prenorm import Encoder, Readout, two_layers
from usd3.nets._sizes import require_sizes
from usd3.nets._time import time_features

__all__ = ["HollowTransformer"]


class HollowTransformer(nn.Module):
    """Logits (B, ..., K): those of element i depend on all elements of x_t except x_i itself.

    Each of two streams, one per direction, reads the tokens [time, x_1, ..., x_L] in its order. The time and the
    `given` elements are the conditioner: they attend only to each other. A free element attends to the conditioner and
    to the free elements up to itself. The output of element i reads, in each stream, the last free element before i, or
    the time if there is none. So it depends on every other element, and not on x_i. With a given prefix these are
    SDDM's streams, except that both ends read the time. No element attends to `pad`. Given and padded elements get
    logits 0, as there is nothing to predict.

    Args:
        num_classes: K.
        length: Number of elements of an object, in row-major order.
        dim: Width.
        depth: Number of layers of each stream.
        heads: Attention heads.
        mlp: Hidden width of the MLPs.
        dropout: Dropout rate.
        output_blocks: Residual blocks of the readout "res_concat".
        readout: "res_concat": residual blocks modulated by the time. "concat": one MLP.
        timeless: The network ignores t, and `ignores_time` is True.
    """

    is_hollow = True

    def __init__(
        self,
        num_classes: int,
        length: int,
        dim: int = 256,
        depth: int = 6,
        heads: int = 8,
        mlp: int = 2048,
        dropout: float = 0.1,
        output_blocks: int = 2,
        readout: Literal["res_concat", "concat"] = "res_concat",
        timeless: bool = False,
    ):
        super().__init__()
        self.ignores_time = timeless
        self.num_classes, self.length = as_count(num_classes, "num_classes", 2), as_count(length, "length", 1)
        require_sizes(dim, depth, heads, dropout)
        as_count(dim, "dim", 4)  # at least two frequencies of the time
        require(readout in ("res_concat", "concat"), "readout", readout, "res_concat or concat")
        self.dim, self.embed = dim, nn.Embedding(num_classes, dim)
        nn.init.normal_(self.embed.weight, std=dim**-0.5)  # small enough that the positions matter
        self.given = nn.Parameter(torch.zeros(dim))
        self.rightward, self.leftward = (Encoder(length + 1, dim, depth, heads, mlp, dropout) for _ in range(2))
        self.plain = readout == "concat"
        self.readout: nn.Module = (
            two_layers(2 * dim, 2 * dim, num_classes, nn.GELU())
            if self.plain
            else Readout(num_classes, 2 * dim, dim, mlp, as_count(output_blocks, "output_blocks", 0))
        )

    def forward(self, x_t: Tensor, t: Tensor, pad: Tensor | None = None, given: Tensor | None = None) -> Tensor:
        """Logits (B, ..., K)."""
        x = x_t.flatten(1)
        require(x.shape[1] == self.length, "x_t.shape", tuple(x_t.shape), f"{self.length} elements in each object")
        given, pad = (None if mask is None else mask.flatten(1) for mask in (given, pad))
        time = time_features(torch.zeros_like(t) if self.ignores_time else t, self.dim).to(self.embed.weight.dtype)
        h = self.embed(x)
        if given is not None:
            h = h + given[..., None] * self.given
        backwards = (None if mask is None else mask.flip(1) for mask in (given, pad))
        left = _stream(self.leftward, time, h.flip(1), *backwards).flip(1)
        both = torch.cat([_stream(self.rightward, time, h, given, pad), left], -1)
        logits: Tensor = self.readout(both) if self.plain else self.readout(both, time)
        for unused in (given, pad):
            logits = logits if unused is None else logits.masked_fill(unused[..., None], 0.0)
        return logits.unflatten(1, x_t.shape[1:])  # type: ignore[no-any-return]


def _stream(encoder: nn.Module, time: Tensor, h: Tensor, given: Tensor | None, pad: Tensor | None) -> Tensor:
    """The state (B, L, E) of the stream just before each element."""
    h = torch.cat([time[:, None], h], 1)
    if given is None and pad is None:
        return encoder(h[:, :-1], causal=True)  # type: ignore[no-any-return]
    none = torch.zeros_like(h[:, 1:, 0], dtype=torch.bool)
    attend, last = _attention_and_readout(none if given is None else given, none if pad is None else pad)
    return encoder(h, attend).gather(1, last[..., None].expand(-1, -1, h.shape[-1]))  # type: ignore[no-any-return]


def _attention_and_readout(given: Tensor, pad: Tensor) -> tuple[Tensor, Tensor]:
    """For the tokens [time, x_1, ..., x_L]: the attention mask, and the token that each element reads.

    Returns:
        attend: Booleans (B, 1 + L, 1 + L), whether each query (row) attends to each key (column).
        last: Indices (B, L) of tokens.
    """
    conditioner, pad = F.pad(given, (1, 0), value=True), F.pad(pad, (1, 0), value=False)
    order = torch.arange(pad.shape[1], device=pad.device)
    before = order <= order[:, None]
    attend = ~pad[:, None] & (conditioner[:, None] | (before & ~conditioner[:, :, None]))
    last = torch.where(conditioner | pad, 0, order).cummax(1).values
    return attend, last[:, :-1]
