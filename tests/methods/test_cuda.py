"""Every method on a GPU: nothing waits for the device, a step is captured, a replayed sampler draws the same."""

import pytest
import torch
import yaml

from usd3._internal.graphs import GraphedFunction, waiting_is_an_error
from usd3.core.options import DiffusionConfig
from usd3.methods import METHODS
from usd3.methods.options import MethodConfig
from usd3.nets.options import ModelConfig
from usd3.recipes import find_recipe
from usd3.training.step import WholeStep

pytestmark = pytest.mark.gpu

VARIANTS = {  # beside every method as its recipe has it
    "d3pm-joint": ("d3pm", {"posterior": "joint"}, {"hollow": False}),
    "d3pm-stack": ("d3pm", {"transitions": "uniform"}, {}),
    "tauldr-two_pass": ("tauldr", {"passes": "two_pass"}, {}),
    "tauldr-one_pass_exact": ("tauldr", {"passes": "one_pass_exact"}, {}),
    "sddm-masked": ("sddm", {}, {"net": "masked_transformer"}),
    "sddm-positions": ("sddm", {"positions": 3}, {"net": "masked_transformer"}),
    "sedd-project_only": ("sedd", {"condition": "project_only"}, {}),
    "usd3-grid": ("usd3", {}, {}),
}
SHAPES = {"usd3-grid": (4, 4)}  # all others are sequences
EVERY = [*METHODS, *VARIANTS]
SMALL = {"dim": 32, "depth": 1, "heads": 2, "mlp": 64, "time_dim": 16}


def parts(name, validate=False):
    shape = SHAPES.get(name, (16,))
    name, options, model = VARIANTS.get(name, (name, {}, {}))
    own = yaml.safe_load(find_recipe(name).read_text())
    diffusion = DiffusionConfig(**own.get("diffusion", {})).build(5)
    diffusion.validate = validate
    found = own.get("method", {"name": name})
    method = MethodConfig(name, found.get("options", {}) | options).build(diffusion)
    torch.manual_seed(0)
    config = ModelConfig(**{**own.get("model", {}), **SMALL, "dropout": 0.0, **model})
    net = config.build(diffusion, shape)
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.2)
    return method, net.cuda()


def batch(name):
    shape = (8, *SHAPES.get(name, (16,)))
    x_0 = torch.randint(5, shape, generator=torch.Generator().manual_seed(0)).cuda()
    return x_0, (torch.arange(16, device="cuda") < 4).reshape(shape[1:]).expand(shape)


@pytest.mark.parametrize("name", EVERY)
def test_the_loss_does_not_wait_and_is_that_of_the_cpu(name):
    method, net = parts(name)
    x_0, given = batch(name)
    generator = torch.Generator().manual_seed(1)
    found = method.loss(net, x_0, given=given, generator=generator)  # tables are made
    on_cpu = method.loss(net.cpu(), x_0.cpu(), given=given.cpu(), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(found.loss.cpu(), on_cpu.loss, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.vlb.cpu().double(), on_cpu.vlb.double(), rtol=1e-4, atol=1e-4)
    net.cuda()
    with waiting_is_an_error():
        method.loss(net, x_0, given=given).loss.backward()


@pytest.mark.filterwarnings("ignore")  # of torch.compile's own
@pytest.mark.parametrize("name", [*METHODS, "usd3-grid"])
def test_the_loss_compiles_with_nothing_given(name):
    method, net = parts(name)
    x_0, _ = batch(name)
    loss = torch.compile(lambda x: method.loss(net, x).loss)
    for part in (x_0, x_0[:-1]):  # the second one makes the size a symbol
        loss(part).backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", EVERY)
def test_a_step_is_captured(name):
    method, net = parts(name)
    x_0, given = batch(name)

    def loss(batch):
        out = method.loss(net, batch["tokens"], given=given, stratified=True)
        return out.loss, out.vlb

    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    step = WholeStep(loss, net.parameters(), optimizer, clip=1.0, bf16=True, graph="always")
    for _ in range(6):
        value, _ = step({"tokens": x_0})
    assert step.captured
    assert torch.isfinite(value)


@pytest.mark.parametrize("name", EVERY)
def test_a_replayed_sampler_draws_the_same(name, monkeypatch):
    method, net = parts(name, validate=True)
    x_0, given = batch(name)
    made = []

    class Recorded(GraphedFunction):
        def __init__(self, fn):
            super().__init__(fn)
            made.append(self)

    monkeypatch.setattr("usd3.core.samplers.run.GraphedFunction", Recorded)
    for sampler in method.samplers:
        if sampler == "gillespie":
            continue
        drawn = []
        for graph in (False, True):
            made.clear()
            generator = torch.Generator("cuda").manual_seed(2)
            masks = {"given": given, "given_tokens": x_0}
            drawn.append(
                method.sample(net, tuple(x_0.shape), 12, generator=generator, sampler=sampler, graph=graph, **masks)
            )
        assert torch.equal(*drawn), sampler
        assert any(fn.captured for fn in made), sampler
        assert torch.equal(drawn[0][given], x_0[given])
