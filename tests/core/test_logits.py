"""Temperature, top_k, top_p, bias and adjust, against plain implementations."""

import numpy as np
import pytest
import torch

import usd3
from support.problems import D, K, data_categories
from support.toys import random_logits
from usd3._internal.checks import Checks
from usd3.core.logits import LogitOptions, top_k, top_p
from usd3.core.model import Denoiser
from usd3.core.samplers import SAMPLERS, Run
from usd3.nets.heads.hollow import Hollow

X = torch.zeros(6, D, dtype=torch.long)


@pytest.fixture(name="noise")
def _noise(noise):
    return noise[0]


def kept(logits):
    return (logits > -torch.inf).numpy()


def plainly(logits, noise, count=None, share=1.0):
    """Which categories are kept, one element after the other."""
    found = np.zeros(logits.shape, dtype=bool)
    for i in np.ndindex(*logits.shape[:-1]):
        order = sorted(data_categories(noise, i[-1]), key=lambda k: -logits[i][k])
        weights = {k: np.exp(float(logits[i][k])) for k in order}
        total, mass = sum(weights.values()), 0.0
        for k in order[:count]:
            if mass / total < share:
                found[(*i, k)] = True
            mass += weights[k]
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_top_k_keeps_the_likeliest_categories_of_data(noise, count):
    logits = random_logits(X, seed=count)
    found = top_k(logits, count, noise)
    assert np.array_equal(kept(found), plainly(logits, noise, count))
    assert torch.equal(found[found > -torch.inf], logits[found > -torch.inf])


@pytest.mark.parametrize("share", [0.01, 0.3, 0.8, 0.99, 1.0])
def test_top_p_keeps_the_fewest_likeliest_with_that_probability(noise, share, monkeypatch):
    monkeypatch.setattr("usd3.core.logits._CELLS", 5 * K)  # several parts
    logits = random_logits(X, seed=3)
    assert np.array_equal(kept(top_p(logits, share, noise)), plainly(logits, noise, share=share))


def test_equal_logits_are_kept_together():
    logits, noise = torch.tensor([2.0, 1.0, 1.0, 0.0]), usd3.Uniform(4)
    assert kept(top_k(logits, 2, noise)).tolist() == [True, True, True, False]
    assert kept(top_p(logits, 0.7, noise)).tolist() == [True, True, True, False]


def test_logits_in_bfloat16_are_changed_in_float32():
    logits, noise = random_logits(X).bfloat16(), usd3.Uniform(K)
    found = LogitOptions(top_k=3, top_p=0.5).drawn(logits, noise)
    assert found.dtype == torch.float32
    assert np.array_equal(kept(found), kept(top_p(top_k(logits.float(), 3, noise), 0.5, noise)))
    assert torch.equal(LogitOptions(0.1).drawn(logits, noise), logits.float() / 0.1)
    bias = torch.linspace(0, 0.01, K)
    assert torch.equal(LogitOptions(bias=bias).belief(logits, X, torch.ones(6)), logits.float() + bias)


def test_f_is_adjusted_then_biased_and_draws_have_temperature_then_top_k_then_top_p(noise):
    logits, bias = random_logits(X), torch.linspace(-1, 1, K, dtype=torch.float64)
    options = LogitOptions(0.5, 3, 0.9, bias, lambda logits, x_t, t: logits * (1 + t[:, None, None]))
    t = torch.linspace(0, 1, 6, dtype=torch.float64)
    f = logits * (1 + t[:, None, None]) + bias
    torch.testing.assert_close(options.belief(logits, X, t), f)
    torch.testing.assert_close(options.drawn(f, noise), top_p(top_k(f / 0.5, 3, noise), 0.9, noise))


def test_the_lowest_temperature_draws_the_likeliest_category(generator):
    d, logits = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine()), 1e4 * random_logits(X)
    options = LogitOptions(1.0001e-6)
    found = d.sample(lambda x, t: logits, tuple(X.shape), 1, generator=generator, logit_options=options)
    assert torch.equal(found, logits.argmax(-1))
    with pytest.raises(ValueError, match="temperature = 1e-38: expected a number in"):
        LogitOptions(1e-38)


