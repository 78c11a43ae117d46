"""The gradient that is formed in the forward pass, in the hands of autograd and of torch.compile."""

import pytest
import torch

import usd3
from support.kernel_cases import case
from support.problems import D, K, device_of
from usd3.kernels import chunked_projection
from usd3.kernels import loss as loss_module

NOISES = ["uniform", "absorbing", "per_element_zeros"]


def loss_of(d, logits, x_t, x_0, t, inplace=False, **masks):
    return d.loss_from_logits(logits, x_t, x_0, t, "usd3*", inplace=inplace, **masks).loss


# ---- in place ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_in_place_the_gradient_takes_the_memory_of_the_logits(fused, name, dtype):
    d, x_0, x_t, t, values = case(fused, name, B=2, dtype=dtype)
    given = torch.tensor([True, False, False], device=x_0.device)
    apart, inside = values.clone().requires_grad_(), values.clone().requires_grad_()
    expected = loss_of(d, apart, x_t, x_0, t, given=given)
    expected.backward()
    assert torch.equal(apart, values)
    logits = inside * 1  # as from a network
    seen = []
    logits.register_hook(lambda grad: seen.append(grad.data_ptr()))
    loss = loss_of(d, logits, x_t, x_0, t, inplace=True, given=given)
    loss.backward()
    assert torch.equal(loss, expected)
    assert torch.equal(inside.grad, apart.grad)
    assert seen == [logits.data_ptr()]
    assert torch.equal(logits, apart.grad)
    assert torch.equal(inside, values)


def test_in_place_gives_one_backward_pass(fused):
    d, x_0, x_t, t, values = case(fused, B=1)
    loss = loss_of(d, values.requires_grad_() * 1, x_t, x_0, t, inplace=True)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="the logits were overwritten by their gradient: expected one backward pass"):
        loss.backward()


def test_autograd_notices_who_needs_the_overwritten_logits(fused):
    d, x_0, x_t, t, values = case(fused, B=1)
    logits = values.requires_grad_().exp()  # its gradient is its result
    loss_of(d, logits, x_t, x_0, t).backward()
    logits = values.exp()
    loss = loss_of(d, logits, x_t, x_0, t, inplace=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_in_place_without_a_gradient_leaves_the_logits_alone(fused):
    d, x_0, x_t, t, values = case(fused, B=1)
    before, version = values.clone(), values._version
    loss_of(d, values, x_t, x_0, t, inplace=True)
    with torch.no_grad():
        loss_of(d, values.requires_grad_(), x_t, x_0, t, inplace=True)
    assert torch.equal(values, before)
    assert values._version == version


def test_no_gradient_is_formed_where_none_is_asked_for(fused, monkeypatch):
    d, x_0, x_t, t, values = case(fused, B=1)
    formed = []
    for module in (loss_module, chunked_projection):
        rows = module.loss_rows
        record = lambda *args, rows=rows: (formed.append(args[4] is not None), rows(*args))[1]
        monkeypatch.setattr(module, "loss_rows", record)
    weight = torch.eye(K, dtype=torch.float64, device=values.device).requires_grad_()
    for logits in (values.requires_grad_(), usd3.Projection(values, weight)):
        loss_of(d, logits, x_t, x_0, t)
        with torch.no_grad():
            loss_of(d, logits, x_t, x_0, t)
    assert formed == [True, False, True, False]


# ---- graphs -----------------------------------------------------------------------------------------------------


def test_a_second_backward_pass_gives_the_same_gradient(impl):
    d, x_0, x_t, t, values = case(impl, B=2)
    leaf = values.requires_grad_()
    loss = loss_of(d, leaf, x_t, x_0, t)
    first = torch.autograd.grad(loss, leaf, retain_graph=True)[0].clone()
    second = torch.autograd.grad(loss, leaf, retain_graph=True)[0]
    torch.testing.assert_close(second, first, rtol=0, atol=0)
    torch.testing.assert_close(torch.autograd.grad(loss, leaf)[0], first, rtol=0, atol=0)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("factor", [2.0, 0.25, 0.0, -3.0])
def test_what_comes_after_the_loss_scales_its_gradient(impl, inplace, factor):
    d, x_0, x_t, t, values = case(impl, B=1)
    leaf = values.clone().requires_grad_()
    loss_of(d, leaf, x_t, x_0, t).backward()
    plain, leaf.grad = leaf.grad, None
    (factor * loss_of(d, leaf * 1, x_t, x_0, t, inplace)).backward()
    torch.testing.assert_close(leaf.grad, factor * plain, rtol=1e-12, atol=0)


def test_gradients_of_parts_add_up(impl):
    """As accumulated over four micro-batches, and through a weight that they share."""
    d, x_0, x_t, t, values = case(impl)
    weight = torch.eye(K, dtype=torch.float64, device=values.device).requires_grad_()
    loss_of(d, values @ weight, x_t, x_0, t).backward()
    whole, weight.grad = weight.grad, None
    for i in range(4):
        part = slice(i, i + 1)
        (loss_of(d, values[part] @ weight, x_t[part], x_0[part], t[part]) / 4).backward()
    torch.testing.assert_close(weight.grad, whole, rtol=1e-10, atol=1e-14)


def test_only_the_loss_has_a_gradient(impl):
    d, x_0, x_t, t, values = case(impl)
    out = d.loss_from_logits(values.requires_grad_(), x_t, x_0, t)
    assert out.loss.requires_grad
    assert not out.vlb.requires_grad
    assert not out.ce.requires_grad


def test_a_loss_may_be_scaled_in_place(fused):
    """As in `loss /= accumulate`, also the loss of a projection."""
    d, x_0, x_t, t, values = case(fused, B=2)
    hidden, eye = values.clone().requires_grad_(), torch.eye(K, dtype=values.dtype, device=values.device)
    plain, leaf = values.clone().requires_grad_(), values.clone().requires_grad_()
    loss_of(d, plain, x_t, x_0, t).backward()
    for logits in (leaf, usd3.Projection(hidden, eye)):
        loss = loss_of(d, logits, x_t, x_0, t)
        loss /= 4
        loss.backward()
    torch.testing.assert_close(4 * leaf.grad, plain.grad)
    torch.testing.assert_close(4 * hidden.grad, plain.grad)


# ---- torch.compile ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["usd3", usd3.Objective(vlb=0.5, ce=0.2, l2=0.3)], ids=str)
@pytest.mark.parametrize("name", ["uniform", "per_element_zeros"])
def test_a_compiled_loss_is_the_same(name, objective):
    """The whole of Diffusion.loss as one graph, with what comes before the logits and after the loss."""
    d, x_0, *_, table = case("chunked", name, dtype=torch.float32, validate=False)
    weight = table[0].clone().requires_grad_()
    model = lambda x, t: weight + torch.nn.functional.one_hot(x, K) * t[:, None, None]
    given = torch.arange(D) < 1

    def loss(x_0):
        return 3 * d.loss(model, x_0, objective, given=given, stratified=True).loss

    results = []
    for function in (loss, torch.compile(loss, backend="aot_eager", fullgraph=True)):
        torch.manual_seed(0)
        value = function(x_0)
        results.append((value.detach(), *torch.autograd.grad(value, weight)))
    assert results[0][1].abs().sum() > 0
    for plain, graph in zip(*results):
        torch.testing.assert_close(graph, plain)


def test_a_loss_compiles_in_a_process_that_has_computed_none(monkeypatch):
    """The search for a C++ compiler, which torch.compile cannot trace, is over by then."""
    monkeypatch.setattr("usd3.kernels.choice._RUNS_ON", {})
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), validate=False)
    x, logits = torch.zeros(2, D, dtype=torch.long), torch.zeros(2, D, K, requires_grad=True)
    compiled = torch.compile(lambda values: d.loss_from_logits(values, x, x, 0.5).loss, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(logits), d.loss_from_logits(logits, x, x, 0.5).loss)


