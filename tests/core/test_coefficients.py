"""Times and coefficients."""

import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import usd3
from usd3._internal.checks import Checks
from usd3.core.coefficients import SMALLEST, column, free_elements, is_grid, total

SCHEDULES = [
    usd3.Cosine(),
    usd3.Linear(),
    usd3.Exponential(),
    usd3.Constant(5.0),
    usd3.Geometric(1e-4, 20.0, offset=True),
]
X = torch.zeros(1, 2, dtype=torch.long)


@given(st.floats(0, 1), st.floats(0, 1), st.sampled_from(SCHEDULES))
def test_the_weights_of_a_step_are_a_distribution(a, b, schedule):
    s, t = sorted((a, b))
    if not s < t:
        return
    d = usd3.Diffusion(usd3.Uniform(4), schedule)
    to = d.step(torch.tensor([t], dtype=torch.float64), torch.tensor([s], dtype=torch.float64), X)
    weights = torch.stack([to.to_data, to.to_noise, to.stay])
    assert (weights >= 0).all()
    assert float(weights.sum()) == pytest.approx(1, abs=1e-12)


@given(st.floats(1e-3, 0.999), st.sampled_from(SCHEDULES))
def test_the_rate_is_the_derivative_of_the_step(t, schedule):
    d, h = usd3.Diffusion(usd3.Uniform(4), schedule), 1e-7
    time = torch.tensor([t], dtype=torch.float64)
    step, rate = d.step(time, time - h, X), d.rate_weights(time, X)
    assert float(step.to_data) / h == pytest.approx(float(rate.to_data), rel=1e-3)
    assert float(step.to_noise) / h == pytest.approx(float(rate.to_noise), rel=1e-3)


def test_grids_of_discrete_time_have_distinct_steps_for_any_number():
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), 37)
    for n in range(1, 38):
        steps = [round(37 * t) for t in d.grid(n)]
        assert steps[0] == 37
        assert steps[-1] == 0
        assert len(set(steps)) == n + 1
        assert steps == sorted(steps, reverse=True)


def test_training_times_cover_their_range():
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), t_min=0.2)
    u = torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)
    torch.testing.assert_close(d.times_from_uniform(u), torch.tensor([0.2, 1.0]))
    assert usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), 10).times_from_uniform(
        torch.cat([u, torch.ones(1)])
    ).tolist() == [
        1,
        10,
        10,
    ]


def test_one_term_stands_for_all_times_of_the_bound():
    assert usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), t_min=0.2).vlb_scale == pytest.approx(0.8)
    assert usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), 10).vlb_scale == 10


@pytest.mark.parametrize("s", [0, 1e-9, 0.5, 1])
def test_every_time_of_the_unit_interval_is_allowed(s):
    checks = Checks(True)
    time = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine()).time(s, X, "s", checks)
    checks.raise_first()
    assert time.tolist() == [s]


@pytest.mark.parametrize(("s", "positive"), [(-1e-9, False), (1.001, False), (0.0, True)])
def test_times_outside_their_interval_are_refused(s, positive):
    checks = Checks(True)
    usd3.Diffusion(usd3.Uniform(4), usd3.Cosine()).time(s, X, "s", checks, positive)
    with pytest.raises(ValueError, match="s contains"):
        checks.raise_first()


def test_a_step_of_length_zero_at_time_zero_stays():
    now = torch.zeros(1, dtype=torch.float64)
    to = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine()).step(now, now, X)
    assert [float(weight) for weight in (to.to_data, to.to_noise, to.stay)] == [0, 0, 1]


@pytest.mark.parametrize(("num_steps", "s"), [(None, 0.25), (None, None), (4, None)])
def test_a_transition_comes_with_the_level_it_starts_from(num_steps, s):
    """The step t -> s, the rate at t, and the step t -> t - 1."""
    t = torch.tensor([0.5], dtype=torch.float64)
    before = None if s is None else torch.tensor([s], dtype=torch.float64)
    level, _ = usd3.Diffusion(usd3.Uniform(4), usd3.Linear(), num_steps).transition(t, before, X)
    assert float(level.alpha_bar) == float(level.lost) == 0.5


def test_the_mask_is_refused_only_where_it_is_read():
    d = usd3.Diffusion(usd3.Absorbing(4), usd3.Cosine())
    x_0, checks = torch.tensor([[0, 3], [1, 2]]), Checks(True)
    assert torch.equal(d.data(x_0, checks, except_at=x_0 == 3), x_0)
    checks.raise_first()
    for except_at in (None, x_0 != 3):
        d.data(x_0, checks, except_at=except_at)
        with pytest.raises(ValueError, match="x_0 contains 3"):
            checks.raise_first()


def test_a_total_counts_the_free_elements_of_each_object():
    terms = torch.arange(12.0).reshape(2, 3, 2)
    assert total(terms, None).tolist() == [15, 51]
    free = torch.zeros(2, 3, 2, dtype=torch.bool)
    free[0, 1, 0] = free[1, 2] = True
    assert total(terms, free).tolist() == [2, 21]


