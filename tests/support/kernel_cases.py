"""Problems that several tests of the kernels go through."""

import numpy as np
import torch

import usd3
from support.problems import NOISES, WITH_SUPPORT, D, K, data_like, device_of


def table_with_zeros(k, rows=None):
    probs = np.random.default_rng(k).dirichlet(np.full(k, 0.5), size=rows or 1)
    probs[:, 1::3] = 0
    probs[:, 0] += 0.01
    probs /= probs.sum(-1, keepdims=True)
    return probs if rows else probs[0]


def support_of(k, rows=4):
    """Some of k categories for each of `rows` elements, the first always; the second element has that one alone."""
    support = np.random.default_rng(k).random((rows, k)) < 0.6
    support[:, 0], support[1, 1:] = True, False
    return support


WIDE = {
    "uniform": usd3.Uniform,
    "absorbing": usd3.Absorbing,
    "mixed": lambda k: usd3.Mixed(k, 0.3),
    "random": lambda k: usd3.Marginal(np.random.default_rng(k).dirichlet(np.full(k, 0.5))),
    "zeros": lambda k: usd3.Marginal(table_with_zeros(k)),
    "per_element_zeros": lambda k: usd3.Marginal(table_with_zeros(k, 4)),
    "uniform_support": lambda k: usd3.Uniform(k).within(support_of(k)),
    "absorbing_support": lambda k: usd3.Absorbing(k).within(support_of(k)),
    "mixed_support": lambda k: usd3.Mixed(k, 0.3).within(support_of(k)),
}


def case(impl, name="per_element", B=4, num_steps=10, dtype=torch.float64, validate=True):
    """A diffusion, x_0, x_t, times (early, late, between) and logits on the device of this implementation."""
    generator, device = torch.Generator().manual_seed(2), device_of(impl)
    d = usd3.Diffusion((NOISES | WITH_SUPPORT)[name][0](), usd3.Cosine(), num_steps, validate=validate, impl=impl)
    data = torch.tensor([z for z in range(K) if z != d.noise.mask])
    x_0 = data_like(d.noise, data[torch.randint(len(data), (B, D), generator=generator)])
    t = torch.tensor([2, 9, 5, 7])[:B] if num_steps else torch.tensor([0.1, 0.9, 0.5, 0.7])[:B]
    x_t = d.q_sample(x_0, t, generator=generator)
    logits = torch.randn(B, D, K, generator=generator, dtype=torch.float64).to(dtype)
    return d, *(v.to(device) for v in (x_0, x_t, t, logits))


def loss_and_gradient(d, logits, x_t, x_0, t, objective="usd3*", **masks):
    """loss, vlb and ce, (3,), and the gradient of the loss with respect to the logits."""
    leaf = logits.detach().clone().requires_grad_()
    out = d.loss_from_logits(leaf, x_t, x_0, t, objective, **masks)
    out.loss.backward()
    return torch.stack([out.loss.detach(), out.vlb, out.ce]), leaf.grad
