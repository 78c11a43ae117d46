"""Losses and gradients of every implementation, against the matrices and against the eager code in float64."""

import numpy as np
import pytest
import torch

import usd3
from support import oracle
from support.kernel_cases import WIDE
from support.problems import CPP, TRITON, all_pairs, data_like, device_of, retile, some, supported
from support.toys import ALPHA, random_logits, rows_of
from usd3.kernels.loss import loss_rows

T = 10
WEIGHTS = (0.5, 0.2, 0.3)  # of vlb, ce and l2
OBJECTIVES = ("usd3", "usd3*", "vlb", "ce", usd3.Objective(vlb=0.5, ce=0.2, l2=0.3))


def found(d, x_0, x_t, logits, t):
    """vlb, ce and l2 (None for rates) by loss_terms, as NumPy arrays."""
    device = device_of(d.impl)
    terms = d.loss_terms(logits.to(device), x_t.to(device), x_0.to(device), t)
    return [None if term is None else term.cpu().numpy() for term in (terms.vlb, terms.ce, terms.l2)]


# ---- against the matrices ---------------------------------------------------------------------------------------


def expected_l2(f, x, y, a_s, a_t, m):
    one_hot = np.eye(len(m))
    phi = (1 - a_s) * (a_t / a_s) / (a_t + (1 - a_t) * m[x] + 1e-300)
    gap = f - one_hot[y] + min(1, phi) * (f[x] - (x == y)) * (one_hot[x] - m)
    return gap @ gap


