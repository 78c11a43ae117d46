"""What all samplers share: times, uniforms and the last step of a run."""

import pytest
import torch

import usd3
from usd3._internal.checks import Checks
from usd3.core.samplers.run import Run, by_objects, likeliest, network_time

K = 4
ALL = torch.ones(2, 3, dtype=torch.bool)


def run_of(noise, logits=None, free=ALL, seed=0):
    """A run whose network returns these logits; `asked` has the (x, time) of its calls."""
    asked = []

    def denoise(x, time):
        asked.append((x, time))
        return logits

    generator = torch.Generator().manual_seed(seed)
    return Run(usd3.Diffusion(noise, usd3.Cosine()), denoise, free, Checks(True), generator), asked


def logits_of(best):
    """Logits with the largest at `best`."""
    return torch.nn.functional.one_hot(best, K).float()


def test_the_last_step_takes_the_likeliest_category_of_free_elements():
    best, x = torch.tensor([[3, 0, 1], [2, 2, 0]]), torch.tensor([[1, 1, 1], [0, 0, 0]])
    free = torch.tensor([[True, False, True], [False, True, True]])
    run, asked = run_of(usd3.Uniform(K), logits_of(best), free)
    assert likeliest(run, x, 0.25).tolist() == [[3, 1, 1], [0, 2, 0]]
    run.checks.raise_first()
    ((seen, time),) = asked
    assert torch.equal(seen, x)
    assert time.tolist() == [0.25, 0.25]


def test_the_last_step_reads_masks_and_leaves_data_which_is_certain():
    best, x = torch.tensor([[2, 0, 1], [2, 2, 0]]), torch.tensor([[3, 1, 3], [0, 3, 1]])
    run, _ = run_of(usd3.Absorbing(K), logits_of(best))
    assert likeliest(run, x, 0.25).tolist() == [[2, 1, 1], [0, 2, 1]]


def test_the_last_step_never_takes_the_mask():
    logits = torch.tensor([0.0, 2.0, 1.0, 9.0]).expand(2, 3, K)
    run, _ = run_of(usd3.Absorbing(K), logits)
    assert likeliest(run, torch.full((2, 3), 3), 0.25).unique().tolist() == [1]


@pytest.mark.parametrize("place", [(0, 0), (0, 1), (1, 2)])
def test_the_last_step_refuses_bad_logits_only_where_it_reads_them(place):
    """(0, 0) is a free mask, (0, 1) is data, and (1, 2) is not free."""
    x, free, logits = torch.tensor([[3, 1, 3], [3, 3, 3]]), ALL.clone(), torch.zeros(2, 3, K)
    free[1, 2], logits[place] = False, torch.nan
    run, _ = run_of(usd3.Absorbing(K), logits, free)
    likeliest(run, x, 0.25)
    if place == (0, 0):
        with pytest.raises(ValueError, match="logits contains nan"):
            run.checks.raise_first()
    else:
        run.checks.raise_first()


def test_the_times_of_steps_are_the_pairs_of_a_grid():
    run, _ = run_of(usd3.Uniform(K))
    t, s = run.steps([1.0, 0.5, 0.25, 0.0])
    assert t.dtype == s.dtype == torch.float64
    assert (t.tolist(), s.tolist()) == ([1, 0.5, 0.25], [0.5, 0.25, 0])


def test_networks_get_one_time_for_each_object_in_the_default_dtype():
    run, _ = run_of(usd3.Uniform(K))
    times = run.network_times(torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64))
    assert times.dtype == network_time(0.5, ALL).dtype == torch.get_default_dtype()
    assert times.tolist() == [[1, 1], [0.5, 0.5], [0.25, 0.25]]
    assert network_time(0.5, ALL).tolist() == [0.5, 0.5]


def test_every_element_has_two_uniforms_of_the_generator():
    run, _ = run_of(usd3.Uniform(K), seed=3)
    u, again = run.uniforms(ALL), run.uniforms(ALL)
    assert (u.shape, u.dtype) == ((2, 2, 3), torch.float64)
    assert ((u >= 0) & (u < 1)).all()
    assert len(torch.stack([u, again]).unique()) == 24
    assert torch.equal(run_of(usd3.Uniform(K), seed=3)[0].uniforms(ALL), u)


def test_the_time_of_a_level_is_one_that_networks_saw_in_training():
    """Not below t_min; a whole step, rounded up, in discrete time."""
    alpha_bar = torch.tensor([0.0, 0.25, 0.99999, 1.0], dtype=torch.float64)
    for num_steps, expected in ((None, [1, 0.75, 1e-3, 1e-3]), (10, [1, 0.8, 0.1, 0.1])):
        run = Run(usd3.Diffusion(usd3.Uniform(K), usd3.Linear(), num_steps), None, ALL, Checks(True), None)
        found = run.time_of(alpha_bar)
        assert found.dtype == torch.get_default_dtype()
        assert found.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("schedule", [usd3.Linear(), usd3.Cosine(), usd3.LogLinear(1e-3)])
def test_the_time_of_the_level_of_a_step_is_that_step(schedule):
    d = usd3.Diffusion(usd3.Uniform(K), schedule, 1000)
    steps = torch.arange(1, 1001, dtype=torch.float64) / 1000
    run = Run(d, None, ALL, Checks(True), None)
    assert torch.equal((run.time_of(schedule.alpha_bar(steps)) * 1000).round(), torch.arange(1.0, 1001))


def test_a_level_above_the_first_one_has_the_first_time():
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Geometric(1e-2, 10.0, offset=True))
    found = Run(d, None, ALL, Checks(True), None).time_of(torch.ones(2, dtype=torch.float64))
    assert found.tolist() == pytest.approx([d.t_min] * 2)


def test_a_few_objects_at_a_time_are_all_objects(monkeypatch):
    table, x, sizes = torch.randn(7, 3, K), torch.randn(7, 3), []
    monkeypatch.setattr("usd3.core.samplers.run._CELLS", 3 * 3 * K + 1)
    found = by_objects(lambda a, b: sizes.append(len(a)) or a * b[..., None], table, x)
    assert torch.equal(found, table * x[..., None])
    assert sizes == [3, 3, 1]
