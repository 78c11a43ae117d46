"""The coefficients of a batch as one Triton kernel: one launch, one lane per object, all in float64.

The formulas are those of `usd3.core.schedules` and `Process.transition`, which are their reference; docs/equations.md
names both. Numbers that float32 cannot hold come from memory, as Triton rounds arguments and literals to float32.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from usd3.kernels.coefficients import COSINE, EXPONENTIAL, POWER, ClosedForm
from usd3.kernels.loss import ALPHA_BAR, LOST, STAY, TO_DATA, TO_NOISE

__all__ = ["launch"]

_BLOCK = 128
_COSINE, _POWER, _EXPONENTIAL = (tl.constexpr(family) for family in (COSINE, POWER, EXPONENTIAL))
_TO_DATA, _TO_NOISE, _STAY = tl.constexpr(TO_DATA), tl.constexpr(TO_NOISE), tl.constexpr(STAY)
_ALPHA_BAR, _LOST = tl.constexpr(ALPHA_BAR), tl.constexpr(LOST)
_TINY = tl.constexpr(2.0**-60)


def launch(
    form: ClosedForm, numbers: Tensor, time: Tensor, before: Tensor | None, num_steps: int | None, drawn: bool
) -> Tensor:
    """The five rows, float64 (5, B); where times are `drawn` from uniforms `time`, the times are a sixth."""
    B, last = len(time), 1 if num_steps is None else num_steps
    out = torch.empty(6 if drawn else 5, B, dtype=torch.float64, device=time.device)
    if B == 0:
        return out
    s = time if before is None else before
    with torch.cuda.device_of(time):  # a kernel starts on the current device
        _coefficients_kernel[(triton.cdiv(B, _BLOCK),)](
            time,
            s,
            numbers,
            out,
            B,
            time.stride(0),
            s.stride(0),
            last,
            FAMILY=form.family,
            CONTINUOUS=num_steps is None,
            STEP=before is not None,
            DRAWN=drawn,
            BLOCK=_BLOCK,
            enable_fp_fusion=False,  # the roundings of the reference
        )
    return out


@triton.jit(  # a batch of another size compiles nothing, nor do times that lie at odd places of another tensor
    do_not_specialize=["B", "stride", "before_stride", "T"], do_not_specialize_on_alignment=["times", "befores"]
)
def _coefficients_kernel(
    times,
    befores,
    numbers,
    out,
    B,
    stride,
    before_stride,
    T,
    FAMILY: tl.constexpr,
    CONTINUOUS: tl.constexpr,
    STEP: tl.constexpr,
    DRAWN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The coefficients of BLOCK objects.

    Pointers, all float64:
        times: (B,) t of each object, `stride` apart; with DRAWN the uniforms that t is made of.
        befores: (B,) s of each object, `before_stride` apart; read with STEP alone.
        numbers: (5,), see `usd3.kernels.coefficients.constants`.
        out: (5, B), receives the rows of `usd3.kernels.loss`; with DRAWN (6, B), the last row receives t.

    Integers:
        B: number of objects.
        T: number of steps of discrete time.

    Compile-time constants:
        FAMILY: the schedule, COSINE, POWER or EXPONENTIAL.
        CONTINUOUS: time is continuous.
        STEP: the step t -> s; else the step t -> t - 1 in discrete time, and the reverse rate in continuous time.
        DRAWN: t is drawn, uniform on [t_min, 1] and rounded to float32, or on 1/T, 2/T, ..., 1.
        BLOCK: objects of a program.
    """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = i < B
    t = tl.load(times + i * stride, mask=here, other=0.5)
    a, b, offset = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
    if DRAWN:
        if CONTINUOUS:
            t_min = tl.load(numbers + 3)
            t = (t_min + (1 - t_min) * t).to(tl.float32).to(tl.float64)
        else:
            t = (1 + tl.minimum(tl.floor(t * T), T - 1)) / T
        tl.store(out + 5 * B + i, t, mask=here)

    alpha_bar, lost = _level(t, a, b, offset, FAMILY)
    if STEP or not CONTINUOUS:
        if STEP:
            s = tl.load(befores + i * before_stride, mask=here, other=0.25)
        else:
            s = tl.floor(t * T - 0.5) / T  # t T - 1, rounded
        alpha_bar_s, lost_s = _level(s, a, b, offset, FAMILY)
        a_ts, lost_ts = _between(t, s, a, b, FAMILY)
        from_data = lost_s == 0
        a_ts, lost_ts = tl.where(from_data, alpha_bar, a_ts), tl.where(from_data, lost, lost_ts)
        lost_ts = tl.where(a_ts < 0.5, 1 - a_ts, lost_ts)
        safe = tl.where(lost > 0, lost, 1.0)
        mu = tl.where(lost > 0, lost_s / safe, 1.0)
        to_data, to_noise, stay = alpha_bar_s * lost_ts / safe, mu * lost_ts, mu * a_ts
    else:
        decay = _decay(t, alpha_bar, a, b, FAMILY)
        to_data, to_noise, stay = decay / lost, decay / tl.maximum(alpha_bar, tl.load(numbers + 4)), 0 * t
    tl.store(out + _TO_DATA * B + i, to_data, mask=here)
    tl.store(out + _TO_NOISE * B + i, to_noise, mask=here)
    tl.store(out + _STAY * B + i, stay, mask=here)
    tl.store(out + _ALPHA_BAR * B + i, alpha_bar, mask=here)
    tl.store(out + _LOST * B + i, lost, mask=here)


