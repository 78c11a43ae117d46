"""Certain first by enumeration: the law of the order, the number of calls, and what stays."""

import itertools

import numpy as np
import pytest
import torch

import usd3
from support.problems import NOISES, WITH_SUPPORT, data_categories
from support.statistics import chi_square_p_value
from usd3._internal.checks import Checks
from usd3.core.samplers import SAMPLERS, Run
from usd3.core.samplers.certain_first import certainty
from usd3.core.samplers.run import best_first

K, D, MASK = 4, 3, 3
FALSE_ALARM = 1e-6
STATES = list(itertools.product(range(K), repeat=D))
TABLE = torch.from_numpy(np.random.default_rng(3).normal(size=(K**D, D, K)))  # logits at every state, consistent or not
INDEX = torch.tensor([16, 4, 1])
NAMES = ["confidence", "margin", "entropy"]


def model(x, t):
    return TABLE[(x * INDEX).sum(1)]


def score_of(f, name):
    first, second = np.sort(f)[::-1][:2]
    return {"confidence": first, "margin": first - second, "entropy": (f * np.log(f)).sum()}[name]


def law(name, known):
    """One element after the other from f, the surest first, over all objects."""
    probs = np.zeros(K**D)

    def go(x, p):
        if MASK not in x:
            probs[STATES.index(tuple(x))] += p
            return
        f = {e: TABLE[STATES.index(tuple(x)), e, :MASK].softmax(-1).numpy() for e in range(D) if x[e] == MASK}
        best = max(f, key=lambda e: score_of(f[e], name))
        for z in range(MASK):
            go([z if e == best else v for e, v in enumerate(x)], p * f[best][z])

    go([known.get(e, MASK) for e in range(D)], 1.0)
    return probs


def diffusion(noise=None, **options):
    return usd3.Diffusion(noise or usd3.Absorbing(K), usd3.Cosine(), **options)


@pytest.mark.parametrize("impl", ["eager", "chunked"])
@pytest.mark.parametrize("known", [{}, {1: 0}])
@pytest.mark.parametrize("name", NAMES)
def test_one_at_a_time_it_is_ancestral_sampling_in_that_order(name, known, impl, generator):
    """With an exact denoiser, too: then the law of every order is that of the data."""
    n, given = 20_000, torch.tensor([e in known for e in range(D)])
    tokens = torch.tensor([known.get(e, 0) for e in range(D)])
    options = {"given": given, "given_tokens": tokens, "sampler": usd3.CertainFirst(name), "generator": generator}
    x = diffusion(impl=impl).sample(model, (n, D), 5, **options)
    assert chi_square_p_value(torch.bincount((x * INDEX).sum(1), minlength=K**D), n * law(name, known)) > FALSE_ALARM


@pytest.mark.parametrize("name", NAMES)
def test_an_exact_denoiser_gives_the_distribution_of_the_data(name, generator):
    n, w = 20_000, np.random.default_rng(2).dirichlet(np.ones(27)).reshape(3, 3, 3)

    def exact(x, t):
        """log p(x_0 | the unmasked elements)."""
        post = torch.from_numpy(w).expand(len(x), 3, 3, 3)
        for e in range(D):
            fits = (x[:, e, None] == torch.arange(3)) | (x[:, e, None] == MASK)
            post = post * fits.reshape(len(x), *[3 if k == e else 1 for k in range(D)])
        f = torch.stack([post.sum([k + 1 for k in range(D) if k != e]) for e in range(D)], 1)
        return torch.nn.functional.pad(f, (0, 1)).clamp(min=1e-300).log()

    x = diffusion().sample(exact, (n, D), D, sampler=usd3.CertainFirst(name), generator=generator)
    assert (
        chi_square_p_value(torch.bincount((x * torch.tensor([9, 3, 1])).sum(1), minlength=27), n * w.flatten())
        > FALSE_ALARM
    )


def watched(d, shape, steps, sampler, noise_of=None, **options):
    """The states and times of all calls, and the result."""
    seen, table = [], torch.randn(*shape[1:], d.noise.num_classes, generator=torch.Generator().manual_seed(5))

    def net(x, t, pad=None):
        seen.append((x.clone(), t.clone()))
        return table.expand(*x.shape, -1)

    x = d.sample(net, shape, steps, sampler=sampler, generator=torch.Generator().manual_seed(1), **options)
    return seen, x


