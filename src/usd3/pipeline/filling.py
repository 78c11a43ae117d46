"""The holes of prompts filled with values, although the model also knows cells without one.

In tables "missing" is a category, and no hole is filled with it. A hole that the model takes for missing counts as
missing while the others are drawn: so what the data say about rows with such a cell is used. Then it gets a value,
given all the others. All other holes are drawn together from p(holes | known cells, none of these holes is missing).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from usd3._internal.checks import as_mask, as_tokens, require
from usd3._internal.random import drawn_from, seed_of, uniform
from usd3.pipeline.conditions import OF_PREDICTIONS, sample_where

if TYPE_CHECKING:
    from usd3.pipeline.pipeline import Pipeline

__all__ = ["fill", "holes_without_value"]


def fill(pipeline: "Pipeline", tokens: ArrayLike, given: ArrayLike, seed: int, options: dict[str, Any]) -> Tensor:
    """Objects (N, ...) with their holes filled by `Kind.filling`; `options` are those of `Pipeline.sample`."""
    objects, weights = as_tokens(tokens), pipeline.kind.filling
    known = as_mask(given, tuple(objects.shape), "given")
    assert known is not None
    if weights is None:
        x: Tensor = pipeline.sample(tokens=objects, given=known, seed=seed, **options)
        return x
    labels = options.get("labels")
    same = labels is None or isinstance(labels, Mapping | str)
    require(same, "labels", labels, "None, or one for all objects, as in {'label': 'cat'}, where holes are filled")
    more = {name: options[name] for name in OF_PREDICTIONS if name in options}
    in_order = pipeline.diffusion.noise.is_absorbing and pipeline.method.reads == "full"
    empty = torch.zeros_like(known)
    if in_order:
        empty, objects = holes_without_value(pipeline, objects, known, **more)
    x = sample_where(pipeline, weights, None, objects, known | empty, seed, options)
    flat, open_ = x.flatten(1).clone(), empty.flatten(1).clone()
    generator = torch.Generator().manual_seed(seed_of(seed, -2))
    for i in open_.any(0).nonzero().squeeze(1).tolist():
        rows = open_[:, i].nonzero().squeeze(1)
        objects_i, known_i = (part[rows].unflatten(1, x.shape[1:]) for part in (flat, ~open_))
        probs = pipeline.predict(objects_i, known_i, element=i, **more).double()
        weighted = probs * weights.flatten(0, -2)[i]
        weighted = weighted + (weighted.sum(-1, keepdim=True) <= 0) * weights.flatten(0, -2)[i]
        flat[rows, i] = drawn_from(weighted, uniform(rows.shape, rows.device, generator))
        open_[rows, i] = False
    return flat.reshape(x.shape)


def holes_without_value(pipeline: "Pipeline", tokens: Tensor, given: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """The holes (N, ...) that the model takes for cells without a value, and the tokens with that category in them.

    `options` are those of `Pipeline.predict`.
    """
    kind, shape = pipeline.kind, tokens.shape
    assert kind.filling is not None
    without = (kind.filling == 0).flatten(0, -2)  # (L, K) categories that are no value
    without &= True if kind.support is None else kind.support.flatten(0, -2)
    flat, found = tokens.flatten(1).clone(), torch.zeros_like(given.flatten(1))
    for i in without.any(-1).nonzero().squeeze(1).tolist():
        rows = (~given.flatten(1)[:, i]).nonzero().squeeze(1)
        if len(rows):
            probs = pipeline.predict(tokens[rows], given[rows], element=i, **options)
            found[rows, i] = (probs * without[i]).sum(-1) > 0.5
            flat[rows, i] = (probs * without[i]).argmax(-1)
    return found.reshape(shape), torch.where(found, flat, tokens.flatten(1)).reshape(shape)