def test_one_compiled_loss_serves_batches_of_any_size():
    graphs = []
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), validate=False)

    def loss(logits, x, t):
        return d.loss_from_logits(logits, x, x, t).loss

    compiled = torch.compile(loss, backend=lambda graph, _: graphs.append(graph) or graph, dynamic=True)
    for batch in (6, 7, 8, 9):  # the size of no other dimension
        x, logits = torch.zeros(batch, D, dtype=torch.long), torch.zeros(batch, D, K, requires_grad=True)
        t = torch.full((batch,), 0.5)
        torch.testing.assert_close(compiled(logits, x, t), loss(logits, x, t))
    assert len(graphs) == 1


def test_a_gradient_is_asked_for_on_the_device_of_the_logits(impl):
    d, x_0, x_t, t, values = case(impl)
    leaf = values.requires_grad_()
    loss_of(d, leaf, x_t, x_0, t).backward()
    assert leaf.grad.device.type == device_of(impl).type


def test_a_second_pass_notices_that_the_logits_changed():
    x = torch.tensor([[0, 1], [2, 0]])
    logits = torch.zeros(2, 2, 3, requires_grad=True)
    loss = usd3.Diffusion(usd3.Uniform(3), usd3.Cosine()).loss_from_logits(logits, x, x, 0.4).loss
    loss.backward(retain_graph=True)
    with torch.no_grad():
        logits += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_small_float16_gradients_survive_a_scaled_loss(fused):
    device = device_of(fused)
    x_0, x_t = torch.zeros(8, 1, dtype=torch.long, device=device), torch.full((8, 1), 8, device=device)
    d = usd3.Diffusion(usd3.Absorbing(9), usd3.Cosine(), impl=fused)
    logits = torch.zeros(8, 1, 9, dtype=torch.float16, device=device)
    logits[..., 0] = 16.0
    logits.requires_grad_()
    (65536.0 * d.loss_from_logits(logits, x_t, x_0, 0.4, "ce").loss).backward()
    assert (logits.grad[..., 1:8] > 0).all()  # about 1e-7 / 8 without the factor: 0 in float16


@pytest.mark.parametrize(("num_steps", "t"), [(None, 0.5), (10, 5)])
def test_another_schedule_is_noticed_and_one_that_learns_gets_its_gradient(num_steps, t):
    class Power(usd3.Schedule):
        def __init__(self, power):
            self.power = power

        def kept(self, t, s=None):
            return (1 - t) ** self.power if s is None else ((1 - t) / (1 - s)) ** self.power

        def lost(self, t, s=None):
            return 1 - self.kept(t, s)

        def decay(self, t):
            return self.power * (1 - t) ** (self.power - 1)

        def time(self, alpha_bar):
            return 1 - alpha_bar ** (1 / self.power)

    x, logits = torch.tensor([[0, 1], [2, 0]]), torch.randn(2, 2, 3, generator=torch.Generator().manual_seed(0))
    d = usd3.Diffusion(usd3.Uniform(3), usd3.Linear(), num_steps, impl="chunked")
    before = d.loss_from_logits(logits, x, x, t).loss
    power = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    d.schedule = Power(1.5)
    after = d.loss_from_logits(logits, x, x, t).loss
    assert after != before
    d.schedule = Power(power)
    learnt = d.loss_from_logits(logits, x, x, t).loss
    torch.testing.assert_close(learnt.detach(), after)
    learnt.backward()
    assert power.grad.abs() > 0