@pytest.mark.parametrize(
    ("steps", "masked"), [(1, [5]), (2, [5, 2]), (3, [5, 3, 1]), (5, [5, 4, 3, 2, 1]), (50, [5, 4, 3, 2, 1])]
)
def test_never_more_calls_than_elements_or_steps(steps, masked):
    """An object with fewer open elements is ready sooner; given elements and padding stay."""
    given = torch.tensor([[False] * 5, [True, False, False, True, True]])
    tokens = torch.tensor([[0] * 5, [2, 0, 0, 1, 0]])
    pad = torch.tensor([[False] * 5, [False, False, True, False, False]])
    for name in ("confidence", "margin"):
        seen, x = watched(diffusion(), (2, 5), steps, name, given=given, given_tokens=tokens, pad=pad)
        assert [int((x[0] == MASK).sum()) for x, _ in seen] == masked
        assert [int((x[1] == MASK).sum()) for x, _ in seen] == [1] + [0] * (len(masked) - 1)
        assert all(torch.equal(x[given | pad], tokens[given | pad]) for x in [*(x for x, _ in seen), x])
        assert (x != MASK).all()


def test_the_cosine_schedule_draws_few_elements_at_first():
    given = torch.tensor([False] * 12)
    seen, _ = watched(
        diffusion(), (1, 12), 4, usd3.CertainFirst(schedule="cosine"), given=given, given_tokens=given.long()
    )
    assert [int((x == MASK).sum()) for x, _ in seen] == [12, 11, 8, 4]  # floor(12 cos(pi/8 j))
    seen, _ = watched(diffusion(), (1, 4), 40, usd3.CertainFirst(schedule="cosine"))
    assert [int((x == MASK).sum()) for x, _ in seen] == [4, 3, 2, 1]  # at least one


@pytest.mark.parametrize("num_steps", [None, 10])
def test_the_network_gets_the_time_of_the_share_that_is_masked(num_steps):
    d = usd3.Diffusion(usd3.Absorbing(K), usd3.Linear(), num_steps)
    seen, _ = watched(
        d,
        (2, 5),
        5,
        "confidence",
        given=torch.tensor([[False] * 5, [True] * 3 + [False] * 2]),
        given_tokens=torch.zeros(2, 5, dtype=torch.long),
    )
    last = 1e-3 if num_steps is None else 0.1
    expected = torch.tensor([[1, 1], [0.8, 0.5], [0.6, last], [0.4, last], [0.2, last]])
    torch.testing.assert_close(torch.stack([t for _, t in seen]), expected)


def test_the_bound_on_the_entropy_takes_more_at_once():
    """Entropies 0.1, 0.2, 0.3, ...: as many as sum up to the bound without the largest, but at least the share."""
    p = torch.tensor([0.0205, 0.0505, 0.0889, 0.1373, 0.1997])

    def net(x, t):
        calls.append((x == MASK).sum(1).tolist())
        f = torch.stack([p, 1 - p, torch.zeros(5), torch.zeros(5)], -1)
        return f.clamp(min=1e-30).log().expand(len(x), 5, K)

    entropies = -(p * p.log() + (1 - p) * (1 - p).log())
    torch.testing.assert_close(entropies, torch.linspace(0.1, 0.5, 5), atol=2e-3, rtol=0)
    several = ((0.05, [5, 4, 3, 2, 1]), (0.15, [5, 3, 2, 1]), (0.35, [5, 2, 1]), (0.55, [5, 2]), (10.0, [5]))
    for bound, expected in ((None, [5, 4, 3, 2, 1]), (0.0, [5, 4, 3, 2, 1]), *several):
        calls = []
        x = diffusion().sample(net, (1, 5), 5, sampler=usd3.CertainFirst("entropy", bound))
        assert [left for (left,) in calls] == expected
        assert (x != MASK).all()


@pytest.mark.parametrize("name", NOISES | WITH_SUPPORT)
@pytest.mark.parametrize("sampler", NAMES)
def test_any_noise_ends_with_data_in_as_many_calls(name, sampler):
    d = diffusion((NOISES | WITH_SUPPORT)[name][0]())
    given, tokens = torch.tensor([False, False, True]), torch.tensor([0, 0, 2])
    for steps in (1, 2, 9):
        seen, x = watched(d, (40, D), steps, sampler, given=given, given_tokens=tokens)
        assert len(seen) <= min(steps, 2)
        assert all((x[:, 2] == 2).all() for x in [*(x for x, _ in seen), x])
        assert all(set(x[:, e].tolist()) <= set(data_categories(d.noise, e)) for e in range(D))