def test_a_column_broadcasts_one_number_of_each_object():
    assert column(torch.arange(2.0), torch.zeros(2, 3, 5)).shape == (2, 1, 1)
    assert column(torch.arange(2.0), torch.zeros(2)).shape == (2,)


# ---- the process itself -----------------------------------------------------------------------------------------


def test_a_pickled_process_keeps_its_fields_and_leaves_its_caches():
    d = usd3.Diffusion(usd3.Marginal([0.5, 0.25, 0.25]), usd3.Linear(), 7, t_min=0.25, validate=False, impl="chunked")
    time = torch.tensor([3 / 7], dtype=torch.float64)
    level = d.tabulated("kept", lambda t: d.schedule.kept(t)[None], time)
    copy = pickle.loads(pickle.dumps(d))
    assert (copy.num_steps, copy.t_min, copy.validate, copy.impl) == (7, 0.25, False, "chunked")
    assert (repr(copy.noise), repr(copy.schedule)) == (repr(d.noise), repr(d.schedule))
    assert d._tables
    assert not copy._tables
    assert torch.equal(copy.tabulated("kept", lambda t: copy.schedule.kept(t)[None], time), level)


@pytest.mark.parametrize(
    ("noise", "impl", "eager"),
    [
        (usd3.Uniform(3), "chunked", False),
        (usd3.Uniform(3), "eager", True),
        (usd3.Marginal([1 - 1e-14, 1e-14]), "chunked", True),  # 1 / m is too large for float32
        (usd3.Marginal([1 - 1e-10, 1e-10]), "chunked", False),
    ],
)
def test_the_eager_code_runs_where_it_is_chosen_or_alone_is_exact(noise, impl, eager):
    assert usd3.Diffusion(noise, usd3.Cosine(), impl=impl).is_eager(torch.device("cpu")) is eager


# ---- times ------------------------------------------------------------------------------------------------------

PAIR = torch.zeros(2, 3, dtype=torch.long)


@pytest.mark.parametrize(
    ("num_steps", "t", "expected"),
    [
        (None, 0.25, [0.25, 0.25]),
        (None, 1, [1, 1]),
        (None, torch.tensor(0.25), [0.25, 0.25]),
        (None, torch.tensor([0.25, 0.75]), [0.25, 0.75]),
        (4, 3, [0.75, 0.75]),
        (4, torch.tensor([1, 4]), [0.25, 1]),
    ],
)
def test_a_time_is_one_number_or_one_for_each_object(num_steps, t, expected):
    checks = Checks(True)
    time = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), num_steps).time(t, PAIR, "t", checks)
    checks.raise_first()
    assert time.dtype == torch.float64
    assert time.tolist() == expected


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 1), (2, 3)])
def test_a_time_of_another_shape_is_refused(shape):
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine())
    with pytest.raises(ValueError, match=r"t\.shape = .*: expected \(\) or \(2,\)"):
        d.time(torch.full(shape, 0.5), PAIR, "t", Checks(True))


@pytest.mark.parametrize("t", [0.5, torch.tensor([0.5, 1.0]), "1", None])
def test_discrete_time_takes_integers_alone(t):
    with pytest.raises(TypeError, match=r"t is a .*: expected integers in \[0, 4\]"):
        usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), 4).time(t, PAIR, "t", Checks(True))


@pytest.mark.parametrize(
    ("num_steps", "t", "s", "named"),
    [
        (None, 0.5, 0.5, "0.5"),
        (None, 0.5, 0.75, "0.75"),
        (None, 0.5, torch.tensor([0.25, 0.625]), "0.625"),
        (8, 5, 5, "5"),
        (8, 5, 7, "7"),
    ],
)
def test_s_is_less_than_t_and_the_error_names_it_as_the_user_wrote_it(num_steps, t, s, named):
    checks = Checks(True)
    usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), num_steps).times(t, s, PAIR, checks)
    with pytest.raises(ValueError, match=rf"^s contains {named}: expected less than t$"):
        checks.raise_first()


def test_two_times_come_back_in_the_unit_interval():
    checks = Checks(True)
    t, s = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), 8).times(torch.tensor([2, 8]), 1, PAIR, checks)
    checks.raise_first()
    assert (t.tolist(), s.tolist()) == ([0.25, 1], [0.125, 0.125])


@pytest.mark.parametrize(
    ("num_steps", "times", "expected"),
    [
        (None, 1, [1, 0]),
        (None, 4, [1, 0.75, 0.5, 0.25, 0]),
        (None, [0.5, 0.25, 0.0], [0.5, 0.25, 0]),
        (None, torch.tensor([1.0, 0.5, 0.0]), [1, 0.5, 0]),
        (4, 2, [1, 0.5, 0]),
        (4, [3, 1, 0], [0.75, 0.25, 0]),
    ],
)
def test_a_grid_has_one_time_more_than_steps_or_those_it_is_given(num_steps, times, expected):
    assert usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), num_steps).grid(times) == expected


