"""Every random draw of the package starts here: float64 uniforms, inverted through a float64 CDF.

53 bits keep rare categories right: a float32 race over K categories is not (see docs/equations.md, "Numerics").
A CPU generator serves every device: the numbers are drawn where the generator lives and then moved.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["categorical", "drawn_from", "invert_cdf", "seed_draws", "seed_of", "uniform"]

_BELOW_ONE = 1 - 2.0**-53


def seed_of(*numbers: int) -> int:
    """One well-mixed 63-bit seed from several numbers."""
    digest = hashlib.blake2b(",".join(map(str, numbers)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def seed_draws(seed: int, device: torch.device) -> None:
    """Seed the draws without a generator on the CPU and on one device.

    `torch.manual_seed` asks every backend, and formats the stack for each that is not in use, at every step.
    """
    if device.type not in ("cpu", "cuda"):
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(seed)


def uniform(shape: Sequence[int], device: torch.device, generator: torch.Generator | None) -> Tensor:
    """Float64 uniforms on [0, 1)."""
    if generator is None:  # not even named: torch.compile knows torch.rand with a generator for fixed shapes alone
        return torch.rand(tuple(shape), dtype=torch.float64, device=device)
    return torch.rand(tuple(shape), dtype=torch.float64, device=generator.device, generator=generator).to(device)


def invert_cdf(cdf: Tensor, u: Tensor) -> Tensor:
    """The first category whose cumulative probability exceeds u; categories of probability 0 never come.

    `cdf` is (K,), or (..., K) with leading dimensions that broadcast to the last ones of u.
    """
    u = u.clamp(max=_BELOW_ONE)
    if cdf.dim() == 1:
        return torch.searchsorted(cdf, u.contiguous(), right=True)
    elements = u.shape[u.dim() - (cdf.dim() - 1) :]
    rows = cdf.expand(*elements, cdf.shape[-1]).reshape(-1, cdf.shape[-1])  # (D, K), whatever the batch
    found = torch.searchsorted(rows.contiguous(), u.reshape(-1, len(rows)).T.contiguous(), right=True)
    return found.T.reshape(u.shape)


def categorical(logits: Tensor, u: Tensor) -> Tensor:
    """A category of each row of logits (n, K), drawn by inverse CDF from u (n,)."""
    logits = logits.double()
    mass = torch.exp(logits - logits.amax(-1, keepdim=True)).cumsum(-1)
    mass = mass / mass[:, -1:]
    return torch.searchsorted(mass, u.clamp(max=_BELOW_ONE)[:, None], right=True).squeeze(-1)


def drawn_from(probs: Tensor, u: Tensor) -> Tensor:
    """A category of each row of probabilities (..., K), which need not sum to 1, from uniforms u (...)."""
    cdf = probs.double().cumsum(-1)
    found = torch.searchsorted(cdf / cdf[..., -1:], u.clamp(max=_BELOW_ONE)[..., None], right=True).squeeze(-1)
    return found.clamp(max=probs.shape[-1] - 1)  # where the rows are no numbers
