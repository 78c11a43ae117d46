"""The paper's sequence transformer: post-norm layers, each modulated by the time through FiLM.

The paper uses it for music and images, and tauLDR used it before. tauLDR's public code rounds the time to an integer;
this network does not. For new work `Transformer` is better and faster at equal size.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from usd3._internal.checks import as_count
from usd3.kernels import Projection
from usd3.nets._dropout import dropped_relu
from usd3.nets._outputs import OutputLayer
from usd3.nets._sizes import require_sizes
from usd3.nets._time import time_features

__all__ = ["FilmTransformer"]


class FilmTransformer(nn.Module):
    """Logits (B, L, K) of x_0 from x_t (B, L) and t (B,).

    The paper's sizes (depth, dim, heads, mlp): music small 6, 128, 8, 1024; music large 6, 1024, 16, 4096; images 12,
    768, 16, 3072. The logit of the current category x_t gets +1.

    Args:
        num_classes: K.
        dim: Width.
        depth: Number of layers.
        heads: Attention heads.
        mlp: Hidden width of the MLPs.
        dropout: Dropout rate.
        time_dim: Size of the time features.
        output_blocks: Residual blocks between the layers and the logits.
        timeless: The network ignores t, and `ignores_time` is True.
        projection: Return a `Projection`, hidden states and the output layer, in place of logits.
    """

    def __init__(
        self,
        num_classes: int,
        dim: int = 128,
        depth: int = 6,
        heads: int = 8,
        mlp: int = 1024,
        dropout: float = 0.1,
        time_dim: int = 128,
        output_blocks: int = 1,
        timeless: bool = False,
        projection: bool = False,
    ):
        super().__init__()
        self.ignores_time, self.projection = timeless, projection
        self.num_classes, self.time_dim = as_count(num_classes, "num_classes", 2), as_count(time_dim, "time_dim", 4)
        require_sizes(dim, depth, heads, dropout)
        self.embed = nn.Linear(num_classes, dim)
        self.drop = nn.Dropout(dropout)
        self.time = nn.Sequential(nn.Linear(time_dim, mlp), nn.ReLU(), nn.Linear(mlp, 4 * time_dim))
        self.layers = nn.ModuleList(_Layer(dim, heads, mlp, dropout, 4 * time_dim) for _ in range(depth))
        self.outputs = nn.ModuleList(_OutputBlock(dim, mlp, 4 * time_dim) for _ in range(output_blocks))
        self.logits = OutputLayer(dim, num_classes)

    def forward(self, x_t: Tensor, t: Tensor, pad: Tensor | None = None) -> Tensor | Projection:
        """Logits (B, L, K); padded elements are not attended to."""
        x = x_t.flatten(1)
        # the product with a one-hot vector, computed as a lookup: a column of the weight for each category
        h = F.embedding(x, self.embed.weight.t()) + self.embed.bias
        h = self.drop(h + _positions(x.shape[1], h))
        time = self.time(time_features(torch.zeros_like(t) if self.ignores_time else t, self.time_dim))
        attend = None if pad is None else ~pad.flatten(1)[:, None, None, :]
        for layer in self.layers:
            h = layer(h, time, attend)
        for block in self.outputs:
            h = block(h, time)
        h = h.unflatten(1, x_t.shape[1:])
        if self.projection:
            return Projection(h, self.logits.weight, self.logits.bias, at_x=torch.ones_like(h[..., 0]))
        logits: Tensor = self.logits(h)
        return logits.scatter_add(-1, x_t[..., None], torch.ones_like(logits[..., :1]))


def _positions(length: int, like: Tensor) -> Tensor:
    """Fixed position embeddings (L, d): sin(p w_i) at 2i, cos(p w_i) at 2i + 1, w_i = 10000^(-2i/d)."""
    dim = like.shape[-1]
    exponents = torch.arange(0, dim, 2, device=like.device, dtype=torch.float32) / dim
    angles = torch.arange(length, device=like.device, dtype=torch.float32)[:, None] * 10000.0**-exponents
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).to(like.dtype)


class _Film(nn.Module):
    """The pair gamma(t), delta(t) of h -> gamma(t) h + delta(t), (B, 1, d) each."""

    def __init__(self, time_dim: int, dim: int):
        super().__init__()
        self.pair = nn.Linear(time_dim, 2 * dim)

    def forward(self, time: Tensor) -> tuple[Tensor, Tensor]:
        gamma, delta = self.pair(time)[:, None].chunk(2, -1)
        return gamma, delta


class _Layer(nn.Module):
    """Attention, then MLP; each is added to its input, normalised and modulated. Both share one pair (gamma, delta)."""

    def __init__(self, dim: int, heads: int, mlp: int, dropout: float, time_dim: int):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv, self.project = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        nn.init.xavier_uniform_(self.qkv.weight)  # as nn.MultiheadAttention
        nn.init.zeros_(self.qkv.bias)
        nn.init.zeros_(self.project.bias)
        self.widen, self.narrow = nn.Linear(dim, mlp), nn.Linear(mlp, dim)
        self.norm_attention, self.norm_mlp = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.film, self.drop = _Film(time_dim, dim), nn.Dropout(dropout)

    def forward(self, h: Tensor, time: Tensor, attend: Tensor | None) -> Tensor:
        gamma, delta = self.film(time)
        h = gamma * self.norm_attention(h + self.drop(self.attention(h, attend))) + delta
        mlp = self.narrow(dropped_relu(self.widen(h), self.dropout if self.training else 0.0))
        return gamma * self.norm_mlp(h + self.drop(mlp)) + delta  # type: ignore[no-any-return]

    def attention(self, h: Tensor, attend: Tensor | None) -> Tensor:
        q, k, v = self.qkv(h).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=attend, dropout_p=dropout)
        return self.project(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class _OutputBlock(nn.Module):
    """A residual MLP, normalised and modulated: gamma(t) norm(h + mlp(h)) + delta(t)."""

    def __init__(self, dim: int, mlp: int, time_dim: int):
        super().__init__()
        self.widen, self.narrow, self.norm = nn.Linear(dim, mlp), nn.Linear(mlp, dim), nn.LayerNorm(dim)
        self.film = _Film(time_dim, dim)

    def forward(self, h: Tensor, time: Tensor) -> Tensor:
        gamma, delta = self.film(time)
        return gamma * self.norm(h + self.narrow(F.relu(self.widen(h)))) + delta  # type: ignore[no-any-return]
