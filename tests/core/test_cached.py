"""Numbers of a batch that are looked up instead of computed."""

import pytest
import torch

import usd3


class Learnt(usd3.Constant):
    """A schedule whose rate is a parameter."""

    def __init__(self):
        self.log_rate = torch.tensor(1.5, dtype=torch.float64)
        super().__init__(5.0)
        self.log_rate.requires_grad_()

    def _sigma(self, t, s):
        return self.log_rate.exp() * (t if s is None else t - s)

    def rate(self, t):
        return torch.full_like(t, 1.0) * self.log_rate.exp()

    def time(self, alpha_bar):
        return -torch.log(alpha_bar) / self.log_rate.exp()


def test_discrete_time_evaluates_a_formula_once_for_all_steps():
    d, calls = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), 5), []

    def formula(t):
        calls.append(t.tolist())
        return torch.stack([t, 10 * t])

    for steps in ([1, 5], [3, 3, 2]):
        time = torch.tensor(steps, dtype=torch.float64) / 5
        torch.testing.assert_close(d.tabulated("both", formula, time), torch.stack([time, 10 * time]))
    assert calls == [pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])]


def test_a_name_tells_the_tables_of_two_formulas_apart():
    d, time = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), 5), torch.tensor([0.4], dtype=torch.float64)
    tables = [d.tabulated(factor, lambda t, factor=factor: factor * t[None], time) for factor in (1, 2)]
    torch.testing.assert_close(torch.cat(tables).flatten(), torch.tensor([0.4, 0.8], dtype=torch.float64))


@pytest.mark.parametrize(("num_steps", "t", "s"), [(None, 0.7, 0.2), (10, 7, 2), (10, 1, 0)])
def test_a_step_between_times_that_the_host_knows_is_computed_once(num_steps, t, s, monkeypatch):
    """Its numbers are those of tensors of times, for a batch of any size."""
    d, calls = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), num_steps), []
    original = d.coefficients
    monkeypatch.setattr(d, "coefficients", lambda *times: calls.append(times) or original(*times))
    for batch in (3, 0, 2):
        time, before = (torch.full((batch,), v / (num_steps or 1), dtype=torch.float64) for v in (t, s))
        numbers = d.step_coefficients(t, s, time, before)
        assert torch.equal(numbers, original(time, before))
    assert len(calls) == 1
    own = torch.tensor([t, t], dtype=torch.float64) / (num_steps or 1)
    assert torch.equal(d.step_coefficients(own, s, own, before), numbers)
    assert len(calls) == 2


def test_what_is_kept_has_a_bound(monkeypatch):
    monkeypatch.setattr("usd3.core.cached._MOST", 2)
    d, device = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine()), torch.device("cpu")
    for i in range(5):
        assert d.computed_once(i, device, lambda i=i: torch.tensor(i)).item() == i
    assert len(d._tables) == 2


def test_nothing_is_kept_of_a_schedule_that_learns():
    """Its numbers change from step to step, also where no gradient is wanted."""
    schedule, device = Learnt(), torch.device("cpu")
    discrete, continuous = (usd3.Diffusion(usd3.Uniform(4), schedule, T) for T in (10, None))
    time, x = torch.tensor([0.4], dtype=torch.float64), torch.zeros(1, 3, dtype=torch.long)
    with torch.no_grad():
        assert discrete.schedule_learns(device)
        before = discrete.training_coefficients(time), continuous.step_coefficients(0.4, 0.1, time, 0.25 * time)
        discrete.loss(lambda x, t: torch.zeros(*x.shape, 4), x)
        schedule.log_rate += 0.1
        after = discrete.training_coefficients(time), continuous.step_coefficients(0.4, 0.1, time, 0.25 * time)
        torch.testing.assert_close(after[0], discrete.coefficients(time))
    assert all((a != b).any() for a, b in zip(before, after))


@pytest.mark.parametrize("steps", [1, 2])
def test_the_coefficients_of_a_schedule_that_learns_have_its_gradient(steps, monkeypatch):
    """They are no CUDA graph, which would have none."""
    schedule, times = Learnt(), torch.tensor([[0.4], [0.1]], dtype=torch.float64)[:steps]
    d = usd3.Diffusion(usd3.Uniform(4), schedule)
    monkeypatch.setattr(d, "_replays", None)
    (slope,) = torch.autograd.grad(d.coefficients(*times)[3].sum(), schedule.log_rate)
    sigma = 0.4 * schedule.log_rate.detach().exp()  # alpha_bar = exp(-sigma)
    assert float(slope) == pytest.approx(float(-sigma * torch.exp(-sigma)), rel=1e-12)


@pytest.mark.parametrize("num_steps", [None, 10])
def test_numbers_of_a_batch_are_made_on_their_device(num_steps, monkeypatch):
    """A CUDA graph can record no copy of numbers that the host holds."""
    d, x = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), num_steps, validate=False), torch.zeros(2, 3).long()
    t, s = (7, 2) if num_steps else (0.7, 0.2)
    times = [torch.full((2,), v / (num_steps or 1), dtype=torch.float64) for v in (t, s)]
    steps = torch.full((2,), t)
    monkeypatch.setattr(torch, "tensor", None)
    monkeypatch.setattr(torch, "as_tensor", None)
    assert torch.equal(d.step_coefficients(t, s, *times), d.coefficients(*times))
    assert d.loss_from_logits(torch.zeros(2, 3, 4), x, x, steps).loss > 0
