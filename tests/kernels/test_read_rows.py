"""A projection forms the logits of the rows that have a loss, and of no others."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import usd3
from support.kernel_cases import WIDE
from support.problems import NOISES, WITH_SUPPORT, device_of
from usd3.kernels import NoiseTables, chunked_projection
from usd3.kernels.read_rows import rows_read

B, D, H, K = 4, 4, 5, 9


class Multiplied(TorchDispatchMode):
    """Counts the rows of logits (n, K) that matrix products form."""

    rows = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if function.overloadpacket in (torch.ops.aten.addmm, torch.ops.aten.mm) and out.shape[1:] == (K,):
            self.rows += len(out)
        return out


def inputs_on(device):
    generator = torch.Generator().manual_seed(5)
    sizes = (B, D, H), (K, H), (K,)
    draw = lambda size: torch.randn(*size, generator=generator, dtype=torch.float64)
    return [draw(size).to(device).requires_grad_() for size in sizes]


@pytest.fixture(params=[3, 1000])
def rows_at_once(request, monkeypatch):
    for device in ("cpu", "cuda"):
        monkeypatch.setitem(chunked_projection.CELLS_AT_ONCE, device, request.param * K)


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("num_steps", [10, None])
@pytest.mark.parametrize("objective", ["usd3", "usd3*", "ce"])
@pytest.mark.usefixtures("rows_at_once")
def test_rows_left_out_change_no_number(name, num_steps, objective):
    """Beside all logits and the same masks; gradients of rows that are left out are 0."""
    d = usd3.Diffusion(WIDE[name](K), usd3.Cosine(), num_steps, impl="chunked")
    x_0 = torch.zeros(B, D, dtype=torch.long)
    given = torch.tensor([True, False, False, False])
    pad = torch.zeros(B, D, dtype=torch.bool)
    pad[2, 1:] = True
    inputs = inputs_on("cpu")
    at_x = torch.linspace(-1, 1, B * D, dtype=torch.float64).reshape(B, D)

    def lazy(x, t, **masks):
        return usd3.Projection(*inputs, at_x=at_x)

    def plain(x, t, **masks):
        return F.linear(*inputs).scatter_add(-1, x[..., None], at_x[..., None])

    for masks in ({}, {"given": given, "pad": pad}):
        seen = []
        for model in (lazy, plain):
            out = d.loss(model, x_0, objective, generator=torch.Generator().manual_seed(6), **masks)
            seen.append([out.loss.detach(), out.vlb, out.ce, *torch.autograd.grad(out.loss, inputs)])
        for a, b in zip(*seen):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [*NOISES, *WITH_SUPPORT])
def test_a_part_of_a_problem_has_its_own_rows_of_every_table(fused, name):
    """The terms of some rows, in any order, are those that they have among all."""
    from usd3.kernels.loss import loss_rows

    noise = (NOISES | WITH_SUPPORT)[name][0]()
    k, (b, n), device = noise.num_classes, (2, 3), device_of(fused)
    d = usd3.Diffusion(noise, usd3.Cosine(), 10, impl=fused)
    x_0 = torch.full((b, n), 2, device=device) if name not in WITH_SUPPORT else torch.tensor([[2, 3, 2]] * b).to(device)
    time = torch.tensor([0.3, 0.8], dtype=torch.float64, device=device)
    x_t = noise.sample(x_0, torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(b * n, k, generator=generator, dtype=torch.float64).to(device)
    p = d.problem(x_t, x_0, d.coefficients(time), True)
    weights = torch.rand(3, b, generator=generator, dtype=torch.float64).to(device)
    whole, gradient = loss_rows(logits, p, weights, True, slope := torch.empty_like(logits), fused), slope
    for index in (torch.tensor([4, 1, 5]), torch.tensor([2])):
        index = index.to(device)
        part, part_weights = p.part(index, weights)
        slope = torch.empty(len(index), k, dtype=torch.float64, device=device)
        terms = loss_rows(logits[index], part, part_weights, True, slope, fused)
        torch.testing.assert_close(terms, whole[:, index], rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(slope, gradient[index], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["absorbing", "absorbing_support"])
def test_only_the_logits_of_masked_elements_are_formed(name):
    d, x_0 = usd3.Diffusion(WIDE[name](K), usd3.Cosine(), impl="chunked"), torch.zeros(B, D, dtype=torch.long)
    x_t = torch.where(torch.rand(B, D, generator=torch.Generator().manual_seed(7)) < 0.5, d.noise.mask, x_0)
    given = torch.tensor([False, False, True, False])
    x_t = torch.where(given, x_0, x_t)
    masked = int((x_t == d.noise.mask).sum())
    assert 0 < masked < B * D
    with Multiplied() as products:
        d.loss_from_logits(usd3.Projection(*inputs_on("cpu")), x_t, x_0, 0.5, given=given)
    assert products.rows == masked


def test_without_a_masked_element_the_loss_and_the_gradients_are_zero():
    d, x = usd3.Diffusion(usd3.Absorbing(K), usd3.Cosine(), impl="chunked"), torch.zeros(B, D, dtype=torch.long)
    inputs = inputs_on("cpu")
    out = d.loss_from_logits(usd3.Projection(*inputs), x, x, 0.5)
    assert float(out.loss.detach()) == float(out.vlb) == float(out.ce) == 0
    assert all((gradient == 0).all() for gradient in torch.autograd.grad(out.loss, inputs))


def test_mixed_noise_needs_the_logits_of_every_free_element():
    """An element that is not masked may be noise all the same."""
    d, x = usd3.Diffusion(usd3.Mixed(K, 0.3), usd3.Cosine(), impl="chunked"), torch.zeros(B, D, dtype=torch.long)
    with Multiplied() as products:
        d.loss_from_logits(usd3.Projection(*inputs_on("cpu")), x, x, 0.5)
    assert products.rows == B * D


def test_rows_are_known_where_the_mask_or_the_free_elements_say_them():
    x, free = torch.tensor([[8, 1], [8, 8]]), torch.tensor([[True, True], [True, False]])
    absorbing, plain = NoiseTables(K, 8, True), NoiseTables(K)
    per_element = NoiseTables(K, m=torch.full((2, K), 1 / K))
    assert rows_read(x, absorbing, None).index().tolist() == [0, 2, 3]
    assert rows_read(x, absorbing, free).index().tolist() == [0, 2]
    assert rows_read(x, plain, free).index().tolist() == [0, 1, 2]
    assert rows_read(x, plain, None) is None
    assert rows_read(x, per_element, free) is None


@pytest.mark.parametrize("name", ["absorbing", "mixed"])
def test_rows_are_counted_before_a_network_that_projects_is_called(name, monkeypatch):
    """From the second loss on; a GPU then counts long before the logits are formed. The numbers are the same."""
    d, x_0, inputs, order = usd3.Diffusion(WIDE[name](K), usd3.Cosine()), torch.zeros(B, D).long(), inputs_on("cpu"), []
    given = torch.tensor([False, True, False, False])

    def model(x, t, given=None):
        order.append("network")
        return usd3.Projection(*inputs)

    def counted(*args):
        order.append("count")
        return rows_read(*args)

    monkeypatch.setattr("usd3.core.coefficients.rows_read", counted)
    losses = [d.loss(model, x_0, given=given, generator=torch.Generator().manual_seed(0)).loss.item() for _ in range(2)]
    assert order == ["network", "count", "count", "network"]
    assert losses[0] == losses[1]


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # as `usd3._internal.compile` does
def test_a_compiled_loss_counts_and_leaves_out_the_same_rows():
    """Training compiles the whole loss. The second call is another graph: by then the model is known to project."""
    d, x_0, inputs = (
        usd3.Diffusion(usd3.Absorbing(K), usd3.Cosine(), validate=False),
        torch.zeros(B, D).long(),
        inputs_on("cpu"),
    )

    def loss():
        return d.loss(lambda x, t: usd3.Projection(*inputs), x_0).loss

    torch._dynamo.reset()
    for function in (loss, torch.compile(loss, backend="eager")):
        seen = []
        for _ in range(2):
            torch.manual_seed(9)
            out = function()
            seen.append([out.detach(), *torch.autograd.grad(out, inputs)])
        if function is loss:
            expected = seen[0]
        for numbers in seen:
            torch.testing.assert_close(numbers, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.gpu
def test_a_loss_waits_neither_for_the_rows_nor_for_the_network():
    d = usd3.Diffusion(usd3.Absorbing(K), usd3.Cosine(), validate=False)
    inputs, x_0 = inputs_on("cuda"), torch.zeros(B, D, dtype=torch.long, device="cuda")
    for round in range(3):  # the first calls compile kernels and fill tables
        torch.cuda.set_sync_debug_mode("error" if round == 2 else "default")
        try:
            d.loss(lambda x, t: usd3.Projection(*inputs), x_0).loss.backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
