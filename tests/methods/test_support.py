"""Every method on data that have a support: nothing outside it is drawn, and nothing outside it is learnt."""

import pytest
import torch

import usd3
from usd3.methods.d3pm import D3PM
from usd3.methods.mdlm import MDLM
from usd3.methods.rdm import RDM
from usd3.methods.sddm import SDDM
from usd3.methods.sedd import SEDD
from usd3.methods.tauldr import TauLDR
from usd3.methods.transitions import Transitions
from usd3.methods.usd3 import USD3

K, D = 5, 3
SUPPORT = torch.tensor([[True, True, False, True, False], [False, True, True, False, False], [True, *[False] * 4]])
X_0 = torch.tensor([[0, 1, 0], [1, 2, 0], [3, 2, 0], [3, 1, 0]])
METHODS = {
    "usd3": (USD3, None),
    "usd3, discrete": (USD3, 12),
    "d3pm": (D3PM, 12),
    "d3pm, joint": (lambda d: D3PM(d, posterior="joint"), 12),
    "rdm": (RDM, 12),
    "rdm, ranked": (lambda d: RDM(d, decoding="uncond-deterministic-cosine"), 12),
    "tauldr": (TauLDR, None),
    "sddm": (SDDM, None),
    "sedd": (SEDD, None),
    "mdlm": (MDLM, None),
}
NOISES = {
    "uniform": usd3.Uniform(K),
    "marginal": usd3.Marginal([0.1, 0.3, 0.2, 0.3, 0.1]),
    "absorbing": usd3.Absorbing(K),
    "mixed": usd3.Mixed(K, 0.3),
}


def method_on(name, noise, impl="auto"):
    make, num_steps = METHODS[name]
    return make(usd3.Diffusion(NOISES[noise], usd3.Linear(), num_steps, support=SUPPORT, impl=impl))


CASES = [(name, noise) for name in METHODS for noise in NOISES if name != "mdlm" or noise == "absorbing"]


@pytest.mark.parametrize(("name", "noise"), CASES)
def test_nothing_outside_the_support_is_learnt(name, noise):
    """Whatever a network says there, also NaN, counts neither for the loss nor for the bound, and has no gradient."""
    method = method_on(name, noise)
    mask = NOISES[noise].mask
    outside = ~(SUPPORT | torch.tensor([k == mask for k in range(K)]))
    table = torch.randn(D, K, generator=torch.Generator().manual_seed(0), requires_grad=True)
    seeded = lambda: torch.Generator().manual_seed(1)
    losses = []
    for wrong in (0.0, 50.0, torch.nan):
        model = lambda x, t, wrong=wrong: torch.where(outside, wrong, table).expand(len(x), D, K)
        loss = method.loss(model, X_0, generator=seeded()).loss
        (slope,) = torch.autograd.grad(loss, table)
        assert slope.isfinite().all()
        assert (slope[outside] == 0).all()
        losses.append([float(loss.detach()), float(method.bound(model, X_0, 4, generator=seeded()).sum())])
    assert torch.tensor(losses).isfinite().all()
    assert losses[0] == losses[1] == losses[2]


@pytest.mark.parametrize("impl", ["eager", "chunked"])
@pytest.mark.parametrize(("name", "noise"), CASES)
def test_nothing_outside_the_support_is_drawn(name, noise, impl):
    method = method_on(name, noise, impl)
    logits = torch.where(SUPPORT, 0.0, 30.0)  # a network that wants nothing else
    for sampler in method.samplers:
        x = method.sample(
            lambda x, t: logits.expand(len(x), D, K),
            (40, D),
            6,
            sampler=sampler,
            generator=torch.Generator().manual_seed(0),
        )
        assert SUPPORT[torch.arange(D), x].all(), sampler
        is_random = name in ("usd3", "usd3, discrete", "sddm", "sedd", "mdlm")  # others end with an argmax
        assert len(x[:, :2].unique(dim=0)) > 1 or not is_random


def test_matrices_know_no_support():
    matrices = torch.full((12, K, K), 1 / K)
    with pytest.raises(ValueError, match="transitions = a stack of matrices: expected None where data have a support"):
        D3PM(usd3.Diffusion(usd3.Uniform(K), usd3.Linear(), 12, support=SUPPORT[0]), transitions=Transitions(matrices))
