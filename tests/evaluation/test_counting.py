"""What drawing is counted to cost, and a corrector to change: compared with slow counts."""

import pytest
import torch

import usd3
from usd3.core.samplers import exact
from usd3.evaluation.counting import CountingCorrector

SHAPE, K = (5, 12), 6


@pytest.fixture
def diffusion():
    return usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())


@pytest.fixture
def model():
    logits = torch.randn(*SHAPE[1:], K, generator=torch.Generator().manual_seed(3))
    return lambda x, t: logits.expand(*x.shape, K)


def drawn(diffusion, model, corrector, sampler="exact", callback=None):
    given = torch.arange(SHAPE[1]) < 3
    generator = torch.Generator().manual_seed(0)
    tokens = torch.zeros(SHAPE, dtype=torch.long)
    how = {"given": given, "given_tokens": tokens, "generator": generator}
    return diffusion.sample(model, SHAPE, 8, corrector, sampler=sampler, callback=callback, **how)


CORRECTORS = [usd3.Corrector(1, 0.3, 5), usd3.Corrector(1, 3.0, None), usd3.GibbsCorrector(1, 5, count=4)]


@pytest.mark.parametrize("corrector", CORRECTORS)
def test_changed_elements_are_those_between_a_step_and_its_callback(diffusion, model, corrector):
    """One move after a step: all that differs from the sampler's own x_s was changed by it."""
    counting, before, slow = CountingCorrector(corrector), [], []

    def watched(run, grid):
        step = exact(run, grid)

        def remembered(x, i):
            before.append(step(x, i))
            return before[-1]

        return remembered

    def callback(step):
        slow.append(int((step.x_s != before[-1]).sum()))

    x = drawn(diffusion, model, counting, watched, callback)
    assert counting.changed == sum(slow) > 0
    due = 7 if corrector.last is None else corrector.last
    assert [index for index, changed in enumerate(slow) if changed] == list(range(7 - due, 7))
    assert torch.equal(x, drawn(diffusion, model, corrector))  # counting changes nothing


def test_every_move_counts(diffusion, model):
    """An element that one move changes and the next one changes back counts twice."""
    counting, states = CountingCorrector(usd3.Corrector(3, 2.0, 4)), []

    def remembering(x, t):
        states.append(x.clone())
        return model(x, t)

    x = drawn(diffusion, remembering, counting)
    states.append(x)
    asked = [3 + 4 * i + move for i in range(4) for move in (1, 2, 3)]  # calls 0..3 are steps, then one in four is
    assert counting.changed == sum(int((states[call] != states[call + 1]).sum()) for call in asked)


def test_a_counter_counts_on_over_several_draws(diffusion, model):
    counting = CountingCorrector(usd3.Corrector(2, 0.5, 4))
    assert counting.changed == 0
    drawn(diffusion, model, counting)
    once = counting.changed
    drawn(diffusion, model, counting)
    assert counting.changed == 2 * once > 0
