"""A network for music in several voices: one position for each time step, and one table of pitches for all voices."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from usd3._internal.checks import as_count, require
from usd3.nets._layers import Layer, norm, rotation, waves
from usd3.nets._sizes import require_sizes
from usd3.nets._time import time_features

__all__ = ["Voices"]

_PITCHES = 128  # the first categories; those after them, such as silence and the mask, are no pitches
_CLASSES = 12  # pitches an octave apart share a class
_BAR_WAVES = 4  # waves of 2, 4, 8 and 16 steps: the place in a bar


class Voices(nn.Module):
    """Logits (B, T, V, K) of x_0 from V voices x_t (B, T, V) and t (B,). Categories 0..127 are MIDI pitches.

    All voices of a time step share one hidden state: it begins with the sum of their embeddings, and each voice reads
    its logits from it. So the layers, those of `Transformer`, see T positions, not T V elements.

    A category has one vector, used by all voices for embeddings and for logits: of a pitch it is the sum of a vector of
    its own and one of its pitch class. Each voice has two matrices that turn these vectors into embeddings and hidden
    states into logits, and an embedding and a bias of its own for each category. Of the place, the network sees that in
    a bar of 16 steps, and the distances between steps. So it can read more steps than it was trained on.

    Args:
        num_classes: K.
        dim: Width.
        depth: Number of layers.
        heads: Attention heads.
        mlp: Hidden width of the MLPs.
        dropout: Dropout rate.
        time_dim: Size of the time features.
        timeless: The network ignores t, and `ignores_time` is True.
        voices: V.
    """

    def __init__(
        self,
        num_classes: int,
        dim: int = 192,
        depth: int = 7,
        heads: int = 6,
        mlp: int = 768,
        dropout: float = 0.0,
        time_dim: int = 128,
        timeless: bool = False,
        voices: int = 4,
    ):
        super().__init__()
        self.ignores_time = timeless
        self.num_classes, self.time_dim = as_count(num_classes, "num_classes", 2), as_count(time_dim, "time_dim", 4)
        self.voices, self.head_dim = as_count(voices, "voices", 1), dim // heads
        require_sizes(dim, depth, heads, dropout)
        numbers = torch.arange(num_classes)
        self.register_buffer(
            "class_of", torch.where(numbers < _PITCHES, numbers % _CLASSES, _CLASSES), persistent=False
        )
        self.category, self.pitch_class = nn.Embedding(num_classes, dim), nn.Embedding(_CLASSES + 1, dim)
        self.enter = nn.Parameter(torch.empty(voices, dim, dim))
        self.own = nn.Parameter(torch.empty(voices, num_classes, dim))
        self.given = nn.Parameter(torch.zeros(voices, dim))
        self.place = nn.Linear(2 * _BAR_WAVES, dim, bias=False)
        self.time = nn.Sequential(nn.Linear(time_dim, time_dim), nn.SiLU(), nn.Linear(time_dim, time_dim), nn.SiLU())
        self.modulate = nn.Linear(time_dim, 6 * dim)
        self.layers = nn.ModuleList(Layer(dim, heads, mlp, dropout, depth) for _ in range(depth))
        self.final = nn.Linear(time_dim, 2 * dim)
        self.leave = nn.Parameter(torch.zeros(voices, dim, dim))
        self.bias = nn.Parameter(torch.zeros(voices, num_classes))
        for embedding in (self.category, self.pitch_class):
            nn.init.normal_(embedding.weight, std=0.5**0.5)  # the variance of a pitch, their sum, is 1
        for weight in (self.enter, self.own):  # and so is that of the sum over the voices of both parts
            nn.init.normal_(weight, std=(2 * voices * (dim if weight is self.enter else 1)) ** -0.5)
        for linear in (self.modulate, self.final):
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x_t: Tensor, t: Tensor, pad: Tensor | None = None, given: Tensor | None = None) -> Tensor:
        """Logits (B, T, V, K).

        Args:
            x_t: (B, T, V) the noisy objects.
            t: (B,) times in [0, 1].
            pad: (B, T, V) True where an element is padding.
            given: (B, T, V) True where an element is given.
        """
        fits = x_t.dim() == 3 and x_t.shape[2] == self.voices
        require(fits, "x_t.shape", tuple(x_t.shape), f"(B, T, {self.voices}), a step of {self.voices} voices each")
        steps, most = self._steps(x_t, pad), x_t.shape[1]
        if steps < most:
            short = (None if part is None else part[:, :steps] for part in (pad, given))
            return F.pad(self(x_t[:, :steps], t, *short), (0, 0, 0, 0, 0, most - steps))
        vectors = self.category.weight + self.pitch_class(self.class_of)  # (K, E)
        h = self._embedded(x_t, vectors, pad, given)
        places = [torch.arange(x_t.shape[1], device=x_t.device)]
        h = h + self.place(waves(places, h, _BAR_WAVES))
        time = self.time(time_features(torch.zeros_like(t) if self.ignores_time else t, self.time_dim))
        shared = self.modulate(time).unflatten(-1, (1, 6, -1))
        attend = None if pad is None else ~pad.all(-1)[:, None, None, :]
        turn = rotation(places, self.head_dim, h)
        for layer in self.layers:
            h = layer(h, shared, turn, attend)
        scale, shift = self.final(time)[:, None].chunk(2, -1)
        h = norm(h) * (1 + scale) + shift
        weight = self.leave @ vectors.T  # (V, E, K), the output layer of each voice
        return torch.einsum("bte,vek->btvk", h, weight) + self.bias

    def _steps(self, x_t: Tensor, pad: Tensor | None) -> int:
        """How many steps to compute: on a CPU, outside of training, not those that end as padding everywhere."""
        if pad is None or self.training or x_t.device.type != "cpu":
            return x_t.shape[1]
        used = (~pad).any(2).any(0).nonzero()
        return int(used.max()) + 1 if len(used) else 1

    def _embedded(self, x_t: Tensor, vectors: Tensor, pad: Tensor | None, given: Tensor | None) -> Tensor:
        """The sum over the voices of their embeddings, (B, T, E)."""
        table = vectors @ self.enter + self.own  # (V, K, E)
        first = self.num_classes * torch.arange(self.voices, device=x_t.device)
        parts = F.embedding(x_t + first, table.flatten(0, 1))  # (B, T, V, E)
        if given is not None:
            parts = parts + given[..., None] * self.given
        return (parts if pad is None else parts.masked_fill(pad[..., None], 0.0)).sum(-2)
