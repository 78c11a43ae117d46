import math
import warnings

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import usd3
from support.schedules import Square

SCHEDULES = {
    "cosine": usd3.Cosine(),
    "cosine0": usd3.Cosine(a=0.0),
    "linear": usd3.Linear(),
    "exponential": usd3.Exponential(0.5, 10.0),
    "constant": usd3.Constant(5.0),
    "log_linear": usd3.LogLinear(1e-3),
    "geometric": usd3.Geometric(1e-4, 20.0),
    "geometric_offset": usd3.Geometric(1e-2, 20.0, offset=True),
    "power": usd3.Power(3.0),
}

# The formulas of the papers, at 40 digits.
mpmath.mp.dps = 40
EXACT = {
    "cosine": lambda t: (
        mpmath.cos((t + mpmath.mpf(0.008)) / (1 + mpmath.mpf(0.008)) * mpmath.pi / 2)
        / mpmath.cos(mpmath.mpf(0.008) / (1 + mpmath.mpf(0.008)) * mpmath.pi / 2)
    ),
    "cosine0": lambda t: mpmath.cos(t * mpmath.pi / 2),
    "linear": lambda t: 1 - t,
    "exponential": lambda t: mpmath.exp(mpmath.mpf(0.5) * (1 - mpmath.mpf(10) ** t)),
    "constant": lambda t: mpmath.exp(-5 * t),
    "log_linear": lambda t: 1 - (1 - mpmath.mpf(1e-3)) * t,
    "geometric": lambda t: mpmath.exp(mpmath.mpf(1e-4) - mpmath.mpf(1e-4) ** (1 - t) * mpmath.mpf(20) ** t),
    "geometric_offset": lambda t: mpmath.exp(-(mpmath.mpf(1e-2) ** (1 - t)) * mpmath.mpf(20) ** t),
    "power": lambda t: (1 - t) ** 3,
}


def f64(value):
    """The formulas take float64 tensors."""
    return torch.as_tensor(value, dtype=torch.float64)


@pytest.fixture(params=SCHEDULES)
def named(request):
    return request.param, SCHEDULES[request.param]


@pytest.mark.parametrize("t", [1e-12, 1e-6, 1e-3, 0.5, 1.0])
def test_a_cosine_that_starts_flat_loses_no_digits(t):
    """With a = 0 its slope is 0 at t = 0, where 1 - alpha_bar = 2 sin(pi t / 4)^2 is tiny."""
    schedule, half = usd3.Cosine(a=0.0), mpmath.pi / 2
    assert float(schedule.lost(f64(t))) == pytest.approx(float(2 * mpmath.sin(half * t / 2) ** 2), rel=1e-14)
    assert float(schedule.decay(f64(t))) == pytest.approx(float(half * mpmath.sin(half * t)), rel=1e-14)
    between = 2 * mpmath.sin(half * 3 * t / 4) * mpmath.sin(half * t / 4) / mpmath.cos(half * t / 2)
    assert float(schedule.lost(f64(t), f64(t / 2))) == pytest.approx(float(between), rel=1e-14)


@pytest.mark.parametrize("t", [0.0, 1e-9, 1e-6, 1e-3, 0.1, 0.5, 0.9, 1 - 1e-6, 1 - 1e-9, 1.0])
def test_alpha_bar_and_its_complement_are_exact_at_both_ends(named, t):
    name, schedule = named
    exact = EXACT[name](mpmath.mpf(t))
    assert float(schedule.alpha_bar(t)) == pytest.approx(float(exact), rel=1e-9, abs=1e-30)
    assert float(schedule.lost(f64(t))) == pytest.approx(float(1 - exact), rel=1e-9, abs=1e-18)


@pytest.mark.parametrize("gap", [1e-9, 1e-5, 0.3])
def test_transition_and_its_complement_match_the_quotient(named, gap):
    name, schedule = named
    for s in (0.0, 1e-4, 0.5, 1 - gap):
        t = s + gap
        exact = EXACT[name](mpmath.mpf(t)) / EXACT[name](mpmath.mpf(s))
        assert float(schedule.alpha_bar(t, s)) == pytest.approx(float(exact), rel=1e-6, abs=1e-12)
        assert float(schedule.lost(f64(t), f64(s))) == pytest.approx(float(1 - exact), rel=1e-6)


def test_nothing_is_lost_in_no_time(named):
    _, schedule = named
    for t in (0.0, 0.5, 1.0):
        assert float(schedule.alpha_bar(t, t)) == 1
        assert t == 1 or float(schedule.lost(f64(t), f64(t))) == 0  # at t = 1 it may be 0 / 0


def test_ends():
    for name in ("cosine", "cosine0", "linear"):
        assert float(SCHEDULES[name].alpha_bar(1.0)) == 0
        assert math.isinf(float(SCHEDULES[name].beta(1.0)))
        assert math.isfinite(float(SCHEDULES[name].decay(f64(1.0))))
    for name, schedule in SCHEDULES.items():
        if name != "geometric_offset":
            assert float(schedule.alpha_bar(0.0)) == 1
            assert float(schedule.lost(f64(0.0))) == 0
    assert float(SCHEDULES["geometric_offset"].alpha_bar(0.0)) == pytest.approx(math.exp(-0.01))


