"""All random draws of the package: float64 uniforms, turned into categories by a float64 inverse CDF.

Float64 draws rare categories with the right probability; a Gumbel race over K categories in float32 does not (see
docs/equations.md, "Numerics"). A generator on the CPU works for every device: numbers are drawn on the
generator's device and then moved.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["categorical", "drawn_from", "invert_cdf", "seed_draws", "seed_of", "uniform"]

_BELOW_ONE = 1 - 2.0**-53


def seed_of(*numbers: int) -> int:
    """A 63-bit seed, a hash of several numbers."""
    digest = hashlib.blake2b(",".join(map(str, numbers)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def seed_draws(seed: int, device: torch.device) -> None:
    """Seed torch's default generators of the CPU and of one device.

    Faster than `torch.manual_seed`, which seeds every backend and formats a stack trace for each one not in use.
    """
    if device.type not in ("cpu", "cuda"):
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(seed)


def uniform(shape: Sequence[int], device: torch.device, generator: torch.Generator | None) -> Tensor:
    """Float64 uniforms on [0, 1) of this shape."""
    if generator is None:  # omit the argument: torch.compile accepts a generator only with fixed shapes
        return torch.rand(tuple(shape), dtype=torch.float64, device=device)
    return torch.rand(tuple(shape), dtype=torch.float64, device=generator.device, generator=generator).to(device)


def invert_cdf(cdf: Tensor, u: Tensor) -> Tensor:
    """The first category whose cumulative probability exceeds u; a category of probability 0 is never drawn.

    Args:
        cdf: Cumulative probabilities (K,), or (..., K) with leading dimensions that broadcast to the last ones of u.
        u: Uniforms of any shape, which the result has too.
    """
    u = u.clamp(max=_BELOW_ONE)
    if cdf.dim() == 1:
        return torch.searchsorted(cdf, u.contiguous(), right=True)
    elements = u.shape[u.dim() - (cdf.dim() - 1) :]
    rows = cdf.expand(*elements, cdf.shape[-1]).reshape(
        -1, cdf.shape[-1]
    )  # (D, K), one row per element whatever the batch size
    categories = torch.searchsorted(rows.contiguous(), u.reshape(-1, len(rows)).T.contiguous(), right=True)
    return categories.T.reshape(u.shape)


def categorical(logits: Tensor, u: Tensor) -> Tensor:
    """Categories (n,) drawn from logits (n, K) with uniforms u (n,)."""
    logits = logits.double()
    mass = torch.exp(logits - logits.amax(-1, keepdim=True)).cumsum(-1)
    mass = mass / mass[:, -1:]
    return torch.searchsorted(mass, u.clamp(max=_BELOW_ONE)[:, None], right=True).squeeze(-1)


def drawn_from(probs: Tensor, u: Tensor) -> Tensor:
    """Categories (...) drawn from weights (..., K), which need not sum to 1, with uniforms u (...)."""
    cdf = probs.double().cumsum(-1)
    categories = torch.searchsorted(cdf / cdf[..., -1:], u.clamp(max=_BELOW_ONE)[..., None], right=True).squeeze(-1)
    return categories.clamp(max=probs.shape[-1] - 1)  # a row of nan gives K
