"""Gibbs moves against exact distributions over all objects."""

import numpy as np
import pytest
import torch

import usd3
from support import oracle
from support.problems import D, K
from support.statistics import chi_square_p_value
from support.toys import exact_model, known_joint
from usd3._internal.checks import Checks
from usd3.core.model import Denoiser
from usd3.core.samplers import GibbsCorrector, Run
from usd3.nets.heads.hollow import Hollow

S = 0.5


@pytest.fixture
def setting(noise):
    noise, ms = noise
    joint = known_joint(noise, ms)
    return usd3.Diffusion(noise, usd3.Cosine(), validate=False), joint, exact_model(joint, usd3.Cosine())


def moved(d, model, x, corrector, free=None, seed=0, s=S):
    """x after the moves of a step to time s."""
    free = torch.ones_like(x, dtype=torch.bool) if free is None else free
    denoise = Denoiser(model, d.noise.num_classes, None, None)
    run = Run(d, denoise, free, Checks(d.validate), torch.Generator().manual_seed(seed))
    return corrector(run, [1.0, s, 0.0])(x, 0)


def possible_objects(joint):
    """All objects that can be at time S, (n, D), their number in the joint's states, and q_t over all."""
    q = joint.marginal(oracle.ALPHA_BAR["cosine"](S))
    possible = np.flatnonzero(q > 1e-12)
    return torch.tensor(joint.states)[possible], possible, q


def test_an_element_is_drawn_from_its_distribution_given_the_others(setting):
    """Each object many times: the drawn element has the conditional of q_t, by enumeration."""
    d, joint, model = setting
    x, possible, q = possible_objects(joint)
    q, n = q.reshape((K,) * D), 4000
    some = np.random.default_rng(0).choice(len(x), 3, replace=False, p=q.reshape(-1)[possible] / q.sum())
    for element in range(D):
        free = torch.zeros(3, n, D, dtype=torch.bool)
        free[..., element] = True
        start = x[some][:, None].expand(3, n, D)
        new = moved(d, model, start.reshape(-1, D), GibbsCorrector(1, None), free.reshape(-1, D))
        new = new.reshape(3, n, D)
        others = [i for i in range(D) if i != element]
        assert torch.equal(new[..., others], start[..., others])
        for state, drawn in zip(x[some].tolist(), new):
            at = tuple(slice(None) if i == element else state[i] for i in range(D))
            expected = q[at] / q[at].sum()
            counts = np.bincount(drawn[:, element], minlength=K)
            assert counts[expected < 1e-9].sum() == 0
            live = expected >= 1e-9
            assert live.sum() == 1 or chi_square_p_value(counts[live], expected[live] * n) > 1e-5


def test_one_random_element_at_a_time_leaves_q_t_as_it_is(setting):
    d, joint, model = setting
    x, possible, q = possible_objects(joint)
    n = 20_000
    drawn = torch.multinomial(torch.from_numpy(q[possible]), n, True, generator=torch.Generator().manual_seed(1))
    new = moved(d, model, x[drawn], GibbsCorrector(3, None))
    codes = (new * torch.tensor([K**2, K, 1])).sum(1).numpy()
    counts = np.bincount(codes, minlength=K**D)
    assert counts[q <= 1e-12].sum() == 0
    likely = np.append(q[q * n >= 5], q[q * n < 5].sum())
    found = np.append(counts[q * n >= 5], counts[q * n < 5].sum())
    likely, found = likely[likely > 1e-12], found[likely > 1e-12]
    assert chi_square_p_value(found, likely / likely.sum() * n) > 1e-5


class HollowNet(torch.nn.Module):
    """Five independent elements, each with its own f, whatever the others are."""

    is_hollow = True
    table = torch.tensor(
        [[3.0, 1.0, 0.0, 0.0], [3.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.1, 0.0], [9.0, 0, 0, 0], [9.0, 0, 0, 0]]
    )

    def forward(self, x, t):
        return self.table.expand(len(x), 5, 4)


def test_an_informed_move_takes_the_unmasked_elements_that_are_least_likely():
    """Element 3 is at a category that is e^9 times less likely than the best, element 0 at one e^2 times less."""
    d, mask = usd3.Diffusion(usd3.Absorbing(4), usd3.Cosine()), 3
    x = torch.tensor([[1, 0, mask, 2, mask]]).repeat(4000, 1)
    for count, expected in ((1, [3]), (2, [0, 3])):
        new = moved(d, HollowNet(), x, GibbsCorrector(1, None, count=count, informed=True), s=0.05)
        assert (new != x).any(0).nonzero().flatten().tolist() == expected
        assert (new[:, [2, 4]] == mask).all()  # masked elements stay masked
    f = torch.softmax(HollowNet.table[0, :3], -1)
    found = torch.bincount(new[:, 0], minlength=4)[:3] / 4000
    torch.testing.assert_close(found, f, atol=0.04, rtol=0)  # drawn from f: 5 standard errors