@pytest.mark.parametrize(
    ("num_steps", "times", "expected"),
    [
        (None, [0.5, 0.5, 0.0], "decreasing times"),
        (None, [0.5, 0.25], "the last of them 0"),
        (None, [0.0], "at least two times"),
        (None, [1.5, 0.0], r"a first time in \(0, 1\]"),
        (4, [5, 0], r"a first time in \(0, 4\]"),
        (4, [2.5, 0], "integers in discrete time"),
        (4, 5, "num_steps"),
        (None, 0, "num_steps"),
    ],
)
def test_bad_grids_are_refused(num_steps, times, expected):
    with pytest.raises(ValueError, match=expected):
        usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), num_steps).grid(times)


def test_a_number_of_steps_is_no_grid():
    assert is_grid([1.0, 0.0])
    assert is_grid(torch.tensor([1.0, 0.0]))
    assert not is_grid(10)


# ---- coefficients -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_time_zero_is_clean_data_for_every_schedule(schedule):
    """Also for those whose formula leaves some noise there."""
    d, x = usd3.Diffusion(usd3.Uniform(4), schedule), torch.zeros(2, 3, 5, dtype=torch.long)
    level = d.level(torch.tensor([0.0, 0.5], dtype=torch.float64), x)
    assert level.alpha_bar.shape == level.lost.shape == (2, 1, 1)
    assert (float(level.alpha_bar[0]), float(level.lost[0])) == (1, 0)
    assert float(level.alpha_bar[1] + level.lost[1]) == pytest.approx(1, abs=1e-15)


def test_the_coefficients_of_kernels_are_those_of_the_transition():
    """A step t -> s, the step t -> t - 1 of discrete time, and a rate, which has no part that stays."""
    t, s = torch.tensor([0.5, 1.0], dtype=torch.float64), torch.tensor([0.25, 0.75], dtype=torch.float64)
    for num_steps, before in ((None, s), (4, None)):
        d = usd3.Diffusion(usd3.Uniform(4), usd3.Linear(), num_steps)
        to = d.step(t, s, t)
        expected = [to.to_data, to.to_noise, to.stay, 1 - t, t]
        torch.testing.assert_close(d.coefficients(t, before), torch.stack(expected))
        torch.testing.assert_close(d.coefficients(t, before)[:3].sum(0), torch.ones(2, dtype=torch.float64))
    numbers = usd3.Diffusion(usd3.Uniform(4), usd3.Linear()).coefficients(t)  # decay = 1
    torch.testing.assert_close(numbers[:, 0], torch.tensor([2, 2, 0, 0.5, 0.5], dtype=torch.float64))
    assert numbers[:, 1].tolist() == [1, 1 / SMALLEST, 0, 0, 1]


def test_a_step_from_clean_data_is_the_level_itself():
    """a_ts = alpha_bar(t) where s = 0, and what is lost is 1 - a_ts without cancellation."""
    d, t = usd3.Diffusion(usd3.Uniform(4), usd3.Linear()), torch.tensor([1e-20, 0.75], dtype=torch.float64)
    a_ts, lost = d.between(t, torch.zeros_like(t), t)
    assert (a_ts.tolist(), lost.tolist()) == ([1, 0.25], [1e-20, 0.75])


# ---- checked inputs ---------------------------------------------------------------------------------------------


def test_free_elements_are_neither_given_nor_padding():
    given, pad = torch.tensor([[True, True, False, False]]), torch.tensor([[True, False, True, False]])
    assert free_elements(None, None) is None
    for masks, expected in (((given, None), ~given), ((None, pad), ~pad)):
        free = free_elements(*masks)
        assert free is not None
        assert torch.equal(free, expected)
    both = free_elements(given, pad)
    assert both is not None
    assert both.tolist() == [[False, False, False, True]]


def test_masked_data_broadcasts_the_masks_and_allows_the_mask_category_as_padding():
    d, checks = usd3.Diffusion(usd3.Absorbing(4), usd3.Cosine()), Checks(True)
    x_0 = torch.tensor([[0, 1, 3], [2, 1, 3]])
    data, given, pad, free = d.masked_data(
        x_0, torch.tensor([True, False, False]), torch.tensor([False, False, True]), checks
    )
    checks.raise_first()
    assert torch.equal(data, x_0)
    for mask, row in ((given, [True, False, False]), (pad, [False, False, True]), (free, [False, True, False])):
        assert mask is not None
        assert mask.tolist() == [row, row]
    d.masked_data(x_0, torch.tensor([False, False, True]), None, checks)  # given, but no padding
    with pytest.raises(ValueError, match="x_0 contains 3"):
        checks.raise_first()
