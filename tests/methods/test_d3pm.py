"""D3PM against matrices that are multiplied out in NumPy: losses, bounds, posteriors, samplers."""

import functools
import itertools
import math
import pickle

import numpy as np
import pytest
import torch

import usd3
from support import oracle
from support.runs import tiny_recipe
from support.schedules import Square
from support.statistics import chi_square_p_value
from usd3.core import converters
from usd3.core.options import DiffusionConfig
from usd3.methods import D3PM, Transitions
from usd3.methods.options import MethodConfig
from usd3.methods.stack_diffusion import StackDiffusion
from usd3.methods.transitions import backward, possible_logits
from usd3.training.run import pipeline_for

K, D, T = 4, 3, 12


class Chain:
    """Q_1 ... Q_T, nothing simplified."""

    def __init__(self, Q):
        self.Q = np.asarray(Q)

    def product(self, s, t):
        return functools.reduce(np.matmul, self.Q[s:t], np.eye(self.Q.shape[1]))

    def posterior(self, x_0, x_t, t, s):
        joint = self.product(0, s)[x_0] * self.product(s, t)[:, x_t]
        return joint / joint.sum()

    def marginal(self, f, x_t, t, s):
        possible = self.product(0, t)[:, x_t] > 0
        if not possible.any():  # no chain comes here
            return np.eye(len(f))[x_t]
        f = f * possible / (f * possible).sum()
        return sum(f[k] * self.posterior(k, x_t, t, s) for k in range(len(f)) if f[k] > 0)

    def joint(self, f, x_t, t, s):
        p = self.product(s, t)[:, x_t] * (f @ self.product(0, s))
        return p / p.sum()


def closed_chain(d):
    """The matrices of a diffusion's own noise and schedule."""
    a = [1.0, *(float(d.schedule.alpha_bar(torch.tensor(t / T, dtype=torch.float64))) for t in range(1, T + 1))]
    return Chain([oracle.transition(t / s, d.noise.probs.numpy()) for s, t in itertools.pairwise(a)])


def random_stack(seed=4):
    """Rows from a Dirichlet; the noise is where they end."""
    Q = np.random.default_rng(seed).dirichlet(np.full(K, 2.0), size=(T, K))
    return Q, usd3.Marginal(Chain(Q).product(0, T)[0])


OPTIONS = {
    "closed uniform": (usd3.Uniform(K), {}),
    "closed absorbing": (usd3.Absorbing(K, mask=1), {}),
    "uniform": (usd3.Uniform(K), {"transitions": "uniform"}),
    "absorbing": (usd3.Absorbing(K, mask=1), {"transitions": "absorbing"}),
    "gaussian": (usd3.Uniform(K), {"transitions": "gaussian", "betas": (0.5, 1.0)}),
    "banded": (usd3.Uniform(K), {"transitions": "banded", "betas": [0.9, 1.0], "width": 2}),
    "random": (random_stack()[1], {"transitions": random_stack()[0]}),
}
STACKS = [name for name in OPTIONS if not name.startswith("closed")]


def make(name, **options):
    """The method and its matrices."""
    noise, own = OPTIONS[name]
    method = D3PM(usd3.Diffusion(noise, usd3.Cosine(), T), **own, **options)
    d = method.diffusion
    return method, Chain(d.transitions.single) if isinstance(d, StackDiffusion) else closed_chain(d)


def data(noise):
    return [k for k in range(K) if k != noise.mask]


class Network:
    """Any function of x_t and t, float64; remembers where it was asked."""

    def __init__(self, scale=2.0):
        self.table = scale * torch.randn(T + 1, D, K, K, generator=torch.Generator().manual_seed(1)).double()
        self.calls = []

    def __call__(self, x, t):
        self.calls.append((x, (t * T).round().long()))
        return self.table[self.calls[-1][1][:, None], torch.arange(D), x]


def f_of(logits, mask):
    """Softmax without the mask."""
    logits = logits.numpy().copy()
    if mask is not None:
        logits[..., mask] = -np.inf
    return oracle.softmax(logits)


def brute(method, chain, logits, x_t, x_0, t):
    """L_t and the cross entropy of one element."""
    f = f_of(logits, method.diffusion.noise.mask)
    step = chain.joint if method.posterior == "joint" else chain.marginal
    possible = chain.product(0, t)[:, x_t] > 0
    ce = -math.log(f[x_0] / f[possible].sum())
    return oracle.kl(chain.posterior(x_0, x_t, t, t - 1), step(f, x_t, t, t - 1)), ce


def some_data(noise, n, seed=0):
    choice = torch.tensor(data(noise))
    return choice[torch.randint(len(choice), (n, D), generator=torch.Generator().manual_seed(seed))]


# ---- matrices ---------------------------------------------------------------------------------------------------