# ---- the schedules ------------------------------------------------------------------------------------------------


@triton.jit
def _level(t, a, b, offset, FAMILY: tl.constexpr):
    """alpha_bar(t) and 1 - alpha_bar(t), exactly 1 and 0 at t = 0."""
    if FAMILY == _EXPONENTIAL:
        sigma = _sigma(t, 0 * t, a, b) + offset
        kept, lost = tl.exp(-sigma), -_exp_minus_1(-sigma)
    else:
        kept, lost = _between(t, 0 * t, a, b, FAMILY)
    return tl.where(t == 0, 1.0, kept), tl.where(t == 0, 0.0, lost)


@triton.jit
def _between(t, s, a, b, FAMILY: tl.constexpr):
    """`kept(t, s)` and `lost(t, s)` of the schedule, but for the offset, which is lost before s."""
    if FAMILY == _COSINE:
        start = tl.sin(a * (1 - s))
        kept = tl.sin(a * (1 - t)) / start
        lost = 2 * tl.sin(b + a * (t + s) / 2) * tl.sin(a * (t - s) / 2) / start
    elif FAMILY == _POWER:
        start = (1 - s) + a * s
        left, gone = ((1 - t) + a * t) / start, (1 - a) * ((t - s) / start)  # for b = 1
        kept = tl.where(b == 1, left, tl.exp(b * tl.log(left)))
        lost = tl.where(b == 1, gone, -_exp_minus_1(b * _log_1_plus(-gone)))
    else:
        sigma = _sigma(t, s, a, b)
        kept, lost = tl.exp(-sigma), -_exp_minus_1(-sigma)
    return kept, lost


@triton.jit
def _decay(t, alpha_bar, a, b, FAMILY: tl.constexpr):
    """-d alpha_bar / dt."""
    if FAMILY == _COSINE:
        decay = tl.sin(b + a * t) * (a / tl.sin(a))
    elif FAMILY == _POWER:
        decay = b * (1 - a) * tl.where(b == 1, 1.0, tl.exp((b - 1) * tl.log((1 - t) + a * t)))
    else:
        decay = tl.where(b > 0, a * b * tl.exp(b * t), a) * alpha_bar
    return decay


@triton.jit
def _sigma(t, s, a, b):
    """The integral of beta from s to t, beta = a b e^(b t), or a where b = 0."""
    return tl.where(b > 0, a * tl.exp(b * s) * _exp_minus_1(b * (t - s)), a * (t - s))


@triton.jit
def _exp_minus_1(x):
    """exp(x) - 1 without cancellation (Kahan): the rounding of u = exp(x) is the same in u - 1 and in log u."""
    u = tl.exp(x)
    near, far = u == 1, u < _TINY
    safe = tl.where(near | far, 2.0, u)
    return tl.where(near, x, tl.where(far, -1.0, (safe - 1) * (x / tl.log(safe))))


@triton.jit
def _log_1_plus(x):
    """log(1 + x) without cancellation, the same way; -inf at -1."""
    u = 1 + x
    near = u == 1
    return tl.where(near, x, tl.log(u) * (x / tl.where(near, 1.0, u - 1)))
