"""What a model says about each element that is not known, given those that are."""

from typing import TYPE_CHECKING

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional as F

from usd3._internal.checks import as_count, as_mask, as_tokens, require
from usd3._internal.random import seed_of
from usd3.core.belief import data_logits
from usd3.core.model import Denoiser
from usd3.pipeline.batches import in_batches

if TYPE_CHECKING:
    from usd3.pipeline.pipeline import Pipeline

__all__ = ["predict"]


def predict(
    pipeline: "Pipeline",
    tokens: ArrayLike,
    given: ArrayLike,
    temperature: float = 1.0,
    num_samples: int = 16,
    seed: int = 0,
    batch_size: int | None = None,
    element: int | None = None,
) -> Tensor:
    """The distribution of each element given the given ones, (N, ..., K) float32, in the categories of the data.

    That is f where all other elements are noise. With absorbing noise one network call tells it.

    Args:
        pipeline: the model.
        tokens: (N, ...) the objects; elements that are not given may have any category.
        given: (N, ...) True where an element is known. Its distribution is its category in `tokens`.
        temperature: divides the logits.
        num_samples: draws of the noise over which f is averaged, if the noise is not absorbing.
        seed: seed of these draws.
        batch_size: number of objects in a batch; None: chosen by memory.
        element: the number of the only element that is wanted, counted over all dimensions; then the result is (N, K).
    """
    config, noise, device = pipeline.config, pipeline.diffusion.noise, pipeline.device
    expected = "one whose network says p(x_0 | x_t)"
    require(pipeline.method.reads != "ratio", "method", config.method.name, expected)
    objects, K = as_tokens(tokens), config.num_classes
    known = as_mask(given, tuple(objects.shape), "given")
    require(known is not None, "given", given, "a mask of the known elements")
    assert known is not None
    encoded = pipeline.encoded(torch.where(known, objects, 0))
    draws = 1 if noise.is_absorbing else as_count(num_samples, "num_samples", 1)
    pipeline.method.require_temperature(temperature)

    def probabilities(rows: slice) -> Tensor:
        x_0, mask = encoded[rows].to(device), known[rows].to(device)
        denoise = Denoiser(pipeline.method.denoiser(pipeline.denoiser(len(x_0))), noise.num_classes, mask, None)
        generator = torch.Generator(device).manual_seed(seed_of(seed, rows.start))
        time, f = torch.ones(len(x_0), device=device), torch.zeros((), device=device)
        for _ in range(draws):
            x = torch.where(mask, x_0, noise.sample(x_0, generator))
            f = f + torch.softmax(data_logits(denoise(x, time), noise) / temperature, -1)[..., :K] / draws
        probs = torch.where(mask[..., None], F.one_hot(x_0, K).to(f.dtype), f).flatten(1, -2)
        return (probs.unflatten(1, tuple(config.shape)) if element is None else probs[:, element]).float().cpu()

    size = pipeline.batch_size(len(objects)) if batch_size is None else batch_size
    probs = in_batches(probabilities, len(objects), size)
    return probs if config.decode is None else probs[..., torch.tensor(config.decode).argsort()]