def test_beta_is_minus_the_derivative_of_log_alpha_bar(named):
    _, schedule = named
    t = torch.linspace(0.001, 0.999, 97, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(-schedule.alpha_bar(t).log().sum(), t)
    torch.testing.assert_close(schedule.beta(t), slope, rtol=1e-9, atol=0)
    torch.testing.assert_close(schedule.decay(t), schedule.beta(t) * schedule.alpha_bar(t), rtol=1e-9, atol=0)


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3), st.sampled_from(sorted(SCHEDULES)))
def test_semigroup_and_range(times, name):
    s, u, t = sorted(times)
    schedule = SCHEDULES[name]
    if s == 1 or u == 1:
        return
    a_ts, a_tu, a_us = schedule.alpha_bar(t, s), schedule.alpha_bar(t, u), schedule.alpha_bar(u, s)
    assert 0 <= float(a_ts) <= 1 + 1e-15
    torch.testing.assert_close(a_tu * a_us, a_ts, rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(schedule.alpha_bar(s) * a_ts, schedule.alpha_bar(t), rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(schedule.lost(f64(t), f64(s)), 1 - a_ts, rtol=0, atol=1e-14)


def test_time_is_the_inverse(named):
    _, schedule = named
    t = torch.linspace(0.001, 0.999, 97, dtype=torch.float64)
    torch.testing.assert_close(schedule.time(schedule.alpha_bar(t)), t, rtol=1e-7, atol=1e-10)


def test_answers_have_the_dtype_of_t():
    assert usd3.Cosine().alpha_bar(torch.tensor([0.5])).dtype == torch.float32
    assert usd3.Cosine().beta(torch.tensor([0.5], dtype=torch.float64)).dtype == torch.float64
    assert usd3.Cosine().alpha_bar(0.5).dtype == torch.float64


def test_constant_from_rate_multiplies_by_the_number_of_classes():
    # The uniform rate matrix 0.03 (11^T - 129 I) of the piano experiment: alpha_bar(1) = 0.0209.
    schedule = usd3.Constant.from_rate(0.03, 129)
    assert float(schedule.beta(0.3)) == pytest.approx(3.87)
    assert float(schedule.alpha_bar(1.0)) == pytest.approx(0.0209, abs=1e-4)


def test_geometric_without_offset_is_exponential():
    t = torch.linspace(0, 1, 11, dtype=torch.float64)
    torch.testing.assert_close(usd3.Geometric(1e-3, 5).alpha_bar(t), usd3.Exponential(1e-3, 5e3).alpha_bar(t))


def test_a_schedule_of_ones_own_works_and_inconsistent_formulas_are_refused():
    d = usd3.Diffusion(usd3.Uniform(4), Square())
    assert d.loss(lambda x, t: torch.zeros(*x.shape, 4), torch.zeros(3, 2, dtype=torch.long)).loss.isfinite()
    broken = {
        "kept": lambda self, t, s=None: 1 - t * t,  # forgets s
        "lost": lambda self, t, s=None: t,
        "decay": lambda self, t: t,
        "time": lambda self, alpha_bar: alpha_bar,
    }
    for name, formula in broken.items():
        with pytest.raises(ValueError, match=rf"Broken\.{name}.* = .*: expected .*, as kept\(t\) implies"):
            type("Broken", (Square,), {name: formula})()


def test_signal_left_at_the_end_warns_once_with_the_value():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        schedule = usd3.Constant.from_rate(0.007, 129)
        schedule.alpha_bar(0.5)
        usd3.Diffusion(usd3.Uniform(129), schedule)
    assert len(seen) == 1
    assert "0.4054" in str(seen[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        usd3.Constant.from_rate(0.03, 129)


def test_a_schedule_may_leave_one_twentieth_at_the_end():
    class Power(usd3.Schedule):
        """alpha_bar = 0.05^t, which is 0.05 at t = 1 without rounding."""

        def kept(self, t, s=None):
            return 0.05 ** (t if s is None else t - s)

        def lost(self, t, s=None):
            return 1 - self.kept(t, s)

        def decay(self, t):
            return -math.log(0.05) * self.kept(t)

        def time(self, alpha_bar):
            return alpha_bar.log() / math.log(0.05)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(Power().alpha_bar(1.0)) == 0.05


def test_repr_shows_how_to_build_it():
    assert repr(usd3.Cosine()) == "Cosine(a=0.008)"
    assert repr(usd3.Linear()) == "Linear()"
    assert repr(usd3.Constant(5.0)) == "Constant(beta=5.0)"
    assert repr(usd3.Geometric(0.1, 5.0)) == "Geometric(lo=0.1, hi=5.0, offset=False)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: usd3.Cosine().alpha_bar(1.5), r"t contains 1\.5: expected numbers in \[0, 1\]"),
        (lambda: usd3.Cosine().alpha_bar(torch.tensor([0.2, float("nan")])), "t contains nan"),
        (lambda: usd3.Cosine().alpha_bar(0.2, 0.5), r"s contains 0\.5: expected at most t"),
        (lambda: usd3.Cosine(-1), "a = -1: expected"),
        (lambda: usd3.LogLinear(1.0), r"eps = 1\.0: expected"),
        (lambda: usd3.Constant(0), "beta = 0: expected"),
        (lambda: usd3.Constant.from_rate(-0.1, 5), r"rate = -0\.1: expected"),
        (lambda: usd3.Exponential(0, 10), "a = 0: expected"),
        (lambda: usd3.Exponential(1, 1), "b = 1: expected"),
        (lambda: usd3.Geometric(2, 1), r"lo = 2: expected a number in \(0, 1\)"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
