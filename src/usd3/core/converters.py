"""The three meanings of a network's output, and exact conversions between them.

    full     softmax = p(x_0 | x_t): may see the element itself      USD3, tauLDR, RDM, D3PM
    hollow   softmax = p(x_0 | x_t without the element)              SDDM; D3PM's public code reads it so
    ratio    exp = q_t(z) / q_t(x_t), 1 at z = x_t                   SEDD

With a = alpha_bar, a_ts = a_t / a_s, and x = x_t:

    U1  full from hollow     f_k  ~  f_h,k q(x | x_0 = k): only the logit at x moves
    U2  ratio from full      m_x g_z = P(noised | x) m_z + a_t / (1 - a_t) f_z   (Prop. 4)
    U3  ratio from hollow    g_z = p_z / p_x,  p = a_t f_h + (1 - a_t) m
    U4  step from full       Prop. 2
    U5  step from hollow     p(y) ~ q(x | x_s = y) (a_s f_h + (1 - a_s) m)_y
    U6  step from ratio      p(y) = q(x | x_s = y) (g / a_ts + (1 - 1 / a_ts) sum(g) m)_y

They commute: U3 is U2 after U1, U5 is U4 after U1, and U6 after U2 is U4. Each takes outputs (..., K), categories x_t
(...) and times (B,) in [0, 1].
"""

import torch
from torch import Tensor

from usd3._internal.checks import Checks
from usd3.core.belief import NEVER, Level, data_logits, model_belief
from usd3.core.coefficients import SMALLEST, Process
from usd3.core.mixture import backward_mixture, safe_log
from usd3.core.noise import Noise

__all__ = [
    "full_from_hollow",
    "hollow_shift",
    "marginal_from_hollow",
    "ratio_from_full",
    "ratio_from_hollow",
    "step_from_full",
    "step_from_hollow",
    "step_from_ratio",
]


def full_from_hollow(process: Process, logits: Tensor, x_t: Tensor, time: Tensor) -> Tensor:
    """U1: logits of p(x_0 | x_t) from those of p(x_0 | the other elements); float32 or better.

    The shift can be large: rounded to bfloat16 it would change 1 - f_x by some percent.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    shift = hollow_shift(process, x_t, time).to(logits.dtype)
    return logits.scatter_add(-1, x_t[..., None], shift[..., None])


def hollow_shift(process: Process, x_t: Tensor, time: Tensor) -> Tensor:
    """The shift of the logit at x_t in U1, log(1 + a / ((1 - a) m_x)), float64 in the shape of x_t; 0 where m_x = 0."""
    level, m_x = process.level(time.double(), x_t), process.noise.at(x_t)
    odds = level.alpha_bar / (level.lost * m_x).clamp(min=torch.finfo(torch.float64).tiny)
    return torch.where(m_x > 0, torch.log1p(odds), 0.0)


def ratio_from_full(process: Process, logits: Tensor, x_t: Tensor, time: Tensor) -> Tensor:
    """U2: log ratios from logits of p(x_0 | x_t); NEVER for z != x_t where m_x = 0, where they are impossible."""
    level = process.level(time.double(), x_t)
    model = model_belief(logits, x_t, process.noise, level, Checks(False))
    m_x = torch.where(model.is_certain, 1.0, model.m_x)
    odds = level.alpha_bar / level.lost
    to_f = safe_log(odds / m_x)[..., None] + model.log_f
    to_m = safe_log((model.noised / m_x)[..., None] * process.noise.probs_on(x_t.device))
    log_ratio = torch.where(model.is_certain[..., None], NEVER, torch.logaddexp(to_f, to_m))
    return log_ratio.scatter(-1, x_t[..., None], 0.0).to(logits.dtype)


def ratio_from_hollow(process: Process, logits: Tensor, x_t: Tensor, time: Tensor) -> Tensor:
    """U3: log ratios from logits of p(x_0 | the other elements)."""
    log_p = marginal_from_hollow(process, logits, x_t, time)
    return log_p - log_p.gather(-1, x_t[..., None])


def marginal_from_hollow(process: Process, logits: Tensor, x_t: Tensor, time: Tensor) -> Tensor:
    """log p_t(z | the other elements), p_t = a f_h + (1 - a) m, (..., K), in float32 or the precision of the logits."""
    return _noised(logits, process.noise, process.level(time.double(), x_t))


def step_from_full(process: Process, logits: Tensor, x_t: Tensor, time: Tensor, before: Tensor) -> Tensor:
    """U4: p(x_s | x_t) from logits of p(x_0 | x_t)."""
    levels = process.levels(time.double(), before.double(), x_t)
    model = model_belief(logits, x_t, process.noise, levels[0], Checks(False))
    return backward_mixture(model, process.step(time.double(), before.double(), x_t, levels), validate=False).probs()


def step_from_hollow(process: Process, logits: Tensor, x_t: Tensor, time: Tensor, before: Tensor) -> Tensor:
    """U5: p(x_s | x_t) from logits of p(x_0 | the other elements)."""
    time, before = time.double(), before.double()
    log_p = _noised(logits, process.noise, process.level(before, x_t))
    return torch.softmax(log_p + safe_log(_likelihood(process, x_t, time, before)), -1).to(logits.dtype)


def step_from_ratio(process: Process, log_ratio: Tensor, x_t: Tensor, time: Tensor, before: Tensor) -> Tensor:
    """U6: p(x_s | x_t) from log ratios, in float32 or their precision; the log ratio at x_t counts as 0.

    Ratios that belong to no distribution can give negative numbers. These become 0, and the rest is normalised.
    """
    dtype, here = torch.promote_types(log_ratio.dtype, torch.float32), x_t[..., None]
    a_ts, lost_ts = process.between(time.double(), before.double(), x_t)
    m, m_x = process.noise.probs_on(x_t.device, dtype), process.noise.at(x_t)
    ratio = log_ratio.to(dtype).scatter(-1, here, 0.0).exp()
    lost = lost_ts * ratio.sum(-1).double()  # times m: the share of each category that is noise
    stays = ((1 - lost * m_x) * (a_ts + lost_ts * m_x)).clamp(min=0.0)
    probs = (ratio - lost[..., None].to(dtype) * m).clamp(min=0.0) * (lost_ts * m_x)[..., None].to(dtype)
    probs = probs.scatter(-1, here, stays[..., None].to(dtype)) / a_ts.clamp(min=SMALLEST)[..., None].to(dtype)
    whole = probs.sum(-1, keepdim=True)
    return torch.where(whole > 0, probs / whole.clamp(min=torch.finfo(dtype).tiny), m)


def _noised(logits: Tensor, noise: Noise, level: Level) -> Tensor:
    """log (a f + (1 - a) m), f = softmax(logits) without the mask category."""
    log_f = torch.log_softmax(data_logits(logits, noise), -1).clamp(min=NEVER)
    kept = safe_log(level.alpha_bar)[..., None].to(log_f.dtype)
    mixed = safe_log(level.lost[..., None] * noise.probs_on(logits.device)).to(log_f.dtype)
    return torch.logaddexp(kept + log_f, mixed)


def _likelihood(process: Process, x_t: Tensor, time: Tensor, before: Tensor) -> Tensor:
    """q(x_t | x_s = y) = a_ts [y = x_t] + (1 - a_ts) m_x, (..., K) float64."""
    a_ts, lost_ts = process.between(time, before, x_t)
    from_noise = (lost_ts * process.noise.at(x_t))[..., None].expand(*x_t.shape, process.noise.num_classes)
    return from_noise.scatter_add(-1, x_t[..., None], a_ts.expand(x_t.shape)[..., None])