def test_nothing_changes_by_default():
    logits = random_logits(X).bfloat16()
    assert LogitOptions().drawn(logits, usd3.Absorbing(K)) is logits
    assert LogitOptions().belief(logits, X, torch.ones(6)) is logits
    assert LogitOptions().changed() == {}
    assert set(LogitOptions(top_p=0.5, bias=torch.zeros(K)).changed()) == {"top_p", "bias"}
    assert not LogitOptions(0.5, 3, 0.9).changes_belief


def test_a_bad_logit_stays_visible():
    logits = torch.tensor([[1.0, float("nan"), 0.0, -1.0]])
    for found in (top_k(logits, 2, usd3.Uniform(4)), top_p(logits, 0.5, usd3.Uniform(4))):
        assert found.isnan().any()


def test_the_law_of_a_bias_is_f_times_its_exponential(noise, generator):
    """One step from pure noise draws from f e^bias, normalised; 20,000 draws have a standard error below 0.004."""
    d = usd3.Diffusion(noise, usd3.Cosine())
    logits, n = random_logits(torch.zeros(1, D, dtype=torch.long)), 20_000
    bias = torch.randn(D, K, generator=generator)
    x = d.sample(
        lambda x, t: logits.expand(*x.shape, K), (n, D), 1, generator=generator, logit_options=LogitOptions(bias=bias)
    )
    for i in range(D):
        own = list(data_categories(noise, i))
        expected = torch.softmax((logits[0, i] + bias[i])[own], -1)
        drawn = noise.at(torch.zeros(1, D, dtype=torch.long))  # every element begins with m_x > 0
        assert drawn.shape == (1, D)
        found = torch.bincount(x[:, i], minlength=K)[own] / n
        torch.testing.assert_close(found, expected.to(found.dtype), atol=0.02, rtol=0)


def test_every_object_may_have_its_own_bias_also_where_the_network_ignores_the_time():
    class Net(torch.nn.Module):
        ignores_time = True

        def forward(self, x, t):
            return torch.zeros(*x.shape, K)

    d, wanted = usd3.Diffusion(usd3.Absorbing(K), usd3.Linear()), torch.arange(6) % (K - 1)
    bias = torch.full((6, 1, K), -torch.inf).scatter(2, wanted[:, None, None], 0.0)
    x = d.sample(Net(), (6, D), 4, logit_options=LogitOptions(bias=bias))
    assert torch.equal(x, wanted[:, None].expand(6, D))


@pytest.mark.parametrize("shape", [(), (K + 1,), (D + 1, K), (5, D, K), (1, 1, 1, K)])
def test_a_bias_that_does_not_fit_is_refused(shape):
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
    with pytest.raises(ValueError, match=r"bias\.shape = .*: expected one that broadcasts to \(6, 3, 4\)"):
        d.sample(lambda x, t: torch.zeros(*x.shape, K), (6, D), 2, logit_options=LogitOptions(bias=torch.zeros(shape)))


def test_adjust_is_called_in_every_step_although_the_model_is_asked_about_changes_alone():
    asked, adjusted = [], []

    class Net(torch.nn.Module):
        ignores_time = True

        def forward(self, x, t):
            asked.append(len(x))
            return torch.zeros(*x.shape, K)

    def adjust(logits, x_t, t):
        adjusted.append(len(x_t))
        return logits

    d = usd3.Diffusion(usd3.Absorbing(K), usd3.Linear())
    d.sample(Net(), (6, D), 40, logit_options=LogitOptions(adjust=adjust))
    assert adjusted == [6] * 40
    assert len(asked) < 25


def test_adjust_may_write_in_place_although_answers_are_kept(generator):
    class Net(torch.nn.Module):
        ignores_time = True

        def forward(self, x, t):
            return torch.zeros(*x.shape, K)

    def in_place(logits, x_t, t):
        logits[..., 0] += 0.5
        return logits

    d, found = usd3.Diffusion(usd3.Absorbing(K), usd3.Linear()), []
    for adjust in (in_place, lambda logits, x_t, t: in_place(logits.clone(), x_t, t)):
        options = LogitOptions(adjust=adjust)
        found.append(d.sample(Net(), (6, D), 40, logit_options=options, generator=generator.manual_seed(0)))
    assert torch.equal(*found)