def gaussian_by_hand(k, beta):
    norm = sum(math.exp(-4 * n * n / ((k - 1) ** 2 * beta)) for n in range(-(k - 1), k))
    Q = [[math.exp(-4 * (i - j) ** 2 / ((k - 1) ** 2 * beta)) / norm * (i != j) for j in range(k)] for i in range(k)]
    return np.array(Q) + np.diag(1 - np.array(Q).sum(1))


def test_the_gaussian_stack_is_doubly_stochastic_and_ends_uniform():
    """T4, with the betas of the public code; few categories need larger ones, as their steps are rounded to none."""
    k = 48
    stack = Transitions.named("gaussian", usd3.Diffusion(usd3.Uniform(k), usd3.Cosine(), 1000))
    assert stack.single.dtype == stack.whole.dtype == torch.float64
    for i, beta in ((0, 1e-4), (999, 0.02)):
        np.testing.assert_allclose(stack.single[i], gaussian_by_hand(k, beta), atol=1e-15)
    assert (stack.single >= 0).all()
    for axis in (1, 2):
        torch.testing.assert_close(stack.single.sum(axis), torch.ones(1000, k).double(), atol=1e-12, rtol=0)
        torch.testing.assert_close(stack.whole.sum(axis), torch.ones(1001, k).double(), atol=1e-11, rtol=0)
    far = [float((bar - 1 / k).abs().sum(1).max()) / 2 for bar in stack.whole[::250]]
    assert far[0] == pytest.approx(1 - 1 / k)
    assert all(later < before for before, later in itertools.pairwise(far))
    assert far[-1] < 0.01


def test_the_band_and_the_line_of_betas():
    stack = Transitions.named("banded", usd3.Diffusion(usd3.Uniform(5), usd3.Cosine(), 3), (0.2, 0.6), 1)
    for Q, beta in zip(stack.single.numpy(), (0.2, 0.4, 0.6)):
        for i, j in itertools.product(range(5), repeat=2):
            if i != j:
                assert Q[i, j] == pytest.approx(beta / 5 if abs(i - j) == 1 else 0)
        np.testing.assert_allclose(Q.sum(1), 1)
    line = Transitions.named("uniform", usd3.Diffusion(usd3.Uniform(5), usd3.Cosine(), 3), (0.2, 0.6))
    np.testing.assert_allclose(line.single[1], oracle.transition(0.6, np.full(5, 0.2)), atol=1e-15)


@pytest.mark.parametrize("name", STACKS)
def test_products_and_gaps(name):
    method, chain = make(name)
    stack = method.diffusion.transitions
    for t in (0, 1, 5, T):
        np.testing.assert_allclose(stack.whole[t], chain.product(0, t), atol=1e-14)
        for s in range(t):
            np.testing.assert_allclose(stack.between(t, s), chain.product(s, t), atol=1e-14)


# ---- posteriors -------------------------------------------------------------------------------------------------

STEPS = [(1, 0), (2, 1), (7, 6), (9, 2), (T, T - 1), (T, 0)]


def library_step(method, logits, x, t, s):
    """p(x_s | x_t) of every element by the library's own parts, as its sampler takes them."""
    d = method.diffusion
    time = torch.full((len(x),), t / T, dtype=torch.float64)
    logits = method.denoiser(lambda x, t: logits)(x, time)
    if not isinstance(d, StackDiffusion):
        return d.backward(logits, x, t, s).probs()
    reach, into = d.transitions.whole[t].T[x], d.transitions.between(t, s).T[x]
    f = torch.softmax(possible_logits(logits, reach, d.noise.mask), -1)
    return backward(f, reach, into, d.transitions.whole[s])


@pytest.mark.parametrize("posterior", ["marginal", "joint"])
@pytest.mark.parametrize("name", OPTIONS)
def test_posteriors_are_those_of_the_matrices(name, posterior):
    """T1 and T2: every x_t, single steps and gaps."""
    method, chain = make(name, posterior=posterior)
    x = torch.arange(K)[:, None].expand(K, D)
    logits = torch.randn(K, D, K, generator=torch.Generator().manual_seed(3)).double()
    f = f_of(logits, method.diffusion.noise.mask)
    for t, s in STEPS:
        found = library_step(method, logits, x, t, s)
        reached = chain.product(0, t)[data(method.diffusion.noise)].sum(0) > 0  # at T nothing is left unmasked
        for i, j in itertools.product(np.flatnonzero(reached), range(D)):
            wanted = getattr(chain, posterior)(f[i, j], i, t, s)
            np.testing.assert_allclose(found[i, j], wanted, atol=1e-12)


