"""Logits that no network should give: every implementation takes and refuses the same, and says the same.

The rule is that of docs/kernels.md. Where logits are finite, or -inf for some categories, the loss, its gradient and
the draw are numbers, and those of the eager code, which is the reference; but for the gradient of an element whose
truth has the probability 0, which is a number and no more.
"""

import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

import usd3
from attacks.cases import Case
from usd3.kernels.choice import cpp_runs

__all__ = ["cases", "planted"]

_FAMILY = "logits"
_K, _D = 5, 3
_FAR = 1e29
_INF, _NAN = torch.inf, torch.nan
_ZEROS = (0.5, 0.0, 0.3, 0.2, 0.0)
_EACH = ((0.1, 0.2, 0.3, 0.3, 0.1), (0.5, 0.0, 0.3, 0.2, 0.0), (0.0, 0.0, 1.0, 0.0, 0.0))
_NOISES: dict[str, Callable[[], usd3.Noise]] = {
    "uniform": lambda: usd3.Uniform(_K),
    "absorbing": lambda: usd3.Absorbing(_K, mask=1),
    "marginal": lambda: usd3.Marginal([0.1, 0.2, 0.3, 0.3, 0.1]),
    "marginal with zeros": lambda: usd3.Marginal(_ZEROS),
    "one for each element": lambda: usd3.Marginal(_EACH),
}
_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
_VALUES: dict[str, tuple[float, ...]] = {
    "ordinary": (0.0,),
    "1e4": (1e4, -1e4),
    "1e30": (1e30, -1e30),
    "the largest there are": (_INF, -_INF),  # stands for the largest numbers of the type
    "the smallest there are": (5e-324, -5e-324),  # likewise
    "NaN": (_NAN,),
    "+inf": (_INF,),
    "-inf": (-_INF,),
    "+inf and -inf": (_INF, -_INF),
    "all -inf": (-_INF,) * _K,
    "NaN everywhere": (_NAN,) * _K,
}
_EXTREMES = {"the largest there are": "max", "the smallest there are": "smallest_normal"}

Call = Callable[[usd3.Diffusion, "_Problem"], Tensor]


@dataclass(frozen=True)
class _Setting:
    noise: str
    time: str
    values: str
    dtype: str
    fused: tuple[str, ...]
    seed: str

    def make_noise(self) -> usd3.Noise:
        return _NOISES[self.noise]()


class _Problem:
    """Logits (1, D, K) of which some are bad, and what they are about."""

    def __init__(self, setting: _Setting):
        noise, values, dtype = setting.make_noise(), setting.values, _TYPES[setting.dtype]
        chance = random.Random(setting.seed)
        generator = torch.Generator().manual_seed(chance.randrange(2**31))
        logits = torch.randn(1, _D, _K, generator=generator, dtype=torch.float64).to(dtype)
        bad = torch.tensor(_VALUES[values], dtype=torch.float64).to(dtype)
        if values in _EXTREMES:
            bad = bad.sign() * getattr(torch.finfo(dtype), _EXTREMES[values])
            bad = bad / 8 if "smallest" in values else bad  # a denormal
        places = chance.sample(range(_K), len(bad))
        for element in chance.sample(range(_D), chance.randint(1, _D)):
            logits[0, element, places] = bad
        self.logits, self.mask = logits, noise.mask
        data = [k for k in range(_K) if k != noise.mask]
        self.x_0 = torch.tensor([[chance.choice(data) for _ in range(_D)]])
        m = noise.probs.expand(_D, _K)
        noisy = [chance.choice(m[i].nonzero().flatten().tolist()) for i in range(_D)]
        self.x_t = torch.tensor([[x if chance.random() < 0.8 else int(self.x_0[0, i]) for i, x in enumerate(noisy)]])
        self.seed = chance.randrange(2**31)

    def hopeless(self) -> Tensor:
        """Which elements (1, D) have a truth of probability 0, whose loss is 1e30 in place of infinite."""
        logits = self.logits.double()
        if self.mask is not None:
            logits[..., self.mask] = -_INF
        return logits.log_softmax(-1).gather(-1, self.x_0[..., None])[..., 0] < -_FAR