def test_an_informed_move_with_mixed_noise_draws_from_the_marginal_without_the_mask():
    d, s, n = usd3.Diffusion(usd3.Mixed(4, 0.4), usd3.Linear()), 0.3, 20_000
    x = torch.tensor([[1, 0, 3, 0, 0]]).repeat(n, 1)
    new = moved(d, Hollow(HollowNet(), d), x, GibbsCorrector(1, None, informed=True), s=s)
    assert (new != x).any(0).nonzero().flatten().tolist() == [0]
    q = (1 - s) * torch.softmax(HollowNet.table[0, :3], -1) + s * d.noise.probs[:3].float()
    torch.testing.assert_close(torch.bincount(new[:, 0], minlength=3) / n, q / q.sum(), atol=0.02, rtol=0)


def test_informed_moves_need_a_mask_and_a_hollow_network():
    x, corrector = torch.zeros(2, 5, dtype=torch.long), GibbsCorrector(1, None, informed=True)
    with pytest.raises(ValueError, match="informed = True: expected False for noise without a mask"):
        moved(usd3.Diffusion(usd3.Uniform(4), usd3.Cosine()), HollowNet(), x, corrector)
    with pytest.raises(ValueError, match="informed = True: expected False with absorbing noise, unless the network is"):
        moved(
            usd3.Diffusion(usd3.Absorbing(4), usd3.Cosine()), lambda x, t: HollowNet.table.expand(2, 5, 4), x, corrector
        )


@pytest.mark.parametrize(
    ("options", "changed"), [({"count": 2}, 2), ({"share": 0.41}, 3), ({"share": 1.0}, 5), ({}, 1)]
)
def test_a_move_draws_so_many_elements_in_one_call(options, changed):
    """With absorbing noise an element of a move is masked when the network is asked."""
    seen, d = [], usd3.Diffusion(usd3.Absorbing(4), usd3.Cosine())

    def net(x, t):
        seen.append((x == 3).sum(1))
        return HollowNet.table.expand(len(x), 5, 4)

    moved(d, net, torch.zeros(40, 5, dtype=torch.long), GibbsCorrector(2, None, **options))
    assert len(seen) == 2
    assert (seen[0] == changed).all()


@pytest.mark.parametrize(("last", "moves"), [(None, [0, 1, 2]), (1, [2]), (2, [1, 2]), (9, [0, 1, 2])])
def test_moves_follow_the_last_steps_that_end_before_time_0(last, moves):
    d, asked = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine()), []

    def net(x, t):
        asked.append(float(t[0]))
        return torch.zeros(*x.shape, 4)

    times = [1.0, 0.75, 0.5, 0.25, 0.0]
    d.sample(net, (2, 3), times, GibbsCorrector(1, last))
    expected = [t for i, t in enumerate(times[:-1]) for t in ([t, times[i + 1]] if i in moves else [t])]
    assert asked == pytest.approx(expected)


def test_given_elements_and_padding_stay():
    d = usd3.Diffusion(usd3.Mixed(4), usd3.Cosine())
    given, pad = torch.tensor([True, False, False, False]), torch.tensor([False, False, False, True])
    tokens = torch.full((200, 4), 2)
    x = d.sample(
        lambda x, t, pad: torch.zeros(*x.shape, 4), (200, 4), 6, GibbsCorrector(2, None, share=1.0),
        given=given, given_tokens=tokens, pad=pad, generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    assert (x[:, [0, 3]] == 2).all()
    assert len(x[:, 1:3].unique(dim=0)) == 9


@pytest.mark.parametrize("kind", ["uniform", "mixed", "absorbing"])
def test_moves_bring_samples_of_few_steps_closer_to_the_data(kind, generator):
    noise = {"uniform": usd3.Uniform(K), "mixed": usd3.Mixed(K, 0.3), "absorbing": usd3.Absorbing(K)}[kind]
    joint = known_joint(noise, np.broadcast_to(noise.probs.numpy(), (D, K)))
    d, model = usd3.Diffusion(noise, usd3.Cosine()), exact_model(joint, usd3.Cosine())
    n, far = 20_000, []
    for corrector in (None, GibbsCorrector(6, None)):
        x = d.sample(model, (n, D), 4, corrector, generator=generator)
        counts = np.bincount((x * torch.tensor([K**2, K, 1])).sum(1).numpy(), minlength=K**D)
        far.append(oracle.total_variation(counts / n, joint.w.reshape(-1)))
    assert far[1] < 0.8 * far[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count = 0"),
        ({"share": 0.0}, r"share = 0.0: expected a number in \(0, 1\]"),
        ({"share": 1.5}, "share = 1.5"),
        ({"num_steps": 0}, "num_steps = 0"),
        ({"last": 0}, "last = 0"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GibbsCorrector(**options)
