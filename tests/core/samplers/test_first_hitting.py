"""First hitting against the average over all orders, by enumeration."""

import itertools

import numpy as np
import pytest
import torch

import usd3
from support.statistics import chi_square_p_value
from usd3.core.samplers import Run, first_hitting

K, D = 3, 3  # the mask is category 2
MASK = 2
FALSE_ALARM = 1e-6
STATES = list(itertools.product(range(K), repeat=D))
TABLE = torch.from_numpy(np.random.default_rng(3).normal(size=(K**D, D, K)))  # logits at every state, consistent or not


def model(x, t):
    return TABLE[(x * torch.tensor([9, 3, 1])).sum(1)]


def law(known=None):
    """The distribution over objects: each order of the open elements equally likely, one after the other from f."""
    known = known or {}
    open_elements = [d for d in range(D) if d not in known]
    orders = list(itertools.permutations(open_elements))
    probs = np.zeros((K,) * D)
    for order, values in itertools.product(orders, itertools.product(range(2), repeat=len(open_elements))):
        x, p = [known.get(d, MASK) for d in range(D)], 1 / len(orders)
        for d, value in zip(order, values):
            f = TABLE[STATES.index(tuple(x)), d, :2].softmax(-1)
            x[d], p = value, p * float(f[value])
        probs[tuple(x)] += p
    return probs


def diffusion(schedule=None, **options):
    return usd3.Diffusion(usd3.Absorbing(K), schedule or usd3.Linear(), **options)


@pytest.mark.parametrize("schedule", [usd3.Linear(), usd3.Cosine()])
@pytest.mark.parametrize("known", [{}, {1: 0}])
def test_the_law_is_the_average_over_all_orders(schedule, known, generator):
    n = 60_000
    given = torch.tensor([d in known for d in range(D)])
    tokens = torch.tensor([known.get(d, 0) for d in range(D)])
    x = diffusion(schedule).sample(
        model, (n, D), 5, given=given, given_tokens=tokens, sampler="first_hitting", generator=generator
    )
    counts = torch.bincount((x * torch.tensor([9, 3, 1])).sum(1), minlength=K**D)
    assert chi_square_p_value(counts, n * law(known).flatten()) > FALSE_ALARM


def test_it_is_what_the_exact_sampler_comes_to_with_many_steps(generator):
    """With a hundred steps the exact sampler draws two elements at once in a few objects of a hundred."""
    n = 20_000
    x = diffusion().sample(model, (n, D), 100, generator=generator)
    share = torch.bincount((x * torch.tensor([9, 3, 1])).sum(1), minlength=K**D) / n
    assert np.abs(share.numpy() - law().flatten()).sum() / 2 < 0.02


def test_each_element_is_drawn_in_a_call_of_its_own(generator):
    """Also with more steps; objects with fewer open elements are ready sooner. Given elements and padding stay."""
    seen = []

    def watched(x, t, pad=None):
        seen.append(x.clone())
        return torch.zeros(*x.shape, K)

    given = torch.tensor([[True, False, False], [False, False, False]])
    pad = torch.tensor([[False, False, True], [False, False, False]])
    tokens = torch.tensor([[1, 0, 1], [0, 0, 0]])
    draws = []
    for steps in (3, 50):
        seen.clear()
        options = {"given": given, "given_tokens": tokens, "pad": pad, "generator": torch.Generator().manual_seed(1)}
        draws.append(diffusion().sample(watched, (2, D), steps, sampler="first_hitting", **options))
        assert [(x == MASK).sum(1).tolist() for x in seen] == [[1, 3], [0, 2], [0, 1]]
        assert all((x[0, [0, 2]] == 1).all() for x in [*seen, draws[-1]])
    assert all(torch.equal(x, draws[0]) for x in draws)
    assert (draws[0] != MASK).all()


@pytest.mark.parametrize(("steps", "masked"), [(1, [5]), (2, [5, 2]), (3, [5, 3, 1]), (4, [5, 3, 2, 1])])
def test_fewer_steps_than_elements_draw_several_in_one_call(steps, masked, generator):
    """The elements that are masked before each call, and the time of the first of those that it draws."""
    seen = []

    def watched(x, t):
        seen.append((x.clone(), t))
        return torch.zeros(*x.shape, K)

    given = torch.tensor([[False] * 5, [True] * 4 + [False]])
    tokens = torch.zeros(2, 5, dtype=torch.long)
    options = {"given": given, "given_tokens": tokens, "sampler": "first_hitting", "generator": generator}
    x = diffusion().sample(watched, (2, 5), steps, **options)
    assert [int((x[0] == MASK).sum()) for x, _ in seen] == masked
    assert [int((x[1] == MASK).sum()) for x, _ in seen] == [1] + [0] * (steps - 1)
    assert all(later[0] < earlier[0] for (_, earlier), (_, later) in itertools.pairwise(seen))
    assert (x != MASK).all()


@pytest.mark.parametrize("num_steps", [None, 8])
def test_the_network_gets_the_times_at_which_elements_are_unmasked(num_steps, generator):
    """The first of n is the largest of n uniforms, with mean n / (n + 1); then n - 1 are left below it."""
    times, n, count = [], 20_000, 4

    def watched(x, t):
        times.append(t)
        return torch.zeros(*x.shape, K)

    d = diffusion(num_steps=num_steps)
    d.sample(watched, (n, count), 4, sampler="first_hitting", generator=generator)
    times = torch.stack(times)
    assert (times[1:] <= times[:-1]).all()
    assert float(times.min()) >= (1e-3 if num_steps is None else 1 / 8)
    if num_steps is not None:
        assert torch.equal(times * 8, (times * 8).round())
        return
    for call, mean in enumerate(times.double().mean(1).tolist()):
        expected = 1.0
        for left in range(count, count - call - 1, -1):
            expected *= left / (left + 1)
        assert mean == pytest.approx(expected, abs=5 * 0.3 / n**0.5)


def test_it_is_for_absorbing_noise_alone():
    d = usd3.Diffusion(usd3.Uniform(3), usd3.Cosine())
    with pytest.raises(ValueError, match=r"first_hitting: expected another one for Uniform\(3\), not absorbing"):
        d.sample(lambda x, t: torch.zeros(*x.shape, 3), (2, 3), 4, sampler="first_hitting")


def test_it_takes_no_corrector():
    """A corrector would mask elements again, to which it does not return."""
    with pytest.raises(
        ValueError, match=r"corrector = .*: expected None with the sampler first_hitting; sampler exact"
    ):
        diffusion().sample(model, (2, D), 4, sampler="first_hitting", corrector=usd3.Corrector())


def test_nothing_to_draw_needs_no_call(generator):
    run = Run(diffusion(), None, torch.zeros(2, D, dtype=torch.bool), None, generator)
    x = torch.zeros(2, D, dtype=torch.long)
    assert torch.equal(first_hitting(run, [1.0, 0.0])(x, 0), x)