@pytest.mark.parametrize("name", ["closed uniform", "gaussian", "banded", "random"])
def test_joint_is_marginal_of_what_x_t_adds(name):
    """By matrices alone, and by the two readings of the library."""
    (marginal, chain), (joint, _) = (make(name, posterior=posterior) for posterior in ("marginal", "joint"))
    logits = torch.randn(K, D, K, generator=torch.Generator().manual_seed(3)).double()
    x = torch.arange(K)[:, None].expand(K, D)
    for t, s in STEPS:
        reach = chain.product(0, t)[:, x.numpy()]  # (K, n, D): q(x_t | k)
        with np.errstate(divide="ignore"):
            shifted = logits + torch.from_numpy(np.log(np.moveaxis(reach, 0, -1)))
        torch.testing.assert_close(library_step(joint, logits, x, t, s), library_step(marginal, shifted, x, t, s))
    differ = library_step(joint, logits, x, 2, 1) - library_step(marginal, logits, x, 2, 1)
    assert differ.abs().max() > 0.01
    if name == "closed uniform":
        time, before = (torch.full((K,), step / T, dtype=torch.float64) for step in (3, 2))
        u5 = converters.step_from_hollow(joint.diffusion, logits, x, time, before)
        torch.testing.assert_close(library_step(joint, logits, x, 3, 2), u5)


@pytest.mark.parametrize("name", ["closed uniform", "gaussian", "closed absorbing", "absorbing"])
def test_where_the_joint_loss_is_smallest(name):
    """One element: the VLB at f = posterior / q(x_t|.) is that of the truth; at f = posterior it is larger.

    With absorbing noise the two f agree.
    """
    method, chain = make(name, posterior="joint")
    d, t = method.diffusion, 4
    w = np.random.default_rng(2).dirichlet(np.ones(K)) * [k in data(d.noise) for k in range(K)]
    w, q_t = w / w.sum(), chain.product(0, t)

    def vlb(logits_at):
        total = 0.0
        for x, x_0 in itertools.product(range(K), data(d.noise)):
            if q_t[x_0, x] > 0:
                tokens, clean = torch.tensor([[x]]), torch.tensor([[x_0]])
                full = method.denoiser(lambda x, t: logits_at(int(x)))(tokens, torch.tensor([t / T]))
                total += w[x_0] * q_t[x_0, x] * float(d.loss_terms(full, tokens, clean, t).vlb)
        return total

    def posterior(x):
        return w * q_t[:, x]

    log = lambda p: torch.from_numpy(np.log(np.maximum(p, 1e-300)))[None, None]
    at_truth = vlb(lambda x: log(posterior(x)))
    at_hollow = vlb(lambda x: log(np.where(q_t[:, x] > 0, w, 0)))
    least = 0.0  # of any model: E over x_0, x_t of KL to the true backward step
    for x, x_0 in itertools.product(range(K), data(d.noise)):
        if q_t[x_0, x] > 0:
            step = chain.marginal(posterior(x) / posterior(x).sum(), x, t, t - 1)
            least += w[x_0] * q_t[x_0, x] * oracle.kl(chain.posterior(x_0, x, t, t - 1), step)
    assert at_hollow == pytest.approx(least, abs=1e-10)
    if "absorbing" in name:
        assert at_truth == pytest.approx(least, abs=1e-10)
    else:
        assert at_truth > least + 1e-3


# ---- losses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("posterior", ["marginal", "joint"])
@pytest.mark.parametrize("name", OPTIONS)
def test_the_loss_is_that_of_the_matrices(name, posterior):
    """Also with given and padded elements, at every t."""
    method, chain = make(name, posterior=posterior, ce=0.3)
    noise, network = method.diffusion.noise, Network()
    x_0 = some_data(noise, 2 * T)
    t = torch.arange(1, T + 1).repeat(2)
    given, pad = torch.zeros(2 * T, D, dtype=torch.bool), torch.zeros(2 * T, D, dtype=torch.bool)
    given[::3, 0], pad[1::3, 2] = True, True

    def model(x, t, pad):
        return network(x, t)

    out = method.loss(model, x_0, t=t, given=given, pad=pad, generator=torch.Generator().manual_seed(0))
    (x_t, _), free = network.calls[0], ~(given | pad)
    assert torch.equal(x_t[~free], x_0[~free])
    logits = network(x_t, t / T)
    vlb = ce = 0.0
    for i, j in free.nonzero().tolist():
        own = brute(method, chain, logits[i, j], int(x_t[i, j]), int(x_0[i, j]), int(t[i]))
        vlb, ce = vlb + own[0] / (2 * T), ce + own[1] / (2 * T)
    assert float(out.loss) == pytest.approx(vlb + 0.3 * ce, abs=1e-10)
    assert float(out.vlb) == pytest.approx(T * vlb, abs=1e-9)
    assert float(out.ce) == pytest.approx(ce, abs=1e-10)


