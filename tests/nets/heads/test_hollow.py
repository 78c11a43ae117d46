import pytest
import torch
from torch import nn

import usd3
from usd3.nets import FilmTransformer, Hollow, Transformer


class Fixed(nn.Module):
    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, x_t, t):
        return self.logits.expand(*x_t.shape, -1)


@pytest.mark.parametrize("noise", [usd3.Uniform(4), usd3.Marginal(torch.tensor([0.1, 0.2, 0.3, 0.4]))])
@pytest.mark.parametrize("t", [1e-3, 0.3, 0.99, 1.0])
def test_it_is_bayes_rule(noise, t):
    """f_k is proportional to f_hollow,k q(x_t | x_0 = k)."""
    d = usd3.Diffusion(noise, usd3.Cosine())
    hollow = torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x_t = torch.arange(4)[:, None]
    time = torch.full((4,), t, dtype=torch.float64)
    seen = d.q_probs(torch.arange(4), t)[:, x_t[:, 0]].T  # [x_t, x_0]
    expected = hollow.softmax(-1) * seen
    probs = Hollow(Fixed(hollow), d)(x_t, time)[:, 0].softmax(-1)
    torch.testing.assert_close(probs, expected / expected.sum(-1, keepdim=True))


def test_it_gives_the_exact_posterior_of_independent_elements():
    """With independent elements the hollow output is the data distribution itself, and the bound is its entropy."""
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Linear(), num_steps=10)
    data = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    model = Hollow(Fixed(data.log()), d)
    x_0 = torch.arange(4).repeat(20_000)[:, None]
    nll = d.bound(model, x_0, generator=torch.Generator().manual_seed(0)).reshape(-1, 4)
    error = (nll.mean(0) + data.log()) / (nll.std(0) / len(nll) ** 0.5)
    assert error.abs().max() < 4  # false alarm: 4 * 6e-5
    assert nll.std(0).max() / len(nll) ** 0.5 < 0.03


def test_a_certainly_clean_element_is_left_alone():
    d = usd3.Diffusion(usd3.Absorbing(4), usd3.Linear())
    logits = torch.randn(4)
    x_t = torch.tensor([[0], [3]])
    completed = Hollow(Fixed(logits), d)(x_t, torch.tensor([0.5, 0.5]))
    assert torch.equal(completed[0, 0], logits)
    assert torch.isfinite(completed).all()


def test_an_untrained_network_starts_far_lower_in_continuous_time():
    torch.manual_seed(0)
    d = usd3.Diffusion(usd3.Uniform(33), usd3.Cosine())
    net = Transformer(33, dim=32, depth=1, heads=2, mlp=64)
    x_0 = torch.randint(33, (64, 16))
    plain, headed = (d.loss(model, x_0, stratified=True).vlb.item() / 16 for model in (net, Hollow(net, d)))
    assert plain > 2 * headed
    assert headed < 1.3 * torch.tensor(33.0).log()


@pytest.mark.parametrize(("net", "takes_given"), [(Transformer, True), (FilmTransformer, False)])
def test_masks_reach_the_network_inside(net, takes_given):
    torch.manual_seed(0)
    d = usd3.Diffusion(usd3.Uniform(5), usd3.Cosine())
    inner = net(5, dim=16, depth=1, heads=2, mlp=16)
    calls = []
    inner.register_forward_pre_hook(lambda module, args, masks: calls.append(set(masks)), with_kwargs=True)
    x = torch.randint(5, (2, 6))
    d.loss(Hollow(inner, d), x, given=torch.arange(6) < 2, pad=(torch.arange(6) > 4))
    d.loss(Hollow(inner, d), x)
    assert calls == ([{"pad", "given"}, {"given"}] if takes_given else [{"pad"}, set()])


@pytest.mark.parametrize("noise", [usd3.Uniform(5), usd3.Absorbing(5)])
def test_a_projection_stays_one(noise):
    d, g = usd3.Diffusion(noise, usd3.Cosine()), torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(3, 6, 4, generator=g), torch.randn(5, 4, generator=g)
    x, t = torch.randint(5, (3, 6), generator=g), torch.rand(3, generator=g)

    class Net(nn.Module):
        def __init__(self, whole):
            super().__init__()
            self.whole = whole

        def forward(self, x_t, t):
            return hidden @ weight.T if self.whole else usd3.Projection(hidden, weight)

    projection = Hollow(Net(False), d)(x, t)
    assert isinstance(projection, usd3.Projection)
    torch.testing.assert_close(projection.logits(x), Hollow(Net(True), d)(x, t))
