"""What a model says about each element that is not known, given those that are, and about the labels of objects."""

from typing import TYPE_CHECKING

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional as F

from usd3._internal.checks import as_count, as_mask, as_share, as_tokens, require
from usd3._internal.messages import suggestion
from usd3.core.belief import data_logits
from usd3.core.coefficients import free_elements
from usd3.core.logits import Adjust, LogitOptions
from usd3.core.model import Denoiser
from usd3.pipeline.batches import in_batches
from usd3.pipeline.encoded import Encoded
from usd3.pipeline.labels import Labels, label_rows

if TYPE_CHECKING:
    from usd3.pipeline.pipeline import Pipeline

__all__ = ["predict", "predict_label"]


def predict(
    pipeline: "Pipeline",
    tokens: ArrayLike,
    given: ArrayLike,
    temperature: float = 1.0,
    num_samples: int = 16,
    seed: int = 0,
    batch_size: int | None = None,
    element: int | None = None,
    labels: Labels | None = None,
    top_k: int | None = None,
    top_p: float = 1.0,
    bias: ArrayLike | None = None,
    adjust: Adjust | None = None,
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
        labels: the label of each object, as in `Pipeline.sample`; None: absent.
        top_k: only the k likeliest categories, as in `Pipeline.sample`.
        top_p: only the fewest likeliest categories with this total probability.
        bias: added to the logits, in the categories of the data.
        adjust: `adjust(logits, x_t, t)` returns other logits.
    """
    config, noise, device = pipeline.config, pipeline.diffusion.noise, pipeline.device
    expected = "one whose network says p(x_0 | x_t)"
    require(pipeline.method.reads != "ratio", "method", config.method.name, expected)
    objects, K = as_tokens(tokens), config.num_classes
    known = as_mask(given, tuple(objects.shape), "given")
    require(known is not None, "given", given, "a mask of the known elements")
    assert known is not None
    label = label_rows(labels, config.labels, len(objects))
    encoded = pipeline.encoded(torch.where(known, objects, 0))
    draws = 1 if noise.is_absorbing else as_count(num_samples, "num_samples", 1)
    wishes = None if bias is None else pipeline.encoded_bias(bias)
    options = LogitOptions(temperature, top_k, top_p, wishes, adjust)
    pipeline.method.require_logits(**options.changed())

    def probabilities(rows: slice) -> Tensor:
        x_0, mask = encoded[rows].to(device), known[rows].to(device)
        model = pipeline.model_for(len(x_0), None if label is None else label[rows])
        denoise = Denoiser(pipeline.method.denoiser(model), noise.num_classes, mask, None, options.belief)
        generator = pipeline.generator(seed, rows)
        time, f = torch.ones(len(x_0), device=device), torch.zeros((), device=device)
        for _ in range(draws):
            x = torch.where(mask, x_0, noise.sample(x_0, generator))
            f = f + torch.softmax(data_logits(options.drawn(denoise(x, time), noise), noise), -1)[..., :K] / draws
        probs = torch.where(mask[..., None], F.one_hot(x_0, K).to(f.dtype), f).flatten(1, -2)
        return (probs.unflatten(1, tuple(config.shape)) if element is None else probs[:, element]).float().cpu()

    size = pipeline.batch_size(len(objects)) if batch_size is None else batch_size
    probs = in_batches(probabilities, len(objects), size)
    return probs if config.decode is None else probs[..., torch.tensor(config.decode).argsort()]


def predict_label(
    pipeline: "Pipeline",
    tokens: ArrayLike,
    t: float = 0.0,
    given: ArrayLike | None = None,
    pad: ArrayLike | None = None,
    name: str | None = None,
    seed: int = 0,
    batch_size: int | None = None,
) -> Tensor:
    """The probabilities (N, C) of the classes of a label, p(label | x_t), as the network tells them in one call.

    Args:
        pipeline: the model.
        tokens: (N, ...) the objects.
        t: their time: 0 for clean objects. At a later time they get noise first.
        given: (N, ...) True where an element stays as it is at any time.
        pad: (N, ...) True where an element is padding.
        name: name of the label; None: the first.
        seed: seed of the noise.
        batch_size: number of objects in a batch; None: chosen by memory.
    """
    names = list(pipeline.config.labels)
    require(len(names) > 0, "model", pipeline.config.data.source, "a model of data with labels")
    name = names[0] if name is None else name
    require(name in names, "name", name, f"one of {', '.join(names)}{suggestion(name, names)}")
    time = as_share(t, "t")
    objects = Encoded.of(pipeline, tokens, given, pad)

    def probabilities(rows: slice) -> Tensor:
        part = objects.on(pipeline.device, rows)
        x, times = part.tokens, torch.full((len(part),), time, device=pipeline.device)
        if time > 0:
            free = free_elements(part.given, part.pad)
            x = pipeline.method.diffusion.draw_noisy(x, times.double(), free, pipeline.generator(seed, rows))
        logits = pipeline.bare_network.label_logits(x, times, given=part.given, pad=part.pad)[names.index(name)]
        probs: Tensor = logits.float().softmax(-1).cpu()
        return probs

    size = pipeline.batch_size(len(objects)) if batch_size is None else batch_size
    return in_batches(probabilities, len(objects), size)