def test_a_network_that_sees_its_last_prediction_sees_that_of_f(generator):
    """Not what the draws were made of: the network was trained with its own predictions."""
    seen = []

    class Net(torch.nn.Module):
        self_conditioned = True

        def forward(self, x, t, estimate):
            seen.append(estimate.clone())
            return torch.arange(K).float().expand(*x.shape, K)

    usd3.Diffusion(usd3.Uniform(K), usd3.Cosine()).sample(Net(), (2, D), 2, logit_options=LogitOptions(0.2, 1, 0.5))
    torch.testing.assert_close(seen[1], torch.arange(K).float().softmax(-1).expand(2, D, K))


@pytest.mark.parametrize("options", [{"temperature": 0.02}, {"top_k": 1}, {"top_p": 0.3}])
@pytest.mark.parametrize("sampler", ["confidence", "margin", "entropy:bound=none"])
def test_the_surest_elements_come_first_whatever_is_drawn_from_f(options, sampler):
    """Six elements, each surer than the one before: temperature and top_k do not change the order."""
    sure = torch.linspace(1, 3, 6)
    logits = torch.nn.functional.pad(sure[:, None], (0, K - 1)).expand(1, 6, K)
    orders = []

    def model(x, t):
        orders.append((x == K - 1)[0].tolist())
        return logits

    d = usd3.Diffusion(usd3.Absorbing(K), usd3.Linear())
    d.sample(model, (1, 6), 6, sampler=sampler, logit_options=LogitOptions(**options))
    assert orders == [[True] * (6 - n) + [False] * n for n in range(6)]


@pytest.mark.parametrize("name", ["uniform", "mixed", "absorbing"])
def test_a_gibbs_move_with_a_temperature_forgets_the_element_first(name, generator):
    """The element is drawn from abar f_hollow^(1/T) + (1 - abar) m, whatever it was."""
    noise = {"uniform": usd3.Uniform(K), "mixed": usd3.Mixed(K, 0.3), "absorbing": usd3.Absorbing(K)}[name]
    d, hollow, T, s, n = usd3.Diffusion(noise, usd3.Linear()), torch.tensor([1.0, 0.5, -0.5, 0.0]), 0.5, 0.1, 40_000
    net = Hollow(lambda x, t: hollow.expand(*x.shape, K), d)
    own = [k for k in range(K) if k != noise.mask]
    f = torch.zeros(K).index_put((torch.tensor(own),), torch.softmax(hollow[own] / T, -1))
    expected = (1 - s) * f + s * noise.probs.float()
    for start in own:
        x = torch.full((n, 1), start)
        run = Run(
            d,
            Denoiser(net, K, None, None),
            torch.ones(n, 1, dtype=torch.bool),
            Checks(True),
            generator,
            logit_options=LogitOptions(T),
        )
        new = usd3.GibbsCorrector(1, None)(run, [1.0, s, 0.0])(x, 0)
        found = torch.bincount(new[:, 0], minlength=K) / n
        torch.testing.assert_close(found, expected, atol=0.015, rtol=0)  # 6 standard errors


@pytest.mark.parametrize(
    ("argument", "error", "message"),
    [
        ({"temperature": 0}, ValueError, "temperature = 0"),
        ({"top_k": 0}, ValueError, "top_k = 0: expected an integer >= 1"),
        ({"top_k": 1.5}, TypeError, "top_k"),
        ({"top_p": 0.0}, ValueError, "top_p = 0"),
        ({"top_p": 1.5}, ValueError, r"top_p = 1.5: expected a number in \(0, 1\]"),
        ({"bias": [1.0]}, TypeError, "bias"),
        ({"adjust": 3}, TypeError, "adjust"),
    ],
)
def test_bad_arguments_are_refused(argument, error, message):
    with pytest.raises(error, match=message):
        LogitOptions(**argument)


@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name != "first_hitting"])
def test_a_sampler_draws_the_kept_categories_alone(noise, sampler):
    """From any noise, the last step draws from f, which is 0 elsewhere."""
    d = usd3.Diffusion(noise, usd3.Cosine())
    logits = random_logits(torch.zeros(1, D, dtype=torch.long))
    x = d.sample(
        lambda x, t: logits.expand(*x.shape, K),
        (200, D),
        8,
        sampler=sampler,
        generator=torch.Generator().manual_seed(0),
        logit_options=LogitOptions(top_k=1),
    )
    for i in range(D):
        best = max(data_categories(noise, i), key=lambda k: float(logits[0, i, k]))
        certain = noise.at(x)[:, i] == 0  # an element that is never noise stays
        assert ((x[:, i] == best) | certain).all()