def test_other_noise_keeps_what_it_believes_and_draws_the_rest_anew():
    """Uniform noise, a network that knows x_0 = 1: elements that are 1 count as drawn, all others as noise."""
    d, n = diffusion(usd3.Uniform(K)), 2000
    logits = torch.tensor([0.0, 9.0, 0.0, 0.0])
    seen, final = watched_states(d, lambda x, t: logits.expand(*x.shape, K), (n, 4), 4)
    for number, x in enumerate(seen[1:], 1):
        assert ((x == 1).sum(1) >= number).double().mean() > 0.95
    fresh = torch.bincount(seen[1][seen[1] != 1], minlength=K)[[0, 2, 3]]
    assert chi_square_p_value(fresh, np.full(3, int(fresh.sum()) / 3)) > FALSE_ALARM
    assert (final == 1).double().mean() > 0.99


def watched_states(d, net, shape, steps):
    seen = []
    x = d.sample(
        lambda x, t: seen.append(x.clone()) or net(x, t), shape, steps, sampler="confidence",
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    return seen, x


def test_with_absorbing_noise_what_counts_as_noise_is_what_is_masked(generator):
    """The elements of which `untouched` is smallest, as many as are left, and the masked ones are the same."""
    seen, final = watched_states(diffusion(), model, (500, D), D)
    for before, after in itertools.pairwise([*seen, final]):
        is_masked = before == MASK
        assert torch.equal(before[~is_masked], after[~is_masked])  # no other element is touched
        assert ((after == MASK).sum(1) == is_masked.sum(1) - 1).all()


def test_equal_scores_are_drawn_in_random_order(generator):
    """The first of three elements, each with probability 1/3."""
    seen, _ = watched_states(diffusion(), lambda x, t: torch.zeros(*x.shape, K), (3000, D), D)
    first = (seen[1] != MASK).sum(0)
    assert chi_square_p_value(first, np.full(3, 1000)) > FALSE_ALARM


def test_ranks_and_scores():
    keys = torch.tensor([[0.3, 0.1, 0.2, 0.9]])
    assert best_first(torch.tensor([[1.0, 2.0, 1.0, 3.0]]), keys).tolist() == [[3, 1, 2, 0]]
    f, x = torch.tensor([[[0.5, 0.25, 0.125, 0.125]]]), torch.tensor([[1]])
    entropy = float(-(f * f.log()).sum())
    for score, expected in (("confidence", 0.0), ("margin", 0.25), ("entropy", -entropy)):
        found = certainty(f.log(), usd3.Uniform(K), x, score)
        assert [float(v) for v in found] == pytest.approx([expected, entropy, 0.25])


def test_memory_is_bounded_and_the_parts_are_the_whole(monkeypatch):
    logits, x = torch.randn(7, D, K), torch.zeros(7, D, dtype=torch.long)
    noise = usd3.Absorbing(K).within(torch.ones(D, K, dtype=torch.bool))
    whole = certainty(logits, noise, x, "margin")
    monkeypatch.setattr("usd3.core.samplers.run._CELLS", 2 * D * K)
    assert all(torch.equal(a, b) for a, b in zip(whole, certainty(logits, noise, x, "margin")))


def test_bad_logits_are_refused_only_where_they_are_read(generator):
    def net(x, t):
        return torch.where((x == MASK)[..., None], torch.zeros(K), torch.nan)

    diffusion().sample(net, (4, D), D, sampler="confidence", generator=generator)
    with pytest.raises(ValueError, match="logits contains nan"):
        diffusion().sample(lambda x, t: net(x, t) * torch.nan, (4, D), D, sampler="confidence")


def test_nothing_to_draw_needs_no_call(generator):
    run = Run(diffusion(), None, torch.zeros(2, D, dtype=torch.bool), Checks(True), generator)
    x = torch.zeros(2, D, dtype=torch.long)
    assert torch.equal(usd3.CertainFirst()(run, [1.0, 0.0])(x, 0), x)


def test_options_are_checked_and_a_corrector_is_refused():
    assert SAMPLERS["confidence"] == usd3.CertainFirst()
    assert SAMPLERS["entropy"] == usd3.CertainFirst("entropy", bound=0.1)
    with pytest.raises(ValueError, match="score = best: expected one of confidence, margin, entropy"):
        usd3.CertainFirst("best")
    with pytest.raises(ValueError, match="schedule = best: expected one of linear, cosine"):
        usd3.CertainFirst(schedule="best")
    with pytest.raises(ValueError, match=r"bound = -1: expected a number in \[0, inf\)"):
        usd3.CertainFirst("entropy", bound=-1)
    with pytest.raises(ValueError, match=r"corrector = .*: expected None with the sampler margin"):
        diffusion().sample(model, (2, D), 4, sampler="margin", corrector=usd3.Corrector())
