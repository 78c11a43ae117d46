"""Objects drawn from p(object | condition), where a condition allows some categories of some elements.

A condition is a weight in [0, 1] for each category of each element; the wanted law is p(x) times the weights of all
elements, normalised. An element with one allowed category is simply given. For the others,

- with absorbing noise the conditioned elements come first, one after the other. Each is drawn from p(x_i | those known)
  times its weights, whose sum is its mass. An attempt is accepted with the product of all masses but the first, which
  makes the law exact: the first mass is the same for all attempts. The rest is drawn given these elements.
- with other noise, whole objects are drawn and accepted with the product of their weights.

A condition that is hardly ever fulfilled is refused.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from usd3._internal.checks import as_count, as_mask, as_tokens, require
from usd3._internal.random import drawn_from, seed_of, uniform

if TYPE_CHECKING:
    from usd3.pipeline.pipeline import Pipeline

__all__ = ["OF_PREDICTIONS", "Condition", "draw_accepted", "draw_in_sequence", "sample_where"]

OF_PREDICTIONS = ("temperature", "top_k", "top_p", "bias", "adjust", "labels", "batch_size")
"""The arguments of `Pipeline.sample` that `Pipeline.predict` takes too."""

_MOST_REPEATS = 64  # attempts for one object at once
_MOST_ROWS = 2**16  # attempts at once
_MOST_ATTEMPTS = (20_000, 1_000)  # before a condition counts as too rare: in any case, and for each object


@dataclass(frozen=True)
class Condition:
    """What a condition allows.

    Args:
        weights: (L, K) float64 in [0, 1], or (N, L, K) for each object.
        given: (N, L) True where an element keeps its value in `tokens`, whatever its weights.
        tokens: (N, L) int64.
    """

    weights: Tensor
    given: Tensor
    tokens: Tensor

    @classmethod
    def of(cls, weights: Tensor, given: Tensor | None, tokens: Tensor | None, num: int) -> "Condition":
        """The condition for `num` objects; elements with one allowed category are given."""
        L = weights.shape[-2]
        given = torch.zeros(num, L, dtype=torch.bool) if given is None else given.expand(num, L)
        tokens = torch.zeros(num, L, dtype=torch.long) if tokens is None else tokens
        single = ((weights > 0).sum(-1) == 1).expand(num, L)
        only = weights.argmax(-1).expand(num, L)
        return cls(weights, given | single, torch.where(single & ~given, only, tokens))

    @property
    def is_the_same_for_all(self) -> bool:
        """Whether all objects have the same condition."""
        parts = (self.given, self.tokens, *([self.weights] if self.weights.dim() == 3 else []))
        return all(bool((part == part[:1]).all()) for part in parts)

    def of_rows(self, rows: Tensor) -> "Condition":
        """The condition of these objects, (n,); a number may occur several times."""
        weights = self.weights if self.weights.dim() == 2 else self.weights[rows]
        return Condition(weights, self.given[rows], self.tokens[rows])

    def elements(self, support: Tensor) -> list[int]:
        """The elements that are not given in every object and whose weights are not all 1 within the support (L, K)."""
        restricts = ((self.weights < 1) & support).any(-1)  # (L,) or (N, L)
        return [i for i in range(restricts.shape[-1]) if bool((restricts[..., i] & ~self.given[:, i]).any())]


def sample_where(
    pipeline: "Pipeline",
    where: Mapping[str, Any] | str | Tensor,
    num: int | None,
    tokens: ArrayLike | None,
    given: ArrayLike | None,
    seed: int,
    options: Mapping[str, Any],
) -> Tensor:
    """Objects (N, ...) drawn from p(object | condition); `options` are further arguments of `Pipeline.sample`."""
    shape, K, kind = tuple(pipeline.config.shape), pipeline.config.num_classes, pipeline.kind
    prompt = None if tokens is None else as_tokens(tokens)
    num = as_count((1 if prompt is None else len(prompt)) if num is None else num, "num", 1)
    fits = prompt is None or len(prompt) == num
    require(fits, "num", num, f"None or the number of rows of tokens, {0 if prompt is None else len(prompt)}")
    require(given is None or prompt is not None, "given", "a mask", "None without tokens")
    mask = as_mask(given, (num, *shape), "given")
    weights = where.double() if isinstance(where, Tensor) else kind.weights(where)
    own = tuple(weights.shape[-len(shape) - 1 :])
    require(own == (*shape, K), "where", tuple(weights.shape), f"{(*shape, K)}, the share of each category")
    weights = weights.flatten(-len(shape) - 1, -2)  # (..., L, K)
    shares = bool(((weights >= 0) & (weights <= 1)).all())
    require(shares, "where", "a number below 0, above 1 or NaN", "the share of each category that is allowed, 0 to 1")
    possible = bool((weights > 0).any(-1).all())
    require(possible, "where", where, "a condition that leaves each element at least one category")
    known = None if mask is None else mask.flatten(1)
    condition = Condition.of(weights, known, None if prompt is None else prompt.flatten(1), num)
    support = torch.ones(*shape, K, dtype=torch.bool) if kind.support is None else kind.support
    elements = condition.elements(support.reshape(-1, K))

    def draw(tokens: Tensor, known: Tensor, seed: int) -> Tensor:
        objects, masks = (part.unflatten(1, shape) for part in (tokens, known))
        x: Tensor = pipeline.sample(tokens=objects, given=masks, seed=seed, **options)
        return x.flatten(1)

    def predict(tokens: Tensor, known: Tensor, element: int) -> Tensor:
        objects, masks = (part.unflatten(1, shape) for part in (tokens, known))
        more = {name: options[name] for name in OF_PREDICTIONS if name in options}
        return pipeline.predict(objects, masks, element=element, **more).double()

    first = seed_of(seed, -1)  # of the draws before the others
    x: Tensor
    if not elements:
        x = draw(condition.tokens, condition.given, seed)
    elif pipeline.diffusion.noise.is_absorbing and pipeline.method.reads == "full":
        x = draw(*draw_in_sequence(predict, condition, elements, first), seed)
    else:
        follows = options.get("labels") is not None or bool(condition.given.any())
        scale = options.get("guidance_scale", 1.0)
        expected = "1, or a label, or a single value in `where`: ranges cannot be followed with this noise"
        require(follows or scale == 1, "guidance_scale", scale, expected)
        x = draw_accepted(draw, condition, first)
    return x.reshape(num, *shape)


def draw_in_sequence(
    predict: Callable[[Tensor, Tensor, int], Tensor], condition: Condition, elements: list[int], seed: int
) -> tuple[Tensor, Tensor]:
    """Draw the conditioned elements: tokens (N, L), and which elements of each object are known now.

    Args:
        predict: `predict(tokens, known, i)` returns the probabilities (n, K) of element i given the known ones.
        condition: of N objects.
        elements: the elements to draw, from `Condition.elements`.
        seed: of the draws.
    """
    first = condition.of_rows(torch.arange(1))
    masses = {i: float((predict(first.tokens, first.given, i) * first.weights[..., i, :]).sum()) for i in elements}
    order = sorted(elements, key=lambda i: masses[i])  # the first mass costs no rejection: the least one

    def attempt(rows: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        part = condition.of_rows(rows)
        tokens, known = part.tokens.clone(), part.given.clone()
        log_mass = torch.zeros(len(rows), dtype=torch.float64)
        begun = torch.zeros(len(rows), dtype=torch.bool)
        for i in order:
            open_rows = ~known[:, i]
            if not bool(open_rows.any()):
                continue
            weighted = predict(tokens, known, i) * part.weights[..., i, :]
            mass = weighted.sum(-1)
            u = uniform(mass.shape, mass.device, generator)
            drawn = drawn_from(weighted.clamp(min=0) + (mass <= 0)[:, None], u)
            tokens[:, i] = torch.where(open_rows, drawn, tokens[:, i])
            counts = open_rows & begun
            log_mass = log_mass + torch.where(counts, mass.clamp(min=1e-300).log(), 0.0)
            log_mass = torch.where(open_rows & (mass <= 0), -torch.inf, log_mass)
            begun |= open_rows
            known[:, i] = True
        return tokens, log_mass

    tokens = _accepted(attempt, condition, seed)
    known = condition.given.clone()
    known[:, order] = True
    return tokens, known


def draw_accepted(draw: Callable[[Tensor, Tensor, int], Tensor], condition: Condition, seed: int) -> Tensor:
    """Draw whole objects (N, L) and keep those that the condition accepts.

    Args:
        draw: `draw(tokens, given, seed)` returns objects (n, L) with these elements given.
        condition: of N objects.
        seed: of the draws.
    """
    rounds = itertools.count()

    def attempt(rows: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        part = condition.of_rows(rows)
        x = draw(part.tokens, part.given, seed_of(seed, next(rounds)))
        weights = part.weights.expand(len(x), *part.weights.shape[-2:]).gather(-1, x[..., None]).squeeze(-1)
        return x, torch.where(part.given, 1.0, weights).log().sum(-1)

    return _accepted(attempt, condition, seed)


def _accepted(
    attempt: Callable[[Tensor, torch.Generator], tuple[Tensor, Tensor]], condition: Condition, seed: int
) -> Tensor:
    """An accepted attempt for each object of a condition, (N, L).

    Args:
        attempt: `attempt(rows, generator)` returns tokens (n, L) for the objects with these numbers, and the log of the
            probability with which each is accepted, (n,).
        condition: of N objects.
        seed: of the draws.
    """
    generator, num = torch.Generator().manual_seed(seed), len(condition.given)
    result, missing, same = torch.zeros_like(condition.tokens), torch.arange(num), condition.is_the_same_for_all
    tried, accepted, of_each = 0, 0, 0
    while len(missing):
        _require_likely(tried if same else of_each * num, accepted, num, len(missing))
        repeats = min(_MOST_REPEATS, round((tried + 1) / (accepted + 1)) if same else max(1, of_each))
        rows = missing.repeat_interleave(max(1, repeats))[:_MOST_ROWS]
        tokens, log_accept = attempt(rows, generator)
        hits = (uniform(log_accept.shape, log_accept.device, generator).log() < log_accept).nonzero().squeeze(1)
        tried, accepted, of_each = tried + len(rows), accepted + len(hits), of_each + repeats
        if same:  # any attempt serves any object
            hits = hits[: len(missing)]
            filled = missing[: len(hits)]
        else:  # the first one of each object
            first = torch.ones_like(hits, dtype=torch.bool)
            first[1:] = rows[hits[1:]] != rows[hits[:-1]]
            hits = hits[first]
            filled = rows[hits]
        result[filled] = tokens[hits]
        missing = missing[~torch.isin(missing, filled)]
    return result


def _require_likely(tried: int, accepted: int, num: int, missing: int) -> None:
    """Raise an error after too many attempts."""
    if tried > _MOST_ATTEMPTS[0] + _MOST_ATTEMPTS[1] * num:
        share = f"one in {tried // accepted:,}" if accepted else "none"
        raise ValueError(
            f"where: {share} of {tried:,} attempts fulfils the condition, and {missing:,} of {num:,} objects are "
            "missing: expected a condition that the model finds likelier"
        )