@pytest.mark.parametrize("schedule", [usd3.Cosine(), usd3.Cosine(a=0.0), usd3.Linear(), Square()], ids=repr)
def test_absorbing_matrices_end_at_the_mask_for_every_number_of_steps(schedule):
    """1 - alpha_bar(1, s) is 1, and not 1 + 2e-16, which leaves a negative probability, or 1 - 1e-16, which leaves
    an infinite prior.
    """
    noise = usd3.Absorbing(3)
    for steps in range(2, 201):
        stack = Transitions.named("absorbing", usd3.Diffusion(noise, schedule, steps))
        assert (stack.whole[-1][:, :2] == 0).all()
    for steps in (2, 3, 8, 96):
        method = D3PM(usd3.Diffusion(noise, schedule, steps), transitions="absorbing")
        bound = method.bound(lambda x, t: torch.zeros(*x.shape, 3), torch.tensor([[0, 1]]), num_samples=2)
        assert bound.isfinite().all()


@pytest.mark.parametrize("kind", ["uniform", "absorbing"])
@pytest.mark.parametrize("posterior", ["marginal", "joint"])
def test_uniform_and_absorbing_stacks_are_the_closed_form(kind, posterior):
    """T3: every t, x_t and x_0; the loss terms, their gradient and the prior."""
    (closed, chain), (stack, _) = make(f"closed {kind}", posterior=posterior), make(kind, posterior=posterior)
    noise = closed.diffusion.noise

    def possible(t):
        pairs = [p for p in itertools.product(data(noise), range(K)) if chain.product(0, t)[p] > 0]
        return (torch.tensor(row)[:, None].expand(-1, D) for row in zip(*pairs))

    for t in range(1, T + 1):
        x_0, x_t = possible(t)
        logits = torch.randn(len(x_t), D, K, generator=torch.Generator().manual_seed(5)).double().requires_grad_()
        found = []
        for method in (closed, stack):
            time = torch.full((len(x_t),), t / T, dtype=torch.float64)
            full = method.denoiser(lambda x, t, logits=logits: logits)(x_t, time)
            terms = method.diffusion.loss_terms(full, x_t, x_0, t)
            gradient = torch.autograd.grad((terms.vlb + 0.1 * terms.ce).sum(), logits)[0]
            found.append((terms.vlb, terms.ce, gradient, method.diffusion.prior(x_0, t if kind == "uniform" else T)))
        for one, other in zip(*found):
            torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-9)
    if posterior == "marginal":
        x_0, x_t = possible(9)
        logits = torch.randn(len(x_t), D, K, generator=torch.Generator().manual_seed(6)).double()
        torch.testing.assert_close(
            stack.diffusion.loss_terms(logits, x_t, x_0, 9, 4).vlb,
            closed.diffusion.loss_terms(logits, x_t, x_0, 9, 4).vlb,
            atol=1e-10,
            rtol=1e-9,
        )


def test_the_marginal_closed_form_is_usd3():
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), T)
    x_0 = some_data(d.noise, 5)
    draws = lambda: torch.Generator().manual_seed(1)
    one, other = D3PM(d).loss(Network(), x_0, generator=draws()), d.loss(Network(), x_0, generator=draws())
    assert torch.equal(one.loss, other.loss)


@pytest.mark.parametrize("posterior", ["marginal", "joint"])
@pytest.mark.parametrize("name", OPTIONS)
def test_the_bound_is_that_of_the_matrices(name, posterior):
    """Every t once, at the x_t that were drawn, and KL(q_T || m)."""
    method, chain = make(name, posterior=posterior)
    noise, network = method.diffusion.noise, Network(0.5)
    x_0, given = some_data(noise, 3), torch.tensor([True, False, False])
    with torch.no_grad():
        found = method.bound(network, x_0, given=given, generator=torch.Generator().manual_seed(0))
    calls, nats = list(network.calls), np.zeros(3)
    assert sorted(int(t[0]) for _, t in calls) == list(range(1, T + 1))
    for x_t, t in calls:
        logits = network(x_t, t / T)
        for i, j in itertools.product(range(3), (1, 2)):
            nats[i] += brute(method, chain, logits[i, j], int(x_t[i, j]), int(x_0[i, j]), int(t[i]))[0]
    m = noise.probs.numpy()
    for i, j in itertools.product(range(3), (1, 2)):
        nats[i] += oracle.kl(chain.product(0, T)[x_0[i, j]], m)
    # a joint reading in closed form sees the time as the network does; it is rounded back to t / T
    np.testing.assert_allclose(found, nats, rtol=1e-9)