@pytest.mark.parametrize("t", [1, 5, 10])
def test_the_terms_of_a_step_are_those_of_the_matrices(noise, impl, t):
    noise, ms = noise
    x_0, x_t = some(impl, 5, *all_pairs(noise, ms), first=t)
    logits = random_logits(x_t, scale=2.0)
    f = supported(oracle.softmax(logits.numpy()), x_t, noise, ms)
    vlb, ce, l2 = found(usd3.Diffusion(noise, usd3.Cosine(), T, impl=impl), x_0, x_t, logits, t)
    a_s, a_t = ALPHA((t - 1) / T), ALPHA(t / T)
    seen = rows_of(lambda i, e: oracle.transition(a_t, ms[e])[x_0[i, e], x_t[i, e]] > 1e-14, x_t)
    for i, e in zip(*np.nonzero(seen)):
        x, y, m = int(x_t[i, e]), int(x_0[i, e]), ms[e]
        q, p = oracle.posterior(y, x, a_s, a_t, m), oracle.backward(f[i, e], x, a_s, a_t, m)
        assert vlb[i, e] == pytest.approx(oracle.kl(q, p), rel=1e-9, abs=1e-12)
        assert ce[i, e] == pytest.approx(-np.log(f[i, e, y]), rel=1e-9, abs=1e-12)
        assert l2[i, e] == pytest.approx(expected_l2(f[i, e], x, y, a_s, a_t, m), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("t", [0.001, 0.5, 0.99])
def test_the_terms_of_a_rate_are_those_of_the_reversed_chain(noise, impl, t):
    noise, ms = noise
    x_0, x_t = some(impl, 5, *all_pairs(noise, ms), first=round(7 * t))
    logits = random_logits(x_t, scale=2.0)
    f = supported(oracle.softmax(logits.numpy()), x_t, noise, ms)
    d = usd3.Diffusion(noise, usd3.Cosine(), impl=impl)
    vlb, ce, l2 = found(d, x_0, x_t, logits, t)
    beta = float(d.schedule.beta(t))
    expected = rows_of(
        lambda i, e: oracle.continuous_vlb(f[i, e], int(x_t[i, e]), int(x_0[i, e]), ALPHA(t), beta, ms[e]), x_t
    )
    np.testing.assert_allclose(vlb, expected, rtol=1e-8, atol=1e-12)
    expected = -np.log(np.take_along_axis(f, x_0.numpy()[..., None], -1)[..., 0])
    np.testing.assert_allclose(ce, expected, rtol=1e-9, atol=1e-12)
    assert l2 is None


# ---- against the eager code in float64 --------------------------------------------------------------------------


@pytest.mark.parametrize(("num_steps", "times"), [(T, (1, 7)), (None, (0.02, 0.8))])
def test_gradients_of_each_term_are_those_of_autograd(noise, fused, num_steps, times):
    noise, ms = noise
    x_0, x_t = some(fused, 7, *all_pairs(noise, ms))
    t = torch.tensor(times).repeat(len(x_t) // 2 + 1)[: len(x_t)]  # some objects are early, some late
    leaf, device = random_logits(x_t, scale=2.0).requires_grad_(), device_of(fused)
    terms = usd3.Diffusion(noise, usd3.Cosine(), num_steps, impl=fused).loss_terms(
        leaf.to(device), x_t.to(device), x_0.to(device), t
    )
    eager = usd3.Diffusion(noise, usd3.Cosine(), num_steps, impl="eager").loss_terms(leaf, x_t, x_0, t)
    upstream = torch.randn(x_t.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for name in ("vlb", "ce") + (("l2",) if num_steps else ()):
        a, b = (
            torch.autograd.grad(getattr(v, name), leaf, upstream.to(getattr(v, name).device), retain_graph=True)[0]
            for v in (terms, eager)
        )
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
@pytest.mark.parametrize("num_steps", [T, None])
def test_a_loss_and_its_gradient_are_those_of_the_eager_code(fused, objective, num_steps, generator):
    """Objects at different times, elements with different noise."""
    if num_steps is None and isinstance(objective, usd3.Objective):
        objective = usd3.Objective(vlb=0.5, ce=0.2, max_beta=2.0)
    B, D, k = 5, 3, 6
    noise = usd3.Marginal(np.random.default_rng(0).dirichlet(np.ones(k), size=D))
    x_0, x_t = torch.randint(k, (2, B, D), generator=generator)
    t = torch.tensor([1, 2, 5, 9, 10]) if num_steps else torch.tensor([0.01, 0.2, 0.5, 0.9, 0.999])
    results = []
    for impl in ("eager", fused):
        leaf, device = random_wide(B, D, k).requires_grad_(), device_of(impl)
        d = usd3.Diffusion(noise, usd3.Cosine(), num_steps, impl=impl)
        out = d.loss_from_logits(leaf.to(device), x_t.to(device), x_0.to(device), t, objective)
        out.loss.backward()
        results.append([value.cpu() for value in (out.loss.detach(), out.vlb, out.ce, leaf.grad)])
    for a, b in zip(*results):
        torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-11)


def random_wide(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5), dtype=dtype)


# ---- low precision ----------------------------------------------------------------------------------------------

TOLERANCE = 32 * torch.finfo(torch.float32).eps
"""Relative to a term, or to the scale of a row's gradient. A sum over K cells in float32 and its five factors may be
rounded some dozen times more than the eager code rounds; 4e-6 is far below what any training can see."""

CUT = torch.finfo(torch.bfloat16).eps
"""Triton's interpreter cuts float32 off to bfloat16, where a GPU rounds: up to a whole last digit is lost."""

SIZES = [(torch.float32, k) for k in (2, 3, 7, 129, 300)] + [(torch.bfloat16, 3), (torch.bfloat16, 129)]
SIZES += [(torch.float16, 7), (torch.float16, 300)]


def extremes(noise, num_steps, dtype, sharpness=(0.01, 1.0, 12.0)):
    """Objects near t = 0, in the middle and near t = 1, each with flat, plain and sharp logits, rounded to dtype.

    Elements 0 and 1 are noised as they come, 2 and 3 surely; the sharp logits lean to x_0, those of 1 and 3 to x_t.
    """
    generator, k = torch.Generator().manual_seed(3), noise.num_classes
    d = usd3.Diffusion(noise, usd3.Cosine(), num_steps, impl="eager")
    times = [1, 2, num_steps // 2, num_steps] if num_steps else [1e-3, 0.3, 1 - 1e-4, 1 - 1e-6]
    B, D = len(times) * len(sharpness), 4
    t = torch.tensor(times).repeat_interleave(len(sharpness))
    data = torch.tensor([z for z in range(k) if z != noise.mask])
    x_0 = data_like(noise, data[torch.randint(len(data), (B, D), generator=generator)])
    x_t = d.q_sample(x_0, t, generator=generator)
    x_t[:, 2:] = noise.sample(x_0, generator)[:, 2:]
    scale = torch.tensor(sharpness).repeat(len(times))[:, None, None]
    logits = scale * torch.randn(B, D, k, generator=generator)
    likely = torch.where(torch.arange(D) % 2 == 0, x_0, x_t)
    logits = logits.scatter_add(-1, likely[..., None], scale.expand(B, D, 1))
    return d, x_0, x_t, t, logits.to(dtype)


def rows_by_eager(d, x_0, x_t, t, logits):
    """Terms (n, R) and the gradient of their weighted sum, by the eager code in the precision of the logits."""
    leaf = logits.clone().requires_grad_()
    terms = d.loss_terms(leaf, x_t, x_0, t)
    found = [terms.vlb, terms.ce] + ([] if d.continuous else [terms.l2])
    sum(w * term.double() for w, term in zip(WEIGHTS, found)).sum().backward()
    return torch.stack([term.detach().double().flatten() for term in found]), leaf.grad.double().flatten(0, -2)


def rows_by_kernel(d, x_0, x_t, t, logits, impl):
    device = device_of(impl)
    x_0, x_t, t, logits = (v.to(device) for v in (x_0, x_t, t, logits))
    time = t.double() / (d.num_steps or 1)
    p = d.problem(x_t, x_0, d.coefficients(time), d.num_steps is not None)
    weights = torch.tensor(WEIGHTS, dtype=torch.float64, device=device)[:, None].repeat(1, len(x_0))
    rows = logits.flatten(0, -2)
    gradient = torch.full_like(rows, torch.nan)
    terms = loss_rows(rows, p, weights, not d.continuous, gradient, impl)
    return terms[: 2 if d.continuous else 3].double().cpu(), gradient.double().cpu()


def errors(result, exact, scale):
    """Of the terms, each relative to itself, and of the gradient, relative to the scale of its row."""
    of_terms = ((result[0] - exact[0]).abs() / exact[0].abs().clamp(min=1e-9)).amax(1)
    return torch.cat([of_terms, ((result[1] - exact[1]).abs().amax(1) / scale).max()[None]])


def scale_of(gradient, d, x_0, x_t, t, logits):
    """The largest gradient of a row, or the largest of the numbers of which it is the difference.

    A model that is nearly sure of a wrong category has gradients far below A f: f_z (A s_z - E) cancels.
    """
    f = logits.double().softmax(-1).scatter(-1, torch.stack([x_0, x_t], -1), 0.0)
    A = d.transition(t.double() / (d.num_steps or 1), None, x_t)[1].to_data
    floor = 1e-4 if logits.dtype == torch.float16 else 1e-12  # float16 has no normal numbers below 6e-5
    return (gradient.abs().amax(1) + WEIGHTS[0] * (A * f.amax(-1)).flatten()).clamp(min=floor)


def assert_no_worse_than_eager(case, impl):
    exact = rows_by_eager(*case[:-1], case[-1].double())
    scale, dtype = scale_of(exact[1], *case), case[-1].dtype
    allowed = errors(rows_by_eager(*case), exact, scale) + TOLERANCE
    if impl == "triton" and dtype == torch.bfloat16 and not torch.cuda.is_available():
        allowed[-1] += CUT
    seen = errors(rows_by_kernel(*case, impl), exact, scale)
    assert (seen <= allowed).all(), f"{seen.tolist()} > {allowed.tolist()}"


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize(("dtype", "k"), SIZES, ids=lambda v: str(v).removeprefix("torch."))
@pytest.mark.parametrize("num_steps", [1000, None])
def test_low_precision_is_no_worse_than_in_the_eager_code(fused, name, dtype, k, num_steps):
    d, *rest = extremes(WIDE[name](k), num_steps, dtype)
    assert_no_worse_than_eager((d, *some(fused, 7, *rest, first=k)), fused)


@pytest.mark.parametrize("num_steps", [1000, None])
def test_no_digits_are_lost_where_a_model_is_wrongly_sure_that_nothing_happened(fused, num_steps):
    """x is rare as noise, x_0 another, f_x nearly 1: h is far below k, and 1 + (h - k)/k would cancel."""
    k, generator = 50, torch.Generator().manual_seed(0)
    noise = usd3.Marginal([1e-9] + [(1 - 1e-9) / (k - 1)] * (k - 1))
    d = usd3.Diffusion(noise, usd3.Cosine(), num_steps, impl="eager")
    x_0, x_t = torch.randint(1, k, (4, 3), generator=generator), torch.zeros(4, 3, dtype=torch.long)
    logits = torch.randn(4, 3, k, generator=generator)
    logits[..., 0] += torch.tensor([12.0, 16.0, 20.0])
    logits = logits.scatter_add(-1, x_0[..., None], torch.full((4, 3, 1), 5.0))
    t = torch.tensor([300, 600, 900, 990]) if num_steps else torch.tensor([0.3, 0.6, 0.9, 0.99])
    assert_no_worse_than_eager((d, x_0, x_t, t, logits), fused)


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("num_steps", [1000, None])
@pytest.mark.parametrize("impl", ["chunked", CPP])
def test_many_categories_on_a_cpu_are_no_worse_than_in_the_eager_code(impl, name, num_steps):
    assert_no_worse_than_eager(extremes(WIDE[name](5000), num_steps, torch.float32), impl)


# ---- tiles of the Triton kernel ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize(("num_steps", "block", "k"), [(1000, 16, 70), (None, 64, 129)])
@pytest.mark.parametrize("impl", [TRITON])
def test_rows_longer_than_a_block_have_the_losses_of_the_eager_code(impl, name, num_steps, block, k, monkeypatch):
    retile(monkeypatch, "triton_loss", BLOCK=block, LOOP=True)
    d, *rest = extremes(WIDE[name](k), num_steps, torch.float64, sharpness=(0.01, 6.0))
    x_0, x_t, t, logits = some(impl, 3, *rest)
    exact = rows_by_eager(d, x_0, x_t, t, logits)
    terms, gradient = rows_by_kernel(d, x_0, x_t, t, logits, impl)
    torch.testing.assert_close(terms, exact[0], rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(gradient, exact[1], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("k", [5, 20000])
@pytest.mark.parametrize("impl", [TRITON])
def test_the_tile_of_a_gpu_gives_the_losses_of_the_eager_code(impl, k):
    d, x_0, x_t, t, logits = extremes(usd3.Uniform(k), 1000, torch.float64, sharpness=(6.0,))
    case = d, x_0[1:3], x_t[1:3], t[1:3], logits[1:3]
    exact, kernel = rows_by_eager(*case), rows_by_kernel(*case, impl)
    torch.testing.assert_close(kernel[0], exact[0], rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(kernel[1], exact[1], rtol=1e-8, atol=1e-10)


# ---- finite differences -----------------------------------------------------------------------------------------


CHECKED = [(impl, objective) for impl in ("eager", "chunked") for objective in OBJECTIVES]
CHECKED += [
    pytest.param(*impl.values, objective, marks=impl.marks)
    for impl in (CPP, TRITON)
    for objective in (OBJECTIVES[0], OBJECTIVES[-1])
]
"""A kernel sees the weights of an objective alone, and whether it has l2: one objective without and one with it."""


@pytest.mark.parametrize(("impl", "objective"), CHECKED, ids=str)
@pytest.mark.parametrize(("k", "num_steps"), [(3, T), (5, T), (4, None)])
def test_the_gradient_of_the_loss_is_that_of_finite_differences(impl, objective, k, num_steps):
    if num_steps is None and isinstance(objective, usd3.Objective):
        objective = usd3.Objective(vlb=0.5, ce=0.2, max_beta=2.0)
    d, x_0, x_t, t, logits = small(impl, k, num_steps)
    loss = lambda v: d.loss_from_logits(v, x_t, x_0, t, objective).loss
    assert torch.autograd.gradcheck(loss, logits, fast_mode=impl == "triton")


@pytest.mark.parametrize(("k", "num_steps"), [(5, T), (3, None)])
def test_the_gradients_of_the_terms_are_those_of_finite_differences(impl, k, num_steps):
    d, x_0, x_t, t, logits = small(impl, k, num_steps)
    for name in ("vlb", "ce") + (("l2",) if num_steps else ()):
        term = lambda v, name=name: getattr(d.loss_terms(v, x_t, x_0, t), name)
        assert torch.autograd.gradcheck(term, logits, fast_mode=impl == "triton")


def small(impl, k, num_steps):
    """Two objects of two elements, one of them where x = x_0, with a noise that has a zero where K allows it."""
    device = device_of(impl)
    noise = usd3.Uniform(3) if k == 3 else usd3.Marginal([0.4, 0.3, 0.0] + [0.3 / (k - 3)] * (k - 3))
    d = usd3.Diffusion(noise, usd3.Cosine(), num_steps, impl=impl)
    x_0, x_t = torch.tensor([[0, 2], [1, 2]], device=device), torch.tensor([[0, 1], [0, 0]], device=device)
    t = torch.tensor([3, 8], device=device) if num_steps else torch.tensor([0.3, 0.8], device=device)
    return d, x_0, x_t, t, random_wide(2, 2, k).to(device).requires_grad_()


@pytest.mark.parametrize("num_steps", [None, 7])
def test_noise_that_float32_cannot_hold_is_no_nan(fused, num_steps):
    device = device_of(fused)
    x_0, x_t = (torch.arange(9, device=device)[None] % 3, torch.arange(9, device=device)[None] // 3)
    found = []
    for kind in ("eager", fused):
        d = usd3.Diffusion(usd3.Marginal([1.0, 1e-40, 1e-20]), usd3.Linear(), num_steps, impl=kind)
        logits = (20 * torch.randn(1, 9, 3, generator=torch.Generator().manual_seed(1))).to(device).requires_grad_()
        d.loss_from_logits(logits, x_t, x_0, 0.4 if num_steps is None else 3).loss.backward()
        found.append(logits.grad)
    assert found[0].isfinite().all()
    torch.testing.assert_close(*found)
