"""Our default network: a pre-norm transformer with rotary positions, modulated by the time."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from usd3._internal.checks import as_count, require
from usd3.kernels import Projection
from usd3.nets._layers import WAVES, Layer, norm, rotation, waves
from usd3.nets._outputs import OutputLayer
from usd3.nets._sizes import require_sizes
from usd3.nets._time import time_features

__all__ = ["Transformer"]

_WAVES_BEFORE = 8  # in weights of earlier versions
_LEAST_LOG = -20.0  # of a frequency that a network begins with


class Transformer(nn.Module):
    """Logits (B, ..., K) of x_0 from x_t (B, ...) and t (B,).

    Pre-norm layers with rotary positions, normalised queries and keys, and fused attention. The time gives scale, shift
    and gate of each branch, by one linear layer that all layers share plus an offset of each layer. The network knows
    which elements are `given`, and does not attend to `pad`.

    It sees the place of each element (sines and cosines, added to the embedding) and the distances between elements
    (rotary positions), along each axis. Weights of earlier versions load too: the position features that they lack get
    weight 0, so their logits are the same.

    Args:
        num_classes: K.
        dim: Width.
        depth: Number of layers.
        heads: Attention heads.
        mlp: Hidden width of the MLPs.
        dropout: Dropout rate.
        time_dim: Size of the time features.
        timeless: The network ignores t, and `ignores_time` is True.
        projection: Return a `Projection`, hidden states and the output layer, in place of logits.
        axes: Dimensions of an object: 1 for sequences, 2 for images. With 1, objects of any shape are sequences in
            row-major order.
        self_conditioning: Take an `estimate` of x_0, see `SelfConditioned`.
        own_vocabulary: Each of the `length` elements has embeddings and an output layer of its own: category 3 of one
            element has nothing to do with category 3 of another, as in the columns of a table.
        length: Number of elements of an object; only `own_vocabulary` needs it.
        labels: Number of classes of each label of an object, C_1, ..., C_J; usually one label or none. A label is added
            to the hidden state of all elements and to the time, and has an output layer of its own (`label_logits`).
        absent: Elements can be `absent`: the network sees a learned vector in place of their category.
    """

    def __init__(
        self,
        num_classes: int,
        dim: int = 192,
        depth: int = 8,
        heads: int = 6,
        mlp: int = 768,
        dropout: float = 0.0,
        time_dim: int = 128,
        timeless: bool = False,
        projection: bool = False,
        axes: int = 1,
        self_conditioning: bool = False,
        own_vocabulary: bool = False,
        length: int = 0,
        labels: Sequence[int] = (),
        absent: bool = False,
    ):
        super().__init__()
        self.ignores_time, self.projection = timeless, projection
        self.num_classes, self.time_dim = as_count(num_classes, "num_classes", 2), as_count(time_dim, "time_dim", 4)
        require_sizes(dim, depth, heads, dropout)
        self.axes = as_count(axes, "axes", 1)
        require(dim >= 2 * heads * axes, "dim", dim, f"at least {2 * heads * axes}, 2 for each head and axis")
        self.head_dim = dim // heads
        self.own_vocabulary, vocabularies = own_vocabulary, as_count(length, "length", 1) if own_vocabulary else 1
        require(not (own_vocabulary and projection), "projection", projection, "false with own_vocabulary")
        self.embed = nn.Embedding(vocabularies * num_classes, dim)
        self.given = nn.Parameter(torch.zeros(dim))
        self.place = nn.Linear(2 * WAVES * axes, dim, bias=False)
        self.labels = tuple(as_count(classes, "labels", 1) for classes in labels)
        self.label = _LabelEmbedding(self.labels, dim, time_dim) if self.labels else None
        self.label_head = nn.Linear(dim, sum(self.labels)) if self.labels else None
        self.absent, self.knows_absence = nn.Parameter(torch.zeros(dim)) if absent else None, absent
        self.register_load_state_dict_pre_hook(_with_all_waves)
        self.estimate = nn.Linear(num_classes, dim, bias=False) if self_conditioning else None
        self.time = nn.Sequential(nn.Linear(time_dim, time_dim), nn.SiLU(), nn.Linear(time_dim, time_dim), nn.SiLU())
        self.modulate = nn.Linear(time_dim, 6 * dim)
        self.layers = nn.ModuleList(Layer(dim, heads, mlp, dropout, depth) for _ in range(depth))
        self.final = nn.Linear(time_dim, 2 * dim)
        self.logits = _OwnOutputs(length, dim, num_classes) if own_vocabulary else OutputLayer(dim, num_classes)
        nn.init.normal_(self.embed.weight, std=1.0)
        if self.estimate is not None:
            nn.init.zeros_(self.estimate.weight)
        if self.label_head is not None:
            nn.init.zeros_(self.label_head.weight)
            nn.init.zeros_(self.label_head.bias)
        for linear in (self.modulate, self.final, self.logits):
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(
        self,
        x_t: Tensor,
        t: Tensor,
        pad: Tensor | None = None,
        given: Tensor | None = None,
        estimate: Tensor | None = None,
        label: Tensor | None = None,
        absent: Tensor | None = None,
        label_out: list[Tensor] | None = None,
    ) -> Tensor | Projection:
        """Logits (B, ..., K).

        Args:
            x_t: (B, ...) the noisy objects.
            t: (B,) times in [0, 1].
            pad: (B, ...) True where an element is padding.
            given: (B, ...) True where an element is given.
            estimate: (B, ..., K) an earlier prediction, see `SelfConditioned`.
            label: (B, J) int64 the class of each label, -1: absent; None: all are absent.
            absent: (B, ...) True where an element is absent.
            label_out: a list that gets the logits of all labels (B, C_1 + ... + C_J) of this call, for training.
        """
        h = self._hidden(x_t, t, pad, given, estimate, label, absent)
        if label_out is not None:
            label_out.append(self._label_output(h, pad))
        if self.projection:
            return Projection(h.unflatten(1, x_t.shape[1:]), self.logits.weight, self.logits.bias)
        return self.logits(h).unflatten(1, x_t.shape[1:])  # type: ignore[no-any-return]

    def label_logits(
        self,
        x_t: Tensor,
        t: Tensor,
        label: Tensor | None = None,
        given: Tensor | None = None,
        pad: Tensor | None = None,
    ) -> list[Tensor]:
        """Logits (B, C_j) of p(label_j | x_t) for each label; `label` are the classes that are known, as in a call."""
        h = self._hidden(x_t, t, pad, given, None, label, None)
        return list(self._label_output(h, pad).split(self.labels, -1))

    def _hidden(
        self,
        x_t: Tensor,
        t: Tensor,
        pad: Tensor | None,
        given: Tensor | None,
        estimate: Tensor | None,
        label: Tensor | None,
        absent: Tensor | None,
    ) -> Tensor:
        """The hidden states (B, L, E) that the output layers read."""
        x = x_t.flatten(1)
        require(label is None or self.label is not None, "label", label, "None for a network without labels")
        require(absent is None or self.absent is not None, "absent", absent, "None for a network without absent=True")
        h = self.embed(x + self.num_classes * torch.arange(x.shape[1], device=x.device) if self.own_vocabulary else x)
        missing = None if absent is None else absent.flatten(1)[..., None]
        if missing is not None:
            h = torch.where(missing, self.absent, h)  # type: ignore[arg-type]
        places = _places(x_t, self.axes)
        h = h + self.place(waves(places, h))
        if given is not None:
            is_given = given.flatten(1)[..., None]
            h = h + (is_given if missing is None else is_given & ~missing) * self.given
        if self.estimate is not None and estimate is not None:
            known = self.estimate(estimate.flatten(1, -2))
            h = h + (known if missing is None else known.masked_fill(missing, 0.0))
        time = self.time(time_features(torch.zeros_like(t) if self.ignores_time else t, self.time_dim))
        if self.label is not None:
            to_elements, to_time = self.label(label, len(x))
            h, time = h + to_elements[:, None], time + to_time
        shared = self.modulate(time).unflatten(-1, (1, 6, -1))
        attend = None if pad is None else ~pad.flatten(1)[:, None, None, :]
        turn = rotation(places, self.head_dim, h)
        for layer in self.layers:
            h = layer(h, shared, turn, attend)
        scale, shift = self.final(time)[:, None].chunk(2, -1)
        return norm(h) * (1 + scale) + shift  # type: ignore[no-any-return]

    def _label_output(self, h: Tensor, pad: Tensor | None) -> Tensor:
        """Logits (B, C_1 + ... + C_J) of the labels, from the mean hidden state of the elements."""
        if self.label_head is None:
            raise ValueError("labels = (): expected a network with labels")
        if pad is None:
            return self.label_head(h.mean(1))  # type: ignore[no-any-return]
        real = ~pad.flatten(1)[..., None]
        return self.label_head((h * real).sum(1) / real.sum(1).clamp(min=1))  # type: ignore[no-any-return]

    def start_from(self, frequencies: Tensor) -> None:
        """Begin with these frequencies of the categories as predictions, (L, K); for `own_vocabulary`.

        The output layers are 0 at first, but for their biases: a new network predicts what these say.
        """
        with torch.no_grad():
            self.logits.bias.copy_(frequencies.log().clamp(min=_LEAST_LOG))


class _LabelEmbedding(nn.Module):
    """What labels (B, J) add to the hidden states and to the time: (B, E) and (B, time_dim).

    Each label has a row for each of its classes, and a last one for "absent".
    """

    def __init__(self, labels: Sequence[int], dim: int, time_dim: int):
        super().__init__()
        self.labels, rows = tuple(labels), sum(labels) + len(labels)
        self.elements, self.time = nn.Embedding(rows, dim), nn.Embedding(rows, time_dim)
        nn.init.normal_(self.elements.weight, std=0.1)
        nn.init.normal_(self.time.weight, std=0.02)

    def forward(self, label: Tensor | None, batch: int) -> tuple[Tensor, Tensor]:
        if label is None:
            label = torch.full((batch, len(self.labels)), -1, device=self.elements.weight.device)
        rows, first = [], 0
        for j, classes in enumerate(self.labels):
            chosen = label[:, j]
            rows.append(first + chosen.masked_fill(chosen < 0, classes))
            first += classes + 1
        index = torch.stack(rows, 1)
        return self.elements(index).sum(1), self.time(index).sum(1)


class _OwnOutputs(nn.Module):
    """An output layer for each of L elements: logits (B, L, K) from hidden states (B, L, E)."""

    def __init__(self, length: int, dim: int, num_classes: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(length, num_classes, dim))
        self.bias = nn.Parameter(torch.zeros(length, num_classes))

    def forward(self, h: Tensor) -> Tensor:
        """Logits (B, L, K)."""
        return torch.einsum("ble,lke->blk", h, self.weight) + self.bias


def _places(x: Tensor, axes: int) -> list[Tensor]:
    """The place of each element of x (B, ...) along each axis, (L,) each; with one axis, in row-major order."""
    if axes == 1:
        return [torch.arange(x[0].numel(), device=x.device)]
    require(x.dim() == axes + 1, "x_t.shape", tuple(x.shape), f"objects of {axes} axes")
    ranges = (torch.arange(size, device=x.device) for size in x.shape[1:])
    return [grid.flatten() for grid in torch.meshgrid(*ranges, indexing="ij")]


def _with_all_waves(net: Transformer, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Complete weights of earlier versions: networks of sequences had no `place`, others had 8 waves per axis."""
    name, new = f"{prefix}place.weight", net.place.weight
    old = state.get(name)
    if old is None and f"{prefix}embed.weight" in state:
        state[name] = torch.zeros_like(new)
    elif old is not None and old.shape == (len(new), 2 * _WAVES_BEFORE * net.axes):
        parts = old.unflatten(1, (2 * net.axes, _WAVES_BEFORE))
        state[name] = F.pad(parts, (0, WAVES - _WAVES_BEFORE)).flatten(1)