@pytest.mark.parametrize("name", ["gaussian", "random", "banded"])
def test_the_exact_network_reaches_the_log_likelihood_of_one_element(name):
    """sum_t E[L_t] + KL(q_T|0 || m) = -log w(x_0) + E[log q_T(x_T) / m(x_T)], q_T being where the data end."""
    method, chain = make(name)
    d, w = method.diffusion, np.random.default_rng(8).dirichlet(np.ones(K))
    x_0, x_t = (torch.tensor(v)[:, None] for v in zip(*itertools.product(range(K), repeat=2)))
    nats = d.prior(torch.arange(K)[:, None])[:, 0].numpy()
    for t in range(1, T + 1):
        q_t = chain.product(0, t)
        f = torch.from_numpy(np.log(np.maximum(w[:, None] * q_t, 1e-300)).T)[x_t]
        q = q_t[x_0[:, 0], x_t[:, 0]]
        terms = np.where(q > 0, q * d.loss_terms(f, x_t, x_0, t).vlb[:, 0].numpy(), 0)
        nats = nats + terms.reshape(K, K).sum(1)
    q_T = chain.product(0, T)
    ends = q_T @ np.log((w @ q_T) / d.noise.probs.numpy())
    np.testing.assert_allclose(nats, -np.log(w) + ends, atol=1e-10)


@pytest.mark.parametrize("name", ["gaussian", "absorbing", "banded"])
@pytest.mark.parametrize("posterior", ["marginal", "joint"])
def test_precisions_and_extreme_logits(name, posterior):
    """float32 and bfloat16 logits work in float32 tables; impossible categories and huge logits give no NaN."""
    method, _ = make(name, posterior=posterior)
    d, tables = method.diffusion, method.diffusion.transitions
    x_0, t = some_data(d.noise, T), torch.arange(1, T + 1)
    draws = lambda: torch.Generator().manual_seed(1)
    losses = {}
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        model = lambda x, t, dtype=dtype: Network()(x, t).to(dtype)
        losses[dtype] = float(method.loss(model, x_0, t=t, generator=draws()).loss)
    assert losses[torch.float32] == pytest.approx(losses[torch.float64], rel=1e-4)
    assert losses[torch.bfloat16] == pytest.approx(losses[torch.float64], rel=0.05)
    assert {dtype for _, dtype in tables._copies} == {torch.float32, torch.float64}
    for scale in (60.0, 1000.0):
        logits = (Network(scale).table[0, :, 0]).float().expand(T, D, K).clone()
        logits[:, 0, 0] = -torch.inf
        logits.requires_grad_()
        x_0[:, 0] = K - 1
        out = method.loss(lambda x, t, logits=logits: logits, x_0, t=t, generator=draws())
        out.loss.backward()
        assert out.loss.isfinite()
        assert logits.grad.isfinite().all()


def test_the_noise_is_drawn_by_the_rows(generator):
    method, chain = make("random")
    x_0 = torch.tensor([[2, 0, 3]]).expand(20_000, D)
    x_t = method.diffusion.q_sample(x_0, 3, generator=generator)
    for j in range(D):
        seen = np.bincount(x_t[:, j], minlength=K)
        assert chi_square_p_value(seen, 20_000 * chain.product(0, 3)[x_0[0, j]]) > 1e-6


# ---- samplers ---------------------------------------------------------------------------------------------------

S, STEPS_OF_S = 3, 8  # categories and steps of a known distribution over three elements
NUM = 20_000  # samples
OBJECTS = list(itertools.product(range(S), repeat=D))
W = np.random.default_rng(1).dirichlet(np.full(S**D, 0.4))


def small(kind, **options):
    """A method on three categories, its chain, and the exact network of W in the way that it reads its output."""
    noise = usd3.Absorbing(S + 1) if "absorbing" in kind else usd3.Uniform(S)
    own = {} if "closed" in kind else {"transitions": kind}
    if kind == "gaussian":
        own["betas"] = (0.5, 4.0)
    method = D3PM(usd3.Diffusion(noise, usd3.Cosine(), STEPS_OF_S), **own, **options)
    k = noise.num_classes
    twin = Transitions.named("uniform" if k == S else "absorbing", usd3.Diffusion(noise, usd3.Cosine(), STEPS_OF_S))
    chain = Chain(method.diffusion.transitions.single if own else twin.single)
    return method, chain, exact_network(chain, k, method.reads == "hollow")


def exact_network(chain, k, hollow):
    states = list(itertools.product(range(k), repeat=D))
    index = torch.tensor([[k**2, k, 1]])

    @functools.cache
    def table(t):
        reach = chain.product(0, t)
        f = np.zeros((k**D, D, k))
        for w, clean in zip(W, OBJECTS):
            q = functools.reduce(np.kron, (reach[c] for c in clean))
            for j, c in enumerate(clean):
                f[:, j, c] += w * q
        f = np.where(f.sum(-1, keepdims=True) > 0, f, 1)
        if hollow:  # posterior / q(x_t | .)
            own = np.array([[reach[:, v] for v in state] for state in states])
            f = np.where(own > 0, f / np.where(own > 0, own, 1), 0)
        return torch.from_numpy(np.log(np.maximum(f, 1e-300)))

    return lambda x, t: table(round(float(t[0]) * STEPS_OF_S))[(x * index).sum(1)]