def cases(seed: int, rounds: int, triton_every: int | None) -> Iterator[Case]:
    """Each noise, time, type and kind of logits so many times; every so many also by Triton's kernels."""
    each = product(range(rounds), _NOISES, ("discrete", "continuous"), _VALUES, _TYPES, _CALLS)
    for number, (turn, noise, time, values, dtype, what) in enumerate(each):
        about = f"{noise}, {time}, {dtype}, {what}, round {turn}"
        triton = triton_every is not None and number % triton_every == 0 and dtype != "float64"
        fused = ("chunked", *(["cpp"] if cpp_runs() else []), *(["triton"] if triton else []))
        setting = _Setting(noise, time, values, dtype, fused, f"{seed} {values} {about}")
        yield Case(_FAMILY, values, about, partial(_compare, setting, _CALLS[what]))


def planted() -> Iterator[Case]:
    """What has to be counted as a failure: implementations that disagree, or answer with no number."""

    def no_number(d: usd3.Diffusion, problem: _Problem) -> Tensor:
        return _CALLS["loss"](d, problem) * (_NAN if d.impl == "chunked" else 1)

    def other(d: usd3.Diffusion, problem: _Problem) -> Tensor:
        return _CALLS["draw"](d, problem) + (d.impl == "chunked")

    def not_refused(d: usd3.Diffusion, problem: _Problem) -> Tensor:
        return torch.zeros(1) if d.impl == "chunked" else _CALLS["loss"](d, problem)

    for call, values in ((no_number, "ordinary"), (other, "ordinary"), (not_refused, "NaN everywhere")):
        setting = _Setting("uniform", "discrete", values, "float32", ("chunked",), "0")
        yield Case(_FAMILY, "planted", call.__name__, partial(_compare, setting, call))


def _loss(d: usd3.Diffusion, problem: _Problem) -> Tensor:
    """The loss and its gradient."""
    leaf = problem.logits.clone().requires_grad_()
    out = d.loss_from_logits(leaf, problem.x_t, problem.x_0, _time(d), "usd3")
    out.loss.backward()
    assert leaf.grad is not None
    return torch.cat([out.loss.detach()[None].double(), leaf.grad.flatten().double()])


def _draw(d: usd3.Diffusion, problem: _Problem) -> Tensor:
    return d.draw(problem.logits, problem.x_t, _time(d), 0, torch.Generator().manual_seed(problem.seed))


_CALLS: dict[str, Call] = {"loss": _loss, "draw": _draw}


def _time(d: usd3.Diffusion) -> float | int:
    return 0.6 if d.continuous else 6


def _compare(setting: _Setting, call: Call, folder: Path) -> str | None:
    """Where the implementations differ; nothing is written to the folder."""
    problem = _Problem(setting)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Triton's interpreter computes lanes that the kernel leaves out
        found = {impl: _taken(call, setting, impl, problem) for impl in ("eager", *setting.fused)}
    expected = found["eager"]
    for impl, value in found.items():
        if (value is None) != (expected is None):
            return f"{impl} {'refuses' if value is None else 'takes'} what eager does not: {problem.logits.tolist()}"
        if value is None or expected is None:
            continue
        if not bool(value.isfinite().all()):
            return f"{impl} gives {value.tolist()} for {problem.logits.tolist()}"
        if not _close(value, expected, problem):
            return f"{impl} gives {value.tolist()}, eager {expected.tolist()}, for {problem.logits.tolist()}"
    return None


def _taken(call: Call, setting: _Setting, impl: str, problem: _Problem) -> Tensor | None:
    """The answer, or None where the logits are refused."""
    d = usd3.Diffusion(setting.make_noise(), usd3.Cosine(), 10 if setting.time == "discrete" else None, impl=impl)
    try:
        return call(d, problem)
    except ValueError as error:
        if "logits contains nan" not in str(error):
            raise
        return None


def _close(value: Tensor, expected: Tensor, problem: _Problem) -> bool:
    """Draws are equal; losses and gradients too but for rounding, the latter where the loss is not 1e30."""
    if not value.is_floating_point():
        return torch.equal(value, expected)
    digits = max(1e-4, 4 * torch.finfo(problem.logits.dtype).eps)
    loss = torch.allclose(value[0], expected[0], rtol=digits, atol=digits)
    own, other = (gradient[1:].reshape(_D, _K)[~problem.hopeless()[0]] for gradient in (value, expected))
    scale = max(1.0, float(other.abs().max())) if len(other) else 1.0
    return loss and torch.allclose(own, other, rtol=digits, atol=digits * scale)
