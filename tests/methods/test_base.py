"""What every method shares: the choice by name, its checks, and USD3 as a method."""

import pytest
import torch
import yaml

import usd3
from support.problems import D, K
from usd3.cli.main import main
from usd3.core.model import BoundKeywords
from usd3.core.options import DiffusionConfig
from usd3.methods import METHODS, USD3, Method
from usd3.methods.options import MethodConfig
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline
from usd3.training.diffusion import DiffusionTraining
from usd3.training.options import TrainingConfig


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
    assert isinstance(MethodConfig("usd3.methods.USD3").build(d), USD3)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (MethodConfig("nothing"), r"method.name = nothing: expected one of .*usd3.* or the import path of a class"),
        (MethodConfig("usd3.Diffusion"), "derived from usd3.methods.base.Method"),
        (MethodConfig("usd3", {"colour": 1}), "method.options = {'colour': 1} for usd3: .*colour"),
        (MethodConfig("usd3", {"objective": "vlb"}), r"method.options = .*: expected no objective, which training.obj"),
        (MethodConfig("usd3", sampler="best"), "method.sampler = best: expected one of exact, euler"),
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


def test_a_method_says_what_its_network_must_be():
    for name, model, message in (
        (
            "sddm",
            ModelConfig(hollow=False),
            "model.net = transformer: expected hollow_transformer or",
        ),
        ("sedd", ModelConfig(), "model.hollow = True: expected false for sedd"),
        ("rdm", ModelConfig(projection=True), "model.projection = True: expected false for rdm"),
    ):
        steps = 10 if name == "rdm" else None
        with pytest.raises(ValueError, match=message):
            Pipeline(
                PipelineConfig(
                    5,
                    [8],
                    DiffusionConfig(schedule="linear" if steps else "loglinear", num_steps=steps),
                    MethodConfig(name),
                    model,
                )
            )


def test_the_sampler_of_a_recipe_comes_first():
    d = usd3.Diffusion(usd3.Uniform(K), usd3.LogLinear())
    assert MethodConfig("sedd", sampler="euler").build(d).samplers == ("euler", "analytic")
    assert METHODS["sedd"].samplers == ("analytic", "euler")


@pytest.mark.parametrize("name", ["usd3", "sddm"])
def test_a_temperature_divides_the_logits_of_the_full_belief(name):
    d = usd3.Diffusion(usd3.Uniform(K), usd3.LogLinear())
    method = MethodConfig(name).build(d)

    def cold(x, t):
        return method.denoiser(table)(x, t) / 0.25

    found = method.sample(table, (50, D), 8, generator=seeded(), temperature=0.25)
    assert torch.equal(found, d.sample(cold, (50, D), 8, generator=seeded()))
    with pytest.raises(ValueError, match=r"temperature = 0.5: expected 1 for SEDD"):
        METHODS["sedd"](d).sample(table, (2, D), 8, temperature=0.5)


def test_recipes_of_methods_leave_nothing_of_each_other(capsys):
    for names, wanted in ((["tauldr", "usd3"], "usd3"), (["rdm", "ce"], "usd3"), (["rdm", "d3pm"], "d3pm")):
        assert main(["train", "bach-small", *names, "--print_config"]) == 0
        shown = yaml.safe_load(capsys.readouterr().out)["method"]
        assert shown == {"name": wanted, "options": {}, "sampler": None}


class Even(torch.nn.Module):
    def forward(self, x, t):
        return torch.zeros(*x.shape, K)


@pytest.mark.parametrize("condition", ["clamp", "project_only"])
def test_the_log_counts_the_elements_that_have_a_loss(condition):
    d = usd3.Diffusion(usd3.Uniform(K), usd3.LogLinear(), validate=False)
    method = METHODS["sedd"](d, condition=condition)
    module = DiffusionTraining(Even(), method, TrainingConfig(given="prefix", prefix=9))
    torch.manual_seed(0)
    loss, shown = module._eager_loss(torch.randint(K, (500, 12)), None)
    torch.testing.assert_close(shown[0], loss / (3 if condition == "clamp" else 12), check_dtype=False)


@pytest.mark.parametrize("name", METHODS)
def test_info_names_the_options_and_samplers_of_a_method(name, capsys):
    assert main(["info", name]) == 0
    shown = capsys.readouterr().out
    assert yaml.safe_load(shown)["method"]["name"] == name  # still a recipe
    assert f"# method.sampler: {', '.join(METHODS[name].samplers)}" in shown
    assert "# method.options: " in shown


def test_steps_of_its_own_take_no_other_sampler():
    """SEDD's outputs are no logits, and the samplers do not know the matrices of D3PM."""
    d = usd3.Diffusion(usd3.Uniform(K), usd3.LogLinear())
    matrices = METHODS["d3pm"](usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), 8), transitions="uniform")
    for method in (METHODS["sedd"](d), matrices):
        with pytest.raises(ValueError, match=r"sampler = Revision\(.*: expected one of .*, whose steps are its own"):
            method.sample(table, (2, D), 4, sampler=usd3.Revision())
    assert METHODS["d3pm"](usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), 8)).takes_any_sampler


def test_a_sampler_without_a_corrector_is_named():
    method = METHODS["usd3"](usd3.Diffusion(usd3.Absorbing(K), usd3.Linear()))
    for sampler, shown in (("entropy", "entropy"), (usd3.CertainFirst(), "CertainFirst")):
        with pytest.raises(
            ValueError, match=f"corrector = Corrector: expected None with the sampler {shown}; sampler exact"
        ):
            method.sample(table, (2, D), 4, usd3.Corrector(), sampler=sampler)


def test_labels_of_changed_objects_reach_a_network_that_learns_nothing_of_given_elements():
    class Net(torch.nn.Module):
        ignores_time = True

        def forward(self, x, t, label=None):
            assert len(label) == len(x)
            return torch.zeros(*x.shape, K)

    method = METHODS["sedd"](usd3.Diffusion(usd3.Absorbing(K), usd3.LogLinear()), condition="project_only")
    model = BoundKeywords(Net(), torch.arange(5)[:, None])
    assert method.sample(model, (5, D), 10, generator=seeded()).shape == (5, D)