def propagated(chain, k, times, last):
    """The distribution over objects after ancestral steps with the exact network, all by matrices."""
    network, states = exact_network(chain, k, False), list(itertools.product(range(k), repeat=D))
    start = np.full(k, 1 / k) if k == S else np.eye(k)[-1]
    p, x = functools.reduce(np.kron, [start] * D), torch.tensor(states)
    for t, s in itertools.pairwise(times):
        f = network(x, torch.full((len(x),), t / STEPS_OF_S)).exp().numpy()
        f = f / f.sum(-1, keepdims=True)
        if s == 0 and last == "argmax":
            step = np.eye(k)[f.argmax(-1)]
        else:
            step = np.array(
                [[chain.marginal(f[i, j], v, t, s) for j, v in enumerate(state)] for i, state in enumerate(states)]
            )
        p = p @ oracle.product_step(step)
    return p


@pytest.mark.parametrize("last", ["argmax", "draw"])
@pytest.mark.parametrize("posterior", ["marginal", "joint"])
@pytest.mark.parametrize("kind", ["closed uniform", "closed absorbing", "uniform", "absorbing", "gaussian"])
@pytest.mark.parametrize("num_steps", [STEPS_OF_S, 3])
def test_samples_follow_the_matrices(kind, posterior, last, num_steps):
    """The sampler's draws against exact propagation, all steps and gaps; false alarm below 1e-6 each."""
    method, chain, network = small(kind, posterior=posterior, last=last)
    k, times = method.diffusion.noise.num_classes, []

    def model(x, t):
        times.append(round(float(t[0]) * STEPS_OF_S))
        return network(x, t)

    x = method.sample(model, (NUM, D), num_steps, generator=torch.Generator().manual_seed(1))
    assert times == ([8, 7, 6, 5, 4, 3, 2, 1] if num_steps == STEPS_OF_S else [8, 5, 3])
    seen = np.bincount((x * torch.tensor([k**2, k, 1])).sum(1), minlength=k**D)
    wanted = propagated(chain, k, [*times, 0], last)
    assert chi_square_p_value(seen, NUM * np.where(wanted < 1e-12, 0, wanted)) > 1e-6


@pytest.mark.parametrize("kind", ["uniform", "gaussian", "absorbing"])
def test_more_steps_come_closer_to_the_data(kind):
    """Elements are drawn independently within a step; argmax at the end of all steps costs little as t = 1 is clean."""
    method, chain, _ = small(kind)
    k = method.diffusion.noise.num_classes
    w = np.zeros(k**D)
    for p, clean in zip(W, OBJECTS):
        w[clean[0] * k**2 + clean[1] * k + clean[2]] = p
    tv = {}
    for n, last in itertools.product((1, 2, STEPS_OF_S), ("draw", "argmax")):
        times = [round(v * STEPS_OF_S) for v in method.diffusion.grid(n)]
        tv[n, last] = oracle.total_variation(propagated(chain, k, times, last), w)
    assert tv[STEPS_OF_S, "draw"] < tv[2, "draw"] < tv[1, "draw"]
    assert tv[STEPS_OF_S, "draw"] < 0.5 * tv[1, "draw"]
    assert tv[1, "argmax"] > tv[1, "draw"]  # one step by argmax is one object


@pytest.mark.parametrize("posterior", ["marginal", "joint"])
@pytest.mark.parametrize("name", OPTIONS)
def test_given_and_padded_elements_are_kept(name, posterior, generator):
    method, _ = make(name, posterior=posterior)
    tokens = some_data(method.diffusion.noise, 6)
    given, pad = torch.tensor([True, False, False]), torch.tensor([False, False, True])
    network = Network()
    model = lambda x, t, pad: network(x, t)
    x = method.sample(model, (6, D), 5, given=given, given_tokens=tokens, pad=pad, generator=generator)
    assert torch.equal(x[:, [0, 2]], tokens[:, [0, 2]])
    assert set(x.flatten().tolist()) <= set(data(method.diffusion.noise))
    assert method.sample(lambda x, t: torch.zeros(*x.shape, K), (2, 1, 3, 1), 4).shape == (2, 1, 3, 1)
    assert method.sample(lambda x, t: torch.zeros(*x.shape, K), (0, 3), 4).shape == (0, 3)


