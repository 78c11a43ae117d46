"""Numbers that a rebuild of the code must not change: losses, gradients, bounds and draws, written once and compared.

    PYTHONPATH=BEFORE/src python benchmarks/unchanged.py write numbers.npz      # a tree of before
    PYTHONPATH=src python benchmarks/unchanged.py compare numbers.npz           # this one

Only public names are used, so that the script runs on any tree of the project. Numbers must agree to 1e-12, relative to
1 or to their size, and draws bit for bit. One thread, on the CPU.
"""

import argparse
import importlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import usd3

K, B, L = 7, 5, 12
TOLERANCE = 1e-12


def seeded(seed: int) -> torch.Generator:
    """A generator of its own for each use."""
    return torch.Generator().manual_seed(seed)


X_0 = torch.randint(K - 1, (B, L), generator=seeded(1))
GIVEN = torch.rand(B, L, generator=seeded(2)) < 0.3
PAD = torch.zeros(B, L, dtype=torch.bool)
PAD[0, -3:] = True
WEIGHT, BIAS = torch.randn(K, K, generator=seeded(3)), torch.randn(L, K, generator=seeded(4))


def model(x: Tensor, t: Tensor) -> Tensor:
    """A network that looks at each element alone."""
    return (WEIGHT[x] + BIAS + t.reshape(-1, 1, 1)).float()


def told_model(x: Tensor, t: Tensor, given: Tensor | None = None, pad: Tensor | None = None) -> Tensor:
    """The same, told which elements are given."""
    return model(x, t) + (0 if given is None else given[..., None].float())


def noises() -> dict[str, usd3.Noise]:
    """Uniform, absorbing, any distribution, and one for each element, with zeros."""
    shared, own = torch.rand(K, generator=seeded(5)).double(), torch.rand(L, K, generator=seeded(6)).double()
    own[:, 2] = 0
    return {
        "uniform": usd3.Uniform(K),
        "absorbing": usd3.Absorbing(K),
        "marginal": usd3.Marginal(shared / shared.sum()),
        "per element": usd3.Marginal(own / own.sum(-1, keepdim=True)),
    }


def of_the_core() -> Iterator[tuple[str, Tensor]]:
    """Every public function of a diffusion, for each noise, schedule, kind of time and implementation."""
    schedules = {"cosine": usd3.Cosine(), "linear": usd3.Linear()}
    for noise, schedule, steps, impl in itertools.product(noises(), schedules, (None, 20), ("eager", "chunked")):
        x_0 = X_0.masked_fill(X_0 == 2, 3) if noise == "per element" else X_0
        d = usd3.Diffusion(noises()[noise], schedules[schedule], num_steps=steps, impl=impl)
        for name, value in of_a_diffusion(d, x_0):
            yield f"{noise}/{schedule}/{steps}/{impl}/{name}", value


