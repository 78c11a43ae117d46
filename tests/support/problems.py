"""The noises, implementations and small problems that tests go through."""

import importlib.util

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

import usd3
from usd3.kernels.choice import cpp_runs

K, D = 4, 3
_random = np.random.default_rng(7)
RANDOM = _random.dirichlet(np.ones(K))
PER_ELEMENT = _random.dirichlet(np.ones(K), size=D)
WITH_ZEROS = np.array([0.5, 0.0, 0.3, 0.2])
PER_ELEMENT_ZEROS = np.stack([WITH_ZEROS, RANDOM, np.array([0.0, 0.0, 1.0, 0.0])])
SUPPORT = np.array([[True, False, True, True], [True, False, False, True], [False, False, True, False]])
WITHIN = SUPPORT * RANDOM / (SUPPORT * RANDOM).sum(-1, keepdims=True)
MIXED = np.array([0.1, 0.7, 0.1, 0.1])
MIXED_WITHIN = 0.3 * SUPPORT / SUPPORT.sum(-1, keepdims=True) + 0.7 * np.eye(K)[1]

NOISES = {
    "uniform": (lambda: usd3.Uniform(K), np.full((D, K), 1 / K)),
    "absorbing": (lambda: usd3.Absorbing(K, mask=1), np.tile(np.eye(K)[1], (D, 1))),
    "random": (lambda: usd3.Marginal(RANDOM), np.tile(RANDOM, (D, 1))),
    "zeros": (lambda: usd3.Marginal(WITH_ZEROS), np.tile(WITH_ZEROS, (D, 1))),
    "per_element": (lambda: usd3.Marginal(PER_ELEMENT), PER_ELEMENT),
    "mixed": (lambda: usd3.Mixed(K, 0.3, mask=1), np.tile(MIXED, (D, 1))),
    "per_element_zeros": (lambda: usd3.Marginal(PER_ELEMENT_ZEROS), PER_ELEMENT_ZEROS),
}
WITH_SUPPORT = {
    "uniform_support": (lambda: usd3.Uniform(K).within(SUPPORT), SUPPORT / SUPPORT.sum(-1, keepdims=True)),
    "random_support": (lambda: usd3.Marginal(RANDOM).within(SUPPORT), WITHIN),
    "absorbing_support": (lambda: usd3.Absorbing(K, mask=1).within(SUPPORT), np.tile(np.eye(K)[1], (D, 1))),
    "mixed_support": (lambda: usd3.Mixed(K, 0.3, mask=1).within(SUPPORT), MIXED_WITHIN),
}


HAS_TRITON = importlib.util.find_spec("triton") is not None
NEEDS_TRITON = (
    pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed"),
    # NumPy computes the lanes that the kernel leaves out, too
    pytest.mark.filterwarnings("ignore:(invalid value|divide by zero|overflow) encountered in:RuntimeWarning"),
)
TRITON = pytest.param("triton", marks=NEEDS_TRITON)
NEEDS_CPP = pytest.mark.skipif(not cpp_runs(), reason="there is no C++ compiler")
CPP = pytest.param("cpp", marks=NEEDS_CPP)
FUSED = ("chunked", CPP, TRITON)
IMPLEMENTATIONS = ("eager", *FUSED)


def device_of(impl):
    """Triton's kernels are tested on the GPU where there is one, everything else on the CPU."""
    return torch.device("cuda" if impl == "triton" and torch.cuda.is_available() else "cpu")


def some(impl, step, *tensors, first=0):
    """Every step-th object where Triton is interpreted, at 8 ms for each row; else all of them."""
    interpreted = impl == "triton" and device_of(impl).type == "cpu"
    return tuple(tensor[first % step :: step] for tensor in tensors) if interpreted else tensors


def retile(monkeypatch, kernel, **changes):
    """Cut the work of a Triton kernel in another way: `changes`, where it has them, or functions of the size K."""
    module = importlib.import_module(f"usd3.kernels.{kernel}")
    before = module.tile

    def tile(*args, **options):
        K = args[0] if len(args) == 1 else args[1]
        own = before(*args, **options)
        return own | {name: v(K) if callable(v) else v for name, v in changes.items() if name in own}

    monkeypatch.setattr(module, "tile", tile)


class LargestTensor(TorchDispatchMode):
    """Remembers the size in bytes of the largest storage that any operation inside it returns."""

    bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_iter(out):
            if isinstance(tensor, torch.Tensor):
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return out


def data_categories(noise, element=0):
    """The categories that data can have at an element."""
    support = noise.support if noise.support is None or noise.support.dim() == 1 else noise.support[element]
    return [k for k in range(noise.num_classes) if k != noise.mask and (support is None or support[k])]


def data_like(noise, x):
    """Categories x (n, D) of any kind as data: those that data cannot have become the first one they can have."""
    data = [data_categories(noise, d) for d in range(x.shape[1])]
    return torch.tensor([[z if z in data[d] else data[d][0] for d, z in enumerate(row)] for row in x.tolist()])


def of_first_element(noise):
    """The same noise for objects of one element, the first."""
    if noise.support is not None:
        if noise.mask is None:
            return usd3.Marginal(noise.probs[:1]).within(noise.support[:1])
        whole = usd3.Absorbing(K, noise.mask) if noise.is_absorbing else usd3.Mixed(K, noise.uniform, noise.mask)
        return whole.within(noise.support[:1])
    return usd3.Marginal(noise.probs[:1]) if noise.probs.dim() == 2 else noise


def all_pairs(noise, rows):
    """Every possible (x_0, x_t) of every element: x_0, x_t of shape (n, D), impossible pairs left at x_t = x_0."""
    pairs = [(a, b) for a in range(noise.num_classes) if a != noise.mask for b in range(noise.num_classes)]
    x_0 = data_like(noise, torch.tensor([[a] * D for a, _ in pairs]))
    x_t = torch.tensor([[b if rows[d][b] > 0 else x[d] for d in range(D)] for x, (_, b) in zip(x_0.tolist(), pairs)])
    return x_0, x_t


def supported(f, x_t, noise, rows):
    """The support rule, spelt out: (n, D, K) probabilities as the library must read them."""
    f = f.copy()
    for d in range(f.shape[1]):
        f[:, d, [k for k in range(f.shape[-1]) if k not in data_categories(noise, d)]] = 0
    f /= f.sum(-1, keepdims=True)
    for i in range(x_t.shape[0]):
        for d in range(x_t.shape[1]):
            if rows[d][x_t[i, d]] == 0:
                f[i, d] = np.eye(f.shape[-1])[x_t[i, d]]
    return f