# ---- use --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("posterior", ["marginal", "joint"])
@pytest.mark.parametrize("name", ["closed uniform", "gaussian", "absorbing"])
def test_a_table_learns(name, posterior, generator):
    """Three elements that are always equal; the loss over the same draws."""
    method, _ = make(name, posterior=posterior)
    method.diffusion.validate = False
    choice = torch.tensor(data(method.diffusion.noise))
    x_0 = choice[torch.arange(96) % len(choice)][:, None].expand(96, D)
    table = torch.zeros(T + 1, K, K, K, requires_grad=True)  # sees the element and the next one
    model = lambda x, t: table[(t * T).round().long()[:, None], x, x.roll(1, 1)]
    optimizer = torch.optim.Adam([table], 0.2)
    same = lambda: torch.Generator().manual_seed(0)
    at = lambda: float(method.loss(model, x_0, generator=same(), stratified=True).loss.detach())
    before = at()
    for _ in range(50):
        optimizer.zero_grad()
        method.loss(model, x_0, generator=generator, stratified=True).loss.backward()
        optimizer.step()
    assert at() < 0.85 * before


def test_the_pipeline_trains_and_draws_with_a_joint_stack(tmp_path):
    recipe = tiny_recipe(tmp_path)
    recipe.method = MethodConfig("d3pm", {"posterior": "joint", "transitions": "gaussian", "betas": [0.5, 1.0]})
    with pytest.raises(ValueError, match=r"model\.hollow = True: expected false for d3pm"):
        pipeline_for(recipe, recipe.data.load())
    recipe.model.hollow = False
    pipeline = pipeline_for(recipe, recipe.data.load())
    tokens = torch.arange(16).reshape(2, 8) % 5
    given = torch.arange(8) < 2
    drawn = pipeline.sample(tokens=tokens, given=given, num_steps=4, seed=1)
    assert torch.equal(drawn[:, :2], tokens[:, :2])
    assert pipeline.bound(tokens, given=given, num_samples=3).isfinite().all()
    pipeline.diffusion.validate = False
    assert not pipeline.method.diffusion.validate


def test_it_can_be_pickled():
    method, _ = make("gaussian", posterior="joint")
    x_0, draws = some_data(method.diffusion.noise, 4), lambda: torch.Generator().manual_seed(0)
    found = method.loss(Network(), x_0, generator=draws()).loss
    again = pickle.loads(pickle.dumps(method))
    assert again.diffusion.transitions._copies == {}
    assert torch.equal(again.loss(Network(), x_0, generator=draws()).loss, found)


def test_what_it_reads():
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), T)
    assert D3PM(d).reads == "full"
    assert D3PM(d, "joint").reads == "hollow"
    assert D3PM.reads == "full"


def test_a_chain_that_does_not_end_at_the_noise_warns():
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), T)
    with pytest.raises(ValueError, match=r"betas = .*: expected larger ones, .* the chain ends 0.75"):
        D3PM(d, transitions="gaussian", betas=(1e-4, 0.02))
    with pytest.warns(UserWarning, match=r"does not end at Uniform\(4\): .* away in total variation"):
        D3PM(d, transitions=random_stack()[0])
    absorbing = usd3.Diffusion(usd3.Absorbing(K), usd3.Cosine(), T)
    with pytest.warns(UserWarning, match="does not end"):
        method = D3PM(absorbing, transitions=np.broadcast_to(np.eye(K), (T, K, K)).copy())
    with pytest.raises(ValueError, match="prior contains inf: expected finite numbers"):
        method.bound(Network(), torch.zeros(1, D, dtype=torch.long))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"posterior": "both"}, "posterior = both: expected marginal or joint"),
        ({"last": "mode"}, "last = mode: expected argmax or draw"),
        ({"ce": -1}, "ce = -1: expected a number in"),
        ({"transitions": "circle"}, "transitions = circle: expected one of uniform, absorbing, gaussian, banded"),
        ({"transitions": "absorbing"}, "transitions = absorbing: expected absorbing noise"),
        ({"transitions": "banded"}, "width = None: expected an integer >= 1 for banded"),
        ({"transitions": "gaussian", "width": 2}, "width = 2: expected an integer >= 1 for banded, and None for"),
        ({"transitions": "uniform", "betas": (0.1, 2)}, r"betas = \(0.1, 2\): expected two numbers in \(0, 1\]"),
        ({"transitions": "gaussian", "betas": (0, 2)}, r"betas = \(0, 2\): expected two numbers in \(0, 1e\+06\]"),
        ({"betas": (0.1, 0.2)}, "betas = .*: expected None unless transitions is a name"),
        ({"width": 2}, "width = 2: expected None unless transitions is a name"),
        ({"transitions": torch.eye(K)}, r"transitions.shape = \(4, 4\): expected \(T, K, K\)"),
        ({"transitions": torch.ones(T, K, K)}, r"transitions.sum\(-1\) = 4.0: expected 1 within 1e-4"),
        ({"transitions": 2 * torch.eye(K).expand(T, K, K) - 1 / K}, "expected no negative"),
        ({"transitions": torch.full((T, 3, 3), 1 / 3)}, r"transitions \(T, K\) = \(12, 3\): expected T = 12 and K = 4"),
        ({"transitions": torch.full((2, K, K), 1 / K)}, r"\(2, 4\): expected T = 12 and K = 4, as the diffusion has"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        D3PM(usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), T), **options)


