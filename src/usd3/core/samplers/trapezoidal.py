"""The theta-trapezoidal rule (Ren et al., 2025) on exact steps: two network calls a step, error of second order.

An exact step is exact for each element alone. Its error, of first order, comes from f, which is asked once for x_t and
then does not see the others move. The trapezoidal rule corrects that. With an intermediate time rho = t - theta (t - s)

    x*  ~ B(f; x_t, t -> rho)                    f = softmax(network(x_t, t))
    x_s ~ B(g; x*, rho -> s)                     g = (alpha_1 f* - alpha_2 f^)_+, normalised, f* = network(x*, rho)

    alpha_1 = 1 / (2 theta (1 - theta))
    alpha_2 = ((1 - theta)^2 + theta^2) / (2 theta (1 - theta)) = alpha_1 - 1

f^ is what the first call expects the second one to say, if an element learns only of its own move, by Bayes' rule:
f^_z ~ f_z q(x*_rho | x_t, x_0 = z). Where the two agree the step is exact. f* - f^ grows from 0 along the step, so its
integral over the step is, to second order, (1 - theta) (t - s) alpha_1 times its value at rho.

The paper writes the rule for rates, with jumps by tau-leaping. Rates are linear in f, so the combination of rates is
that of f. With B in place of leaps an element that moved in the first stage needs no care, and neither do times near 1,
where the rates of the paper have no limit. As in the paper, the second order needs g >= 0 before the positive part:
what one element's move says about another must not be too strong. theta = 1/2 needs the least, f* >= f^ / 2.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from usd3._internal.checks import as_number
from usd3.core.belief import Level, kept_share
from usd3.core.coefficients import Process, column
from usd3.core.mixture import Jumps, Transition
from usd3.core.noise import Noise
from usd3.core.samplers.exact import exact, exact_jumps
from usd3.core.samplers.run import Run, StepFunction, by_objects, data_of, read_logits

__all__ = ["Trapezoidal", "combined_logits", "expected_belief", "middle_times"]


@dataclass(frozen=True)
class Trapezoidal:
    """Sampler with two network calls in each step but the last, which draws from f.

    `theta` in (0, 1) is where the second call stands in a step. In discrete time it is rounded to a whole step, and a
    step to the time just before is an exact one, with one call.
    """

    theta: float = 0.5

    def __post_init__(self) -> None:
        as_number(self.theta, "theta", 0, 1)

    def __call__(self, run: Run, grid: list[float]) -> StepFunction:
        """An exact step to rho, then one from there with the combined f."""
        process, x = run.process, run.free
        t, s = run.steps(grid)  # (S,)
        rho, alpha_1 = middle_times(process, t, s, self.theta)
        single, twice = exact(run, grid), ((rho > s) & (rho < t) & (s > 0)).tolist()
        at_t, before = process.unpacked(process.coefficients(t, rho), x)  # (S, 1, ..., 1)
        at_rho, after = exact_jumps(process, rho, s, x)
        assert before.stay is not None
        weights = (before.to_data, before.to_noise, before.stay, after.to_data, after.to_noise)
        numbers = torch.stack([*weights, *at_t, *at_rho, column(alpha_1, x)], 1)  # (S, 10, 1, ..., 1)
        times = torch.stack([run.network_times(t), run.network_times(rho)], 1)  # (S, 2, B)

        def moved(x: Tensor, times: Tensor, numbers: Tensor, u: Tensor, v: Tensor) -> Tensor:
            A, N, stay, to_data, to_noise, kept_t, lost_t, kept_rho, lost_rho, alpha_1 = numbers.unbind(1)
            at_t, at_rho, first = Level(kept_t, lost_t), Level(kept_rho, lost_rho), Transition(A, N, stay)
            logits = run.denoise(x, times[0])
            middle = run.draw(logits, x, at_t, Jumps(A, N), u)
            expected = expected_belief(logits, x, middle, process.noise, at_t, first)  # before logits are overwritten
            combined = combined_logits(run.denoise(middle, times[1]), expected, process.noise, alpha_1)
            return run.draw(combined, middle, at_rho, Jumps(to_data, to_noise), v)

        replayed = run.replayed(moved)

        def step(x: Tensor, i: int) -> Tensor:
            if not twice[i]:
                return single(x, i)
            x = replayed(x, times[i], numbers[i : i + 1], run.uniforms(x), run.uniforms(x))
            run.checks.raise_early(x.device)
            return x

        return step


def middle_times(process: Process, t: Tensor, s: Tensor, theta: float) -> tuple[Tensor, Tensor]:
    """rho = t - theta (t - s), rounded as a network sees it, and alpha_1 for the theta that it has then, (S,) each."""
    rho, T = t - theta * (t - s), process.num_steps
    rho = rho.to(torch.get_default_dtype()).double() if T is None else (rho * T).round() / T
    own = (t - rho) / (t - s)
    return rho, torch.where((own > 0) & (own < 1), 1 / (2 * own * (1 - own)), 1.0)


def expected_belief(logits: Tensor, x: Tensor, middle: Tensor, noise: Noise, level: Level, to: Transition) -> Tensor:
    """f^_z ~ f_z q(x* | x_t, x_0 = z), (*x.shape, K), by Prop. 1, for x = x_t, middle = x* and the step `to` t -> rho.

    q(x* | x_t, z) = A [z = x*] + mu a [x* = x_t] + N m_x* + r N [z = x_t] ([x* = x_t] - m_x*).
    """
    assert to.stay is not None
    stayed, m_x, m_middle = (middle == x).double(), noise.at(x), noise.at(middle)
    every = to.stay * stayed + to.to_noise * m_middle  # for any z
    at_x = kept_share(m_x, level) * to.to_noise * (stayed - m_middle)
    at_middle = to.to_data.expand(x.shape)

    def posterior(logits: Tensor, x: Tensor, middle: Tensor, weights: Tensor, *data: Tensor) -> Tensor:
        f = torch.softmax(read_logits(logits, *data), -1)
        every, at_x, at_middle = weights.to(f.dtype).split(1, -1)
        likelihood = every.expand(f.shape).scatter_add(-1, middle[..., None], at_middle)
        mass: Tensor = f * likelihood.scatter_add(-1, x[..., None], at_x).clamp(min=0)
        return mass / mass.sum(-1, keepdim=True).clamp(min=torch.finfo(f.dtype).tiny)

    weights = torch.stack([every, at_x, at_middle], -1)
    return by_objects(posterior, logits, x, middle, weights, *data_of(noise, logits))


def combined_logits(later: Tensor, expected: Tensor, noise: Noise, alpha_1: Tensor) -> Tensor:
    """log (alpha_1 f* - (alpha_1 - 1) f^)_+, (..., K), from the logits of f* and from f^; alpha_1 is (1, ..., 1)."""
    weight = alpha_1[..., None].to(expected.dtype)

    def combined(later: Tensor, expected: Tensor, *data: Tensor) -> Tensor:
        f = torch.softmax(read_logits(later, *data), -1)
        return (weight * f - (weight - 1) * expected).clamp(min=0).log()

    return by_objects(combined, later, expected, *data_of(noise, later))
