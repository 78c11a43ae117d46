"""Samplers by name, with and without options."""

import pytest
import torch

import usd3
from usd3.core.samplers import SAMPLERS, CertainFirst, Revision, Trapezoidal, base_name, sampler_named, with_options
from usd3.core.samplers.names import option_names


def test_a_name_with_options_is_the_sampler_with_these_options():
    assert sampler_named("revision:schedule=rescale,eta=0.1") == Revision("rescale", eta=0.1)
    assert sampler_named("revision: eta = 1 ") == Revision(eta=1.0)
    assert sampler_named("entropy:bound=0.5") == CertainFirst("entropy", bound=0.5)
    assert sampler_named("entropy:bound=none") == CertainFirst("entropy", bound=None)
    assert sampler_named("trapezoidal:theta=0.25") == Trapezoidal(0.25)
    assert sampler_named("exact") is SAMPLERS["exact"]
    own = Revision("loop")
    assert sampler_named(own) is own
    assert base_name("entropy:bound=0.5") == "entropy"
    assert option_names(SAMPLERS["revision"]) == ("schedule", "eta", "on", "off")
    assert option_names(SAMPLERS["exact"]) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("revisio", r"sampler = revisio: expected one of .*\(is revision meant\?\)"),
        ("revision:etta=1", "sampler = revision:etta=1: expected revision:option=value,... with options schedule, eta"),
        ("revision:", "sampler = revision:: expected revision:option=value"),
        ("revision:eta", "sampler = revision:eta: expected revision:option=value"),
        ("revision:eta=much", "sampler revision, eta = much: expected a number"),
        ("revision:eta=none", "sampler revision, eta = none: expected a number"),
        ("revision:eta=2", r"eta = 2.0: expected a number in \[0, 1\]"),
        ("revision:schedule=best", "schedule = best: expected one of cap"),
        ("revision:eta=0.1,eta=0.2", "sampler = revision:eta=0.1,eta=0.2: expected eta once"),
        ("revision:on=0.2,off=0.1", r"on, off = \(0.2, 0.1\): expected their defaults, unless schedule=loop"),
        (
            "entropy:score=margin",
            "sampler = entropy:score=margin: expected entropy:option=value,...",
        ),
        ("exact:eta=1", "sampler = exact:eta=1: expected exact, which has no options"),
    ],
)
def test_a_wrong_name_or_option_is_refused_in_one_line(text, message):
    with pytest.raises(ValueError, match=message) as error:
        sampler_named(text)
    assert "\n" not in str(error.value)


def test_names_with_options_are_drawn_with():
    d = usd3.Diffusion(usd3.Absorbing(4), usd3.Linear())

    def draws(sampler):
        generator = torch.Generator().manual_seed(0)
        return d.sample(lambda x, t: torch.zeros(*x.shape, 4), (50, 6), 6, sampler=sampler, generator=generator)

    assert torch.equal(draws("revision:eta=1,schedule=rescale"), draws(Revision("rescale", eta=1.0)))
    assert not torch.equal(draws("revision:eta=1,schedule=rescale"), draws("revision:eta=0"))
    assert torch.equal(draws("revision:eta=0"), draws("exact"))


def test_with_options_leaves_a_plain_name_alone():
    sampler = Revision(eta=0.3)
    assert with_options(sampler, "revision") is sampler
    assert with_options(sampler, "revision:schedule=rescale") == Revision("rescale", eta=0.3)


def test_a_class_is_no_sampler():
    with pytest.raises(TypeError, match=r"sampler is the class Revision: expected an object of this class"):
        sampler_named(Revision)