def test_what_has_no_place_is_refused():
    with pytest.raises(ValueError, match="expected discrete time for D3PM"):
        D3PM(usd3.Diffusion(usd3.Uniform(K), usd3.Cosine()))
    with pytest.raises(TypeError, match="betas is a str"):
        D3PM(usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), T), transitions="gaussian", betas="ab")
    with pytest.raises(ValueError, match="transitions = gaussian: expected uniform noise"):
        D3PM(usd3.Diffusion(usd3.Absorbing(K), usd3.Cosine(), T), transitions="gaussian")
    per_element = usd3.Marginal(np.full((D, K), 1 / K))
    with pytest.raises(ValueError, match=r"noise.probs.shape = \(3, 4\): expected \(K,\)"):
        D3PM(usd3.Diffusion(per_element, usd3.Cosine(), T), transitions=torch.full((T, K, K), 1 / K))
    method, _ = make("gaussian")
    with pytest.raises(ValueError, match=r"corrector = .*: expected None for D3PM"):
        method.sample(Network(), (2, D), 3, usd3.Corrector())
    with pytest.raises(ValueError, match="sampler = exact: expected one of ancestral"):
        method.sample(Network(), (2, D), 3, sampler="exact")
    x = torch.zeros(2, D, dtype=torch.long)
    for call in (
        lambda: method.diffusion.q_probs(x, 2),
        lambda: method.diffusion.posterior(x, x, 3, 2),
        lambda: method.diffusion.backward(torch.zeros(2, D, K), x, 3, 2),
        lambda: method.diffusion.draw(torch.zeros(2, D, K), x, 3, 2),
        lambda: method.diffusion.rate(torch.zeros(2, D, K), x, 3),
    ):
        with pytest.raises(NotImplementedError, match="has no closed form"):
            call()


@pytest.mark.parametrize("posterior", ["marginal", "joint"])
@pytest.mark.parametrize("name", ["closed uniform", "gaussian"])
def test_logits_that_are_no_numbers_are_refused(name, posterior):
    method, _ = make(name, posterior=posterior)
    bad = lambda x, t: torch.full((*x.shape, K), torch.nan)
    with pytest.raises(ValueError, match="logits contains nan"):
        method.loss(bad, torch.zeros(2, D, dtype=torch.long))
    for num_steps in (1, 3):
        with pytest.raises(ValueError, match="logits contains nan"):
            method.sample(bad, (2, D), num_steps)


def test_the_recipe_is_the_papers():
    import yaml

    from usd3.recipes import find_recipe

    values = yaml.safe_load(find_recipe("d3pm").read_text())
    diffusion = DiffusionConfig(**values["diffusion"]).build(K)
    method = MethodConfig(**values["method"]).build(diffusion)
    assert isinstance(method, D3PM)
    assert diffusion.num_steps == 1000
    assert (method.posterior, method.ce) == ("marginal", 0.001)


@pytest.mark.parametrize("kind", ["closed uniform", "uniform"])
@pytest.mark.parametrize("last", ["argmax", "draw"])
def test_bad_logits_are_refused_in_the_last_step_where_they_are_read(kind, last):
    method, _ = make(kind, last=last)
    logits, given = torch.zeros(1, D, K), torch.tensor([False, True, False])

    def sample(bad, **masks):
        spoilt = logits.clone()
        spoilt[0, 1, 2] = bad
        network = lambda x, t: spoilt if float(t[0]) * T < 1.5 else logits
        return method.sample(network, (1, D), T, generator=torch.Generator().manual_seed(0), **masks)

    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match=r"logits contains (nan|inf): expected finite numbers"):
            sample(bad)
        fixed = {"given": given, "given_tokens": torch.ones(1, D, dtype=torch.long)}
        assert torch.equal(sample(bad, **fixed), sample(0.0, **fixed))


@pytest.mark.filterwarnings("ignore:Transitions.* does not end at")
def test_top_k_takes_the_likeliest_of_the_categories_that_can_lead_to_x():
    """A band of width 1 moves by one category in a step, so the likeliest of all, 0, cannot lead to 2 or more."""
    d, last = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), T), []
    method = D3PM(d, transitions="banded", betas=[0.9, 1.0], width=1, last="draw")
    model = lambda x, t: (-3.0 * torch.arange(K)) * (t[:, None, None] < 1.5 / T) + torch.zeros(*x.shape, K)
    method.sample(model, (300, D), T, top_k=1, generator=torch.Generator().manual_seed(0), callback=last.append)
    x_1, x_0 = last[-1].x_t, last[-1].x_s
    assert (x_1 >= 2).sum() > 50
    assert torch.equal(x_0, (x_1 - 1).clamp(min=0))
