"""Parts that SDDM's networks share: a pre-norm encoder with learned positions, and a readout modulated by the time."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from usd3.nets._outputs import OutputLayer

__all__ = ["Encoder", "Readout", "two_layers"]


class Encoder(nn.Module):
    """Add learned positions, apply dropout, then pre-norm blocks without a final norm: (B, L, E) -> (B, L, E)."""

    def __init__(self, length: int, dim: int, depth: int, heads: int, mlp: int, dropout: float):
        super().__init__()
        self.positions = nn.Parameter(torch.empty(length, dim))
        nn.init.normal_(self.positions, std=0.02)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(_Block(dim, heads, mlp, dropout) for _ in range(depth))

    def forward(self, h: Tensor, attend: Tensor | None = None, causal: bool = False) -> Tensor:
        """Hidden states (B, L, E).

        Args:
            h: Embeddings (B, L, E).
            attend: Booleans that broadcast to (B, L, L): whether each query (row) attends to each key (column).
            causal: Attend only to earlier elements and to the element itself.
        """
        h = self.drop(h + self.positions[: h.shape[1]])
        for block in self.blocks:
            h = block(h, None if attend is None else attend[:, None], causal)
        return h


class _Block(nn.Module):
    """h + drop(attention(norm h)), then h + mlp(norm h); attention has no biases."""

    def __init__(self, dim: int, heads: int, mlp: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.project = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        for weight in (*self.qkv.weight.chunk(3), self.project.weight):
            nn.init.xavier_uniform_(weight)
        self.drop = nn.Dropout(dropout)
        self.mlp = two_layers(dim, mlp, dim, nn.ReLU())

    def forward(self, h: Tensor, attend: Tensor | None, causal: bool) -> Tensor:
        q, k, v = self.qkv(self.norm_attention(h)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=attend, is_causal=causal)
        h = h + self.drop(self.project(mixed.transpose(1, 2).flatten(2)))
        return h + self.mlp(self.norm_mlp(h))  # type: ignore[no-any-return]


class Readout(nn.Module):
    """Logits from states (B, L, width) and time features (B, dim).

    `blocks` times h = gamma(t) norm(h + mlp(h)) + delta(t), with gamma and delta from an MLP of the time; then one
    linear layer.
    """

    def __init__(self, num_classes: int, width: int, dim: int, mlp: int, blocks: int):
        super().__init__()
        self.time = two_layers(dim, mlp, 4 * dim, nn.GELU()) if blocks else None
        self.mlps = nn.ModuleList(two_layers(width, mlp, width, nn.GELU()) for _ in range(blocks))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(blocks))
        self.films = nn.ModuleList(_linear(4 * dim, 2 * width) for _ in range(blocks))
        self.logits = _started(OutputLayer(width, num_classes))

    def forward(self, h: Tensor, time: Tensor) -> Tensor:
        """Logits (B, L, K)."""
        time = time if self.time is None else self.time(time)
        for mlp, norm, film in zip(self.mlps, self.norms, self.films):
            gamma, delta = film(time)[:, None].chunk(2, -1)
            h = gamma * norm(h + mlp(h)) + delta
        return self.logits(h)  # type: ignore[no-any-return]


def two_layers(in_features: int, hidden: int, out_features: int, activation: nn.Module) -> nn.Sequential:
    """An MLP: two linear layers with an activation between them."""
    return nn.Sequential(_linear(in_features, hidden), activation, _linear(hidden, out_features))


def _linear(in_features: int, out_features: int) -> nn.Linear:
    return _started(nn.Linear(in_features, out_features))


def _started(linear: nn.Linear) -> nn.Linear:
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
