"""A network for Sudoku that has the symmetries of the puzzle: it learns from few boards and is small."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from usd3._internal.checks import as_count, as_number, require
from usd3._internal.compile import compiled_in_parts

__all__ = ["SudokuNetwork"]

_SHARPNESS = 4.0  # of attention at the beginning
_LOOK_EVERY = 4  # loops, to see whether an answer still changes


class _Weights(NamedTuple):
    """Which weights each kind of unit (rows, columns, boxes) and each of the groups of `_means` has."""

    of_units: tuple[int, ...]
    of_groups: tuple[int, ...]


_OWN = _Weights((0, 1, 2), (0, 1, 2, 3, 4, 5))
_SHARED = _Weights((0, 0, 1), (0, 1, 1, 2, 3, 3))  # a column has those of a row


class SudokuNetwork(nn.Module):
    """Logits (B, n, n, K) of x_0 from boards x_t (B, n, n); K is n + 1, the symbols 0..n-1 and the mask n.

    Every candidate, a symbol in a cell, has a state of `dim` numbers. A layer tells each candidate two things. First,
    the means over the groups that it belongs to: all symbols of its cell, and for its symbol the row, the column, the
    box, and the parts of the row and of the column inside the box. Second, what attention finds within its row, column
    and box: in every other layer the cells of such a unit attend to each other, compared by all their symbols; in the
    others its symbols do, compared by all their cells. So it can see two cells with the same two candidates.

    Nothing else is known of a place or of a symbol. Whatever Sudoku allows to exchange, symbols, rows, columns, boxes,
    exchanges the logits in the same way, and the same weights serve boards of any size. A board that is turned over its
    diagonal is the same to the network if rows and columns share their weights (`diagonal`).

    The `depth` layers are applied `loops` times with the same weights, each time with the input added again: rules are
    applied one after the other, and a small network draws long chains of conclusions. A compiler compiles each layer
    once and not the loops as one long program. The network ignores the time, and
    it needs no mask of given cells, so it is for absorbing noise.

    Args:
        num_classes: K.
        dim: Width of a candidate's state.
        depth: Number of layers.
        mlp: Hidden width of a layer.
        loops: How often the layers are applied.
        head: Numbers of a candidate that attention compares, for each kind of unit.
        diagonal: Rows and columns share their weights.
        least_loops: In training the logits of a board are read after a random number of loops, at least this many, so
            that every loop learns to come nearer to the solution; None: after the last one.
        gradient_loops: In training the gradient passes through this many loops. Half of the boards begin with all loops
            that remain, without a gradient, and learn to go on from there; the others begin with none. None: all loops.
        drawing_loops: How often the layers are applied outside of training; hard boards gain from more loops than a
            network learns with. None: `loops`.
        tolerance: Outside of training, on a CPU, the loops of a board end once none of its probabilities has changed by
            more than this in four loops: easy boards take a few, hard ones all. 0: always all loops. A GPU, which would
            have to be asked, makes all loops.
    """

    ignores_time = True

    def __init__(
        self,
        num_classes: int,
        dim: int = 32,
        depth: int = 2,
        mlp: int = 64,
        loops: int = 8,
        head: int = 4,
        diagonal: bool = False,
        least_loops: int | None = None,
        gradient_loops: int | None = None,
        drawing_loops: int | None = None,
        tolerance: float = 0.0,
    ):
        super().__init__()
        self.tolerance = as_number(tolerance, "tolerance", 0, 1, closed=True)
        self.drawing_loops = loops if drawing_loops is None else as_count(drawing_loops, "drawing_loops", 1)
        self.num_classes, self.loops = as_count(num_classes, "num_classes", 2), as_count(loops, "loops", 1)
        self.gradient_loops = loops if gradient_loops is None else as_count(gradient_loops, "gradient_loops", 1)
        require(self.gradient_loops <= loops, "gradient_loops", gradient_loops, f"at most loops, {loops}")
        self.least_loops = self.gradient_loops if least_loops is None else as_count(least_loops, "least_loops", 1)
        limit = f"at most the loops that have a gradient, {self.gradient_loops}"
        require(self.least_loops <= self.gradient_loops, "least_loops", least_loops, limit)
        as_count(depth, "depth", 1), as_count(head, "head", 1)
        weights = _SHARED if diagonal else _OWN
        self.embed = nn.Embedding(3, dim)
        self.layers = nn.ModuleList(_Layer(dim, mlp, head, bool(i % 2), weights) for i in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.logits = nn.Linear(dim, 1)
        nn.init.zeros_(self.logits.weight)

    @compiled_in_parts
    def forward(self, x_t: Tensor, t: Tensor) -> Tensor:
        """Logits (B, n, n, K); that of the mask is 0."""
        side = self.num_classes - 1
        fits = x_t.shape[1:] == (side, side) and math.isqrt(side) ** 2 == side
        require(
            fits, "x_t.shape", tuple(x_t.shape), f"(B, {side}, {side}), boards of as many rows as symbols: 4, 9, 16"
        )
        symbols = torch.arange(side, device=x_t.device)
        other, here, is_open = 0, 1, 2
        known = torch.where(x_t[..., None] == symbols, here, other)  # (B, n, n, n), the last axis are symbols
        start = self.embed(torch.where(x_t[..., None] == side, is_open, known))  # (B, n, n, n, dim)
        if self.training:
            states = self._training_states(start)
        elif self.tolerance > 0 and x_t.device.type == "cpu" and len(x_t) > 0:
            states = self._settled_states(start)
        else:
            states = self._states(start, self.drawing_loops)
        return F.pad(self._symbol_logits(states), (0, 1))

    def _symbol_logits(self, states: Tensor) -> Tensor:
        """Logits (B, n, n, n) of the symbols."""
        return self.logits(self.norm(states)).squeeze(-1)  # type: ignore[no-any-return]

    @compiled_in_parts
    def _training_states(self, start: Tensor) -> Tensor:
        """States after the loops of training, which differ from board to board."""
        begun = None
        if self.gradient_loops < self.loops:
            with torch.no_grad():
                after = self._states(start, self.loops - self.gradient_loops)
            torch.clear_autocast_cache()  # its copies of the weights were made without a gradient
            begun = torch.where(torch.rand_like(start[:, :1, :1, :1, :1]) < 0.5, after, 0)
        if self.least_loops == self.gradient_loops:
            return self._states(start, self.gradient_loops, begun)
        shape = (len(start), 1, 1, 1, 1)
        last = torch.randint(self.least_loops, self.gradient_loops + 1, shape, device=start.device)
        return self._states(start, self.gradient_loops, begun, last)

    @compiled_in_parts
    def _settled_states(self, start: Tensor) -> Tensor:
        """States of each board after all loops, or once its answer no longer changes; boards do not see each other."""
        found, h, left = torch.empty_like(start), torch.zeros_like(start), torch.arange(len(start))
        before = torch.full_like(start[..., 0], torch.inf)
        for done in range(0, self.drawing_loops, _LOOK_EVERY):
            h = self._states(start[left], min(_LOOK_EVERY, self.drawing_loops - done), h)
            answer = self._symbol_logits(h).softmax(-1)
            moves = (answer - before).abs().flatten(1).amax(1) > self.tolerance
            found[left] = h
            h, before, left = h[moves], answer[moves], left[moves]
            if len(left) == 0:
                break
        return found

    @compiled_in_parts
    def _states(self, start: Tensor, loops: int, begun: Tensor | None = None, last: Tensor | None = None) -> Tensor:
        """States (B, n, n, n, dim) after so many loops, or, where `last` is given, after that many of each board."""
        h = read = torch.zeros_like(start) if begun is None else begun
        for loop in range(1, loops + 1):
            h = h + start
            for layer in self.layers:
                h = layer(h)
            read = h if last is None else torch.where(last == loop, h, read)
        return read


class _Layer(nn.Module):
    """h + MLP(norm h, attention within units, means of a hidden state over the groups of each candidate)."""

    def __init__(self, dim: int, mlp: int, head: int, symbols: bool, weights: _Weights):
        super().__init__()
        self.dim, self.mlp, self.of_groups = dim, mlp, weights.of_groups
        self.norm = nn.LayerNorm(dim)
        self.widen = nn.Linear(dim, mlp + dim)
        self.groups = nn.ModuleList(nn.Linear(dim, mlp, bias=False) for _ in set(self.of_groups))
        self.attention = _UnitAttention(dim, head, mlp, symbols, weights.of_units)
        self.narrow = nn.Linear(mlp, dim)
        nn.init.normal_(self.narrow.weight, std=0.3 * mlp**-0.5)
        nn.init.zeros_(self.narrow.bias)

    def forward(self, h: Tensor) -> Tensor:
        """The states (B, n, n, n, dim) after the layer."""
        box, normed = math.isqrt(h.shape[1]), self.norm(h)
        own, told = self.widen(normed).split([self.mlp, self.dim], -1)
        own, told = own + self.attention(normed), F.gelu(told, approximate="tanh")
        hidden = own.unflatten(2, (box, box)).unflatten(1, (box, box))  # (B, band, row, stack, column, symbol, mlp)
        for weights, mean in zip(self.of_groups, _means(told.unflatten(2, (box, box)).unflatten(1, (box, box)))):
            hidden = hidden + self.groups[weights](mean)  # a mean has size 1 along the axes of its group
        return h + self.narrow(F.gelu(hidden, approximate="tanh")).reshape(h.shape)  # type: ignore[no-any-return]


class _UnitAttention(nn.Module):
    """Attention within rows, columns and boxes, between cells compared by all their symbols, or the other way round.

    Args:
        dim: Width of a candidate's state.
        head: Numbers of a candidate that are compared.
        out: Width of the result.
        symbols: Symbols attend to each other, compared by all their cells; False: cells, by all their symbols.
        of_units: Which weights rows, columns and boxes have.
    """

    def __init__(self, dim: int, head: int, out: int, symbols: bool, of_units: tuple[int, ...] = _OWN.of_units):
        super().__init__()
        self.head, self.symbols, self.of_units = head, symbols, of_units
        self.kinds = len(set(of_units))
        self.qkv = nn.Linear(dim, self.kinds * 3 * head)
        self.sharpness = nn.Parameter(torch.full((self.kinds, 1, 1, 1, 1), _SHARPNESS))
        self.project = nn.Linear(self.kinds * head, out, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        """(B, n, n, n, out) from the states (B, n, n, n, dim)."""
        side = h.shape[1]
        parts = self.qkv(h).unflatten(-1, (self.kinds, 3 * self.head)).unbind(-2)
        rows, columns, boxes = (parts[weights] for weights in self.of_units)
        units = torch.stack([rows, columns.transpose(1, 2), _by_boxes(boxes)])  # (3, B, unit, cell, symbol, 3 head)
        units = units.transpose(3, 4) if self.symbols else units
        q, k, v = (part.flatten(4) for part in units.split(self.head, -1))  # (3, B, n, n, n head)
        similar = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT
        sharpness = torch.stack([self.sharpness[weights] for weights in self.of_units])
        mixed = (torch.softmax(sharpness * similar, -1).to(v.dtype) @ v).unflatten(4, (side, self.head))
        rows, columns, boxes = (mixed.transpose(3, 4) if self.symbols else mixed).unbind(0)
        found = [rows, columns.transpose(1, 2), _by_boxes(boxes)]
        sums = [sum(part for part, own in zip(found, self.of_units) if own == kind) for kind in range(self.kinds)]
        return self.project(torch.cat(sums, -1))  # type: ignore[no-any-return]


def _by_boxes(x: Tensor) -> Tensor:
    """x (B, n, n, ...) by row and column as (B, n, n, ...) by box and cell within it; it is its own inverse."""
    side = x.shape[1]
    box = math.isqrt(side)
    parts = x.unflatten(2, (box, box)).unflatten(1, (box, box)).transpose(2, 3)
    return parts.reshape(x.shape)  # type: ignore[no-any-return]


def _means(x: Tensor) -> tuple[Tensor, ...]:
    """Means of x (B, band, row, stack, column, symbol, dim) over the groups of a candidate.

    They are those of its cell, and for its symbol of the row, the column, the box, and of the row and the column inside
    the box.
    """
    row_in_box, column_in_box = x.mean(4, keepdim=True), x.mean(2, keepdim=True)
    cell, row, column = x.mean(5, keepdim=True), row_in_box.mean(3, keepdim=True), column_in_box.mean(1, keepdim=True)
    return cell, row, column, row_in_box.mean(2, keepdim=True), row_in_box, column_in_box
