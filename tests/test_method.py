"""What every method shares: the choice by name, its checks, and USD3 as a method."""

import pytest
import torch
from conftest import D, K

import usd3
from usd3.baselines import METHODS, USD3, Method
from usd3.config import MethodConfig


def table(x, t):
    return torch.nn.functional.one_hot(x, K) * 1.5 + torch.arange(K) * t[:, None, None]


def seeded():
    return torch.Generator().manual_seed(3)


def test_usd3_as_a_method_is_the_diffusion():
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
    method, x_0 = USD3(d, "usd3*"), torch.randint(K, (5, D), generator=seeded())
    assert torch.equal(
        method.loss(table, x_0, generator=seeded()).loss, d.loss(table, x_0, "usd3*", generator=seeded()).loss
    )
    assert torch.equal(method.bound(table, x_0, 4, generator=seeded()), d.bound(table, x_0, 4, generator=seeded()))
    for sampler in (None, "exact", "euler", "tau_leaping", "gillespie"):
        drawn = method.sample(table, (4, D), 6, generator=seeded(), sampler=sampler)
        assert torch.equal(drawn, d.sample(table, (4, D), 6, generator=seeded(), sampler=sampler or "exact"))


def test_a_method_is_found_by_name_or_by_import_path():
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
    assert METHODS["usd3"] is USD3
    assert MethodConfig().build(d, "ce").objective == "ce"
    assert MethodConfig(options={"objective": "vlb"}).build(d, "ce").objective == "vlb"
    assert isinstance(MethodConfig("usd3.method.USD3").build(d), USD3)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (MethodConfig("nothing"), r"method.name = nothing: expected one of .*usd3.* or the import path of a class"),
        (MethodConfig("usd3.Diffusion"), "derived from usd3.method.Method"),
        (MethodConfig("usd3", {"colour": 1}), "method.options = {'colour': 1} for usd3: .*colour"),
        (MethodConfig("usd3", {"objective": "best"}), "objective = best: expected one of"),
    ],
)
def test_what_cannot_be_is_refused(config, message):
    with pytest.raises(ValueError, match=message):
        config.build(usd3.Diffusion(usd3.Uniform(K), usd3.Cosine()))


class Discrete(USD3):
    time = "discrete"
    corrects = False
    samplers = ("exact",)


def test_a_method_says_what_it_needs():
    continuous = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
    with pytest.raises(ValueError, match=r"diffusion.num_steps = None: expected discrete time for Discrete"):
        Discrete(continuous)
    method = Discrete(usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), num_steps=10))
    with pytest.raises(ValueError, match="sampler = euler: expected one of exact for Discrete"):
        method.sample(table, (2, D), 5, sampler="euler")
    with pytest.raises(ValueError, match=r"corrector = .*: expected None for Discrete"):
        method.sample(table, (2, D), 5, usd3.Corrector())
    with pytest.raises(TypeError, match=r"diffusion is a int: expected a usd3.Diffusion"):
        USD3(3)
    with pytest.raises(TypeError, match="abstract"):
        Method(continuous)
