"""Layers that our networks share: pre-norm, with rotary positions, modulated by the time."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from usd3.nets._linear import linear, linear_gelu

__all__ = ["WAVES", "Layer", "norm", "rotation", "waves"]

WAVES = 16
"""Number of waves that distinguish 2^16 places along an axis."""


class Layer(nn.Module):
    """Attention, then MLP. The input of each branch is normalised, scaled and shifted; its output is gated."""

    def __init__(self, dim: int, heads: int, mlp: int, dropout: float, depth: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.project = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.widen, self.narrow = nn.Linear(dim, mlp), nn.Linear(mlp, dim)
        self.offset = nn.Parameter(torch.zeros(6, dim))
        self.drop = nn.Dropout(dropout)
        for layer in (self.qkv, self.widen, self.project, self.narrow):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
            nn.init.zeros_(layer.bias)
        for layer in (self.project, self.narrow):  # the residual stream has the same variance at any depth
            nn.init.normal_(layer.weight, std=(2 * depth * layer.in_features) ** -0.5)

    def forward(self, h: Tensor, shared: Tensor, turn: tuple[Tensor, Tensor], attend: Tensor | None) -> Tensor:
        scale_a, shift_a, gate_a, scale_m, shift_m, gate_m = (shared + self.offset).unbind(-2)
        branch = self.attention(norm(h) * (1 + scale_a) + shift_a, turn, attend)
        h = h + (1 + gate_a) * self.drop(branch)
        branch = linear(self.narrow, linear_gelu(self.widen, norm(h) * (1 + scale_m) + shift_m))
        return h + (1 + gate_m) * self.drop(branch)  # type: ignore[no-any-return]

    def attention(self, h: Tensor, turn: tuple[Tensor, Tensor], attend: Tensor | None) -> Tensor:
        qk, v = linear(self.qkv, h).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).split([2, 1])
        q, k = _rotate(F.rms_norm(qk, qk.shape[-1:]), turn, v.dtype)
        mixed = F.scaled_dot_product_attention(q, k, v[0], attn_mask=attend)
        return linear(self.project, mixed.transpose(1, 2).flatten(2))


def norm(h: Tensor) -> Tensor:
    """Layer norm without parameters: scale and shift come from the time."""
    return F.layer_norm(h, h.shape[-1:])


def waves(places: list[Tensor], like: Tensor, count: int = WAVES) -> Tensor:
    """Sines and cosines of p pi / 2^i, i < count, of the places p along each axis: (L, 2 * count * axes)."""
    halves = 2 ** torch.arange(count, device=like.device)  # half a period of each wave
    angles = [
        p[:, None] % (2 * halves) * (torch.pi / halves) for p in places
    ]  # below 2 pi, so that far places lose no digits
    return torch.cat([part for a in angles for part in (a.sin(), a.cos())], -1).to(like.dtype)


def rotation(places: list[Tensor], head_dim: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine (L, d/2) of p w_i, w_i = 10000^(-i/n). Each axis has n of the d/2 angles."""
    table = _compiled_table if torch.compiler.is_compiling() else _rotation_table
    cos, sin = table(places, head_dim).to(like.dtype).unbind()
    return cos, sin


def _rotation_table(places: list[Tensor], head_dim: int) -> Tensor:
    """Cosine and sine (2, L, d/2), float32."""
    shares = torch.arange(head_dim // 2, device=places[0].device, dtype=torch.float32).tensor_split(len(places))
    rates = [10000.0 ** (-(share - share[0]) / len(share)) for share in shares]
    angles = torch.cat([p[:, None].float() * rate for p, rate in zip(places, rates)], -1)
    return torch.stack([angles.cos(), angles.sin()])


@torch.library.custom_op("usd3::rotation", mutates_args=())
def _compiled_table(places: list[Tensor], head_dim: int) -> Tensor:
    """The same as an operation that torch.compile does not look into.

    It would compute the angles and their cosines again for every number that is rotated, in every layer and once more
    in the backward pass: a seventh of a training step.
    """
    return _rotation_table(places, head_dim)


@_compiled_table.register_fake
def _fake_table(places: list[Tensor], head_dim: int) -> Tensor:
    return places[0].new_empty(2, len(places[0]), head_dim // 2, dtype=torch.float32)


def _rotate(z: Tensor, turn: tuple[Tensor, Tensor], dtype: torch.dtype) -> Tensor:
    """Rotary position embedding: rotate each pair (z_i, z_{i + d/2}) by its angle.

    Each half is rounded to `dtype` before they are joined: else torch.compile writes float32 and reads it again.
    """
    cos, sin = turn
    a, b = z.chunk(2, -1)
    return torch.cat([(a * cos - b * sin).to(dtype), (b * cos + a * sin).to(dtype)], -1)
