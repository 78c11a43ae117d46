"""A codebook: it replaces vectors by the nearest of K codes."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from usd3._internal.checks import as_count, as_number, require

__all__ = ["Codebook", "CodebookUpdate", "Quantised"]

CodebookUpdate = Literal["ema", "gradient"]


class Quantised(NamedTuple):
    """The output of a codebook.

    Args:
        vectors: (n, dim) the codes; their gradient goes to the vectors that they replace.
        tokens: (n,) the indices of the codes.
        loss: the loss of the codebook.
        perplexity: the perplexity of the indices in the batch.
    """

    vectors: Tensor
    tokens: Tensor
    loss: Tensor
    perplexity: Tensor


class Codebook(nn.Module):
    """Replaces each vector by the nearest of K codes in L2.

    In training mode a call also updates the codes, as BatchNorm updates its averages. Nothing waits for the device, so
    a CUDA graph can capture a call. Everything is computed in float32, also under autocast.

    Args:
        num_codes: number of codes, K.
        dim: length of a code.
        update: "ema": a code is the moving average of the vectors it replaces; "gradient": the codes are weights,
            and the loss pulls each towards the vectors it replaces.
        commitment: weight of the loss that pulls vectors towards their codes.
        decay: decay of the moving average.
        restart_after: a code that was nearest to no vector in so many calls becomes a random vector of the batch;
            None: never. In the first call of a new codebook, all codes that are not used are replaced in this way.
    """

    codes: Tensor
    sizes: Tensor
    sums: Tensor
    idle: Tensor

    def __init__(
        self,
        num_codes: int,
        dim: int,
        update: CodebookUpdate = "ema",
        commitment: float = 0.25,
        decay: float = 0.99,
        restart_after: int | None = 100,
    ):
        super().__init__()
        self.num_codes, self.dim = as_count(num_codes, "num_codes", 2), as_count(dim, "code_dim", 1)
        require(update in ("ema", "gradient"), "codebook", update, "ema or gradient")
        self.update = update
        self.commitment = as_number(commitment, "commitment", 0, closed=True)
        self.decay = as_number(decay, "decay", 0, 1)
        self.restart_after = math.inf if restart_after is None else as_count(restart_after, "restart_after", 1)
        codes = torch.randn(num_codes, dim) / dim**0.5
        if update == "ema":
            self.register_buffer("codes", codes)
            self.register_buffer("sizes", torch.ones(num_codes))
            self.register_buffer("sums", codes.clone())
        else:
            self.codes = nn.Parameter(codes)
        self.register_buffer("idle", torch.full((num_codes,), float(self.restart_after)))

    @torch.no_grad()
    def nearest(self, vectors: Tensor) -> Tensor:
        """Index of the nearest code for each vector: (n, dim) -> (n,) int64."""
        with torch.autocast(vectors.device.type, enabled=False):
            codes = self.codes.float()
            return (codes.square().sum(1) - 2 * vectors.float() @ codes.T).argmin(1)

    def forward(self, vectors: Tensor) -> Quantised:
        """Replace vectors (n, dim) by codes; their gradient is the one of the codes (straight-through)."""
        tokens = self.nearest(vectors)
        with torch.autocast(vectors.device.type, enabled=False):
            z = vectors.float()
            # (n, K) one-hot: sums by index would depend on the order in which a GPU adds
            chosen = (tokens[:, None] == torch.arange(self.num_codes, device=z.device)).to(z.dtype)
            codes = chosen @ self.codes if self.update == "gradient" else self.codes[tokens]
            loss = self.commitment * (z - codes.detach()).square().mean()
            if self.update == "gradient":
                loss = loss + (z.detach() - codes).square().mean()
            if self.training:
                self._learn(z.detach(), chosen)
            share = chosen.mean(0)
            perplexity = torch.exp(-(share * share.clamp(min=1e-10).log()).sum())
            return Quantised(z + (codes - z).detach(), tokens, loss, perplexity)

    @torch.no_grad()
    def _learn(self, z: Tensor, chosen: Tensor) -> None:
        """Update the averages, and replace codes that were unused for too long."""
        counts = chosen.sum(0)
        used = counts > 0
        idle = (self.idle + 1).masked_fill(used, 0.0)
        dead = idle >= self.restart_after
        fresh = z[torch.randint(len(z), (self.num_codes,), device=z.device)]
        if self.update == "ema":
            self.sizes.lerp_(counts, 1 - self.decay).masked_fill_(dead, 1.0)
            sums = self.sums.lerp(chosen.T @ z, 1 - self.decay)
            self.sums.copy_(torch.where(dead[:, None], fresh, sums))
            # of an unused code, sizes and sums shrink to 0 at the same rate: the code stays as it is
            self.codes.copy_(torch.where((used | dead)[:, None], self.sums / self.sizes[:, None], self.codes))
        else:
            self.codes.copy_(torch.where(dead[:, None], fresh, self.codes))
        self.idle.copy_(idle.masked_fill(dead, 0.0))