def of_a_diffusion(d: usd3.Diffusion, x_0: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Losses with their gradient, the bound, one step, and samples."""
    for objective in ("usd3", "usd3*", "vlb", "ce"):
        weight = WEIGHT.clone().requires_grad_(True)

        def trained(x: Tensor, t: Tensor, weight: Tensor = weight, **masks: Tensor) -> Tensor:
            return weight[x] + BIAS + t.reshape(-1, 1, 1).float()

        out = d.loss(trained, x_0, objective, given=GIVEN, pad=PAD, generator=seeded(7))
        out.loss.backward()
        assert weight.grad is not None
        yield from ((f"{objective}/{part}", getattr(out, part)) for part in ("loss", "vlb", "ce"))
        yield f"{objective}/gradient", weight.grad
    yield "bound", d.bound(told_model, x_0, num_samples=6, given=GIVEN, pad=PAD, generator=seeded(8))
    t, s = (0.7, 0.3) if d.num_steps is None else (14, 6)
    x_t = d.q_sample(x_0, t, generator=seeded(9))
    logits = model(x_t, torch.full((B,), 0.7))
    yield "q_sample", x_t
    yield "q_probs", d.q_probs(x_0, t)
    yield "posterior", d.posterior(x_0, x_t, t, s).probs()
    yield "backward", d.backward(logits, x_t, t, s).probs()
    yield "rate", d.rate(logits, x_t, t)
    yield "ratio", d.ratio(logits, x_t, t)
    yield "draw", d.draw(logits, x_t, t, s, generator=seeded(10))
    terms = d.loss_terms(logits, x_t, x_0, t)
    values = {name: getattr(terms, name) for name in ("vlb", "ce", "l2", "kl2")}
    yield from ((f"terms/{name}", value) for name, value in values.items() if value is not None)
    for sampler in ("exact", "euler", "tau_leaping", "gillespie"):
        masks: dict[str, Any] = {"given": GIVEN, "given_tokens": x_0, "pad": PAD}
        yield f"sample/{sampler}", d.sample(told_model, (B, L), 9, sampler=sampler, generator=seeded(11), **masks)
    yield "corrected", d.sample(model, (B, L), 9, corrector=usd3.Corrector(2, 0.3, None), generator=seeded(12))
    if d.num_steps is None:
        yield "two passes", usd3.two_pass_loss(d, model, x_0, generator=seeded(13)).loss
    yield "partial time", usd3.partial_time_loss(d, model, x_0, generator=seeded(14)).loss


def of_the_methods() -> Iterator[tuple[str, Tensor]]:
    """The loss, the bound and every sampler of the other methods."""
    methods = _methods()
    cases: dict[str, tuple[usd3.Noise, usd3.Schedule, int | None]] = {
        "D3PM": (usd3.Uniform(K), usd3.Cosine(), 20),
        "RDM": (usd3.Uniform(K), usd3.Cosine(), 20),
        "TauLDR": (usd3.Uniform(K), usd3.Constant(3.0), None),
        "SDDM": (usd3.Uniform(K), usd3.Constant(3.0), None),
        "SEDD": (usd3.Uniform(K), usd3.LogLinear(), None),
        "MDLM": (usd3.Absorbing(K), usd3.Linear(), None),
    }
    for name, (noise, schedule, steps) in cases.items():
        method = getattr(methods, name)(usd3.Diffusion(noise, schedule, num_steps=steps))
        out = method.loss(model, X_0, given=GIVEN, generator=seeded(20))
        yield f"{name}/loss", out.loss
        yield f"{name}/vlb", out.vlb
        for sampler in method.samplers:
            yield f"{name}/{sampler}", method.sample(model, (B, L), 10, sampler=sampler, generator=seeded(21))
        yield f"{name}/bound", method.bound(model, X_0, 6, generator=seeded(22))


def _methods() -> Any:
    """The package of the methods, which was called baselines once."""
    try:
        return importlib.import_module("usd3.methods")
    except ImportError:
        return importlib.import_module("usd3.baselines")


def of_the_packaged_models() -> Iterator[tuple[str, Tensor]]:
    """Samples, a continuation and a bound of each."""
    given = torch.arange(256) < 64
    for name in ("bach", "pop909"):
        pipeline = usd3.Pipeline.from_pretrained(name, device="cpu")
        yield f"{name}/sample", pipeline.sample(2, num_steps=8, seed=3)
        tune = pipeline.sample(1, num_steps=4, seed=4)
        yield f"{name}/continued", pipeline.sample(num_steps=6, tokens=tune, given=given, temperature=0.8, seed=5)
        yield f"{name}/bound", pipeline.bound(tune, given, num_samples=2)


def numbers() -> dict[str, np.ndarray[Any, Any]]:
    """All of them, by name: floating-point numbers as float64."""
    torch.set_num_threads(1)
    parts = itertools.chain(of_the_core(), of_the_methods(), of_the_packaged_models())
    values = {name: value.detach() for name, value in parts}
    return {name: (value.double() if value.is_floating_point() else value).numpy() for name, value in values.items()}


def compare(now: dict[str, np.ndarray[Any, Any]], before: dict[str, np.ndarray[Any, Any]]) -> int:
    """Print what differs, and how many were compared; the number that differ."""
    assert set(now) == set(before), f"names that only one tree has: {sorted(set(now) ^ set(before))}"
    draws = {name for name, value in before.items() if value.dtype.kind in "iu"}
    errors = {name: float(np.max(np.abs(now[name] - old) / np.maximum(1, np.abs(old)))) for name, old in before.items()}
    limits = {name: 0.0 if name in draws else TOLERANCE for name in before}
    different = [name for name, error in errors.items() if not error <= limits[name]]
    for name in different:
        print(f"{name}: differs by {errors[name]:.1e}")
    worst = max(error for name, error in errors.items() if name not in draws)
    print(f"{len(draws)} tensors of draws and {len(before) - len(draws)} of numbers; the numbers to {worst:.1e}")
    print(f"{len(different)} differ")
    return len(different)


def main() -> int:
    """Write the numbers of a tree, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["write", "compare"])
    parser.add_argument("file", type=Path, help="an .npz file")
    options = parser.parse_args()
    now = numbers()
    if options.action == "write":
        np.savez_compressed(options.file, allow_pickle=False, **now)
        return 0
    with np.load(options.file) as stored:
        return int(compare(now, {name: stored[name] for name in stored.files}) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
