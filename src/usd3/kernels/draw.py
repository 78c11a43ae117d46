"""One jump of every element, from logits: the exact step, the Euler step, tau-leaping and the corrector.

An element at x leaves for f = softmax(logits) with weight w_f (1 - f_x) and for the noise m with weight w_m (1 - m_x),
where w_f = to_data and w_m = to_noise c(f) + forward, and c(f) = (1 - f_x) + q f_x is the probability that x is noise:

    q = (1 - alpha_bar) m_x / (alpha_bar + (1 - alpha_bar) m_x)

A first uniform chooses to stay, to go to m or to go to f; a second one chooses the category z != x there.
`chunked_draw.py` and `triton_draw.py` compute it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from usd3.kernels.loss import NoiseTables, as_rows

__all__ = ["ALPHA_BAR", "FORWARD", "LOST", "TO_DATA", "TO_NOISE", "Leap", "draw", "draw_rows"]

TO_DATA, TO_NOISE, FORWARD, ALPHA_BAR, LOST = range(5)
"""Rows of `Leap.coefficients`; LOST is 1 - alpha_bar."""


@dataclass(frozen=True)
class Leap:
    """R = B D elements that may jump.

    Args:
        x: (R,) int64, the current categories. The D rows of an object follow one another.
        coefficients: (5, B) float64, the rows TO_DATA, TO_NOISE, FORWARD, ALPHA_BAR and LOST for each object.
        noise: the noise, and the categories of data. Its table m is not read.
        m_x: (R,) float64, the noise's probability of x. None where a kernel knows it: uniform and absorbing noise.
        noisy: (R,) int64, where each element goes if it jumps to m. None where a kernel draws it, as for m_x.
        free: (R,) bool. Elements that are not free keep x; their logits are not read. None: all are free.
        damped: multiply all weights by exp(-L), L being their sum: the probability of exactly one event of a Poisson
            process with mean L.
    """

    x: Tensor
    coefficients: Tensor
    noise: NoiseTables
    m_x: Tensor | None = None
    noisy: Tensor | None = None
    free: Tensor | None = None
    damped: bool = False


def draw(logits: Tensor, leap: Leap, u: Tensor | None, impl: str, failed: Tensor | None = None) -> Tensor:
    """New categories, (R,) int64; x where the logits are bad. Without u: the mass that leaves x, (R,) float64.

    Args:
        logits: (..., K), R rows in all.
        leap: what the rows are.
        u: float64 uniforms (2, ...), R columns in all: the first row chooses the branch, the second the category.
        impl: "chunked" or "triton"; "cpp" draws as "chunked" does.
        failed: bool (), becomes true where any logits are bad; only with u. None: nobody asks.
    """
    return draw_rows(as_rows(logits), leap, None if u is None else u.reshape(2, -1), impl, failed)


def draw_rows(logits: Tensor, leap: Leap, u: Tensor | None, impl: str, failed: Tensor | None = None) -> Tensor:
    """`draw` for logits (R, K) and uniforms (2, R)."""
    if impl == "triton":
        from usd3.kernels.triton_draw import draw_rows as rows  # needs Triton
    else:
        from usd3.kernels.chunked_draw import draw_rows as rows
    with torch.cuda.device_of(logits):  # a kernel starts on the current device
        return rows(logits, leap, u, failed)
