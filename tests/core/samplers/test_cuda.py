"""Sampling on a GPU: a step replayed as a CUDA graph draws what a plain step draws. Skipped where there is none."""

import gc
from dataclasses import replace

import pytest
import torch

import usd3
from support.problems import NOISES, D, K
from usd3._internal.graphs import SETTLED, GraphedFunction, as_captured
from usd3.core.options import DiffusionConfig
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline

pytestmark = pytest.mark.gpu

MODEL = ModelConfig(dim=32, depth=2, heads=2, mlp=64, time_dim=8)


class Net(torch.nn.Module):
    """Looks at the element, its neighbour, the masks and the time."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(D, K, generator=torch.Generator().manual_seed(1)))

    def forward(self, x, t, given, pad=None):
        near = torch.nn.functional.one_hot(x.roll(1, -1), K) * (1 + t[:, None, None])
        masks = given.float() + (0 if pad is None else pad.float())
        return self.table + 1.5 * torch.nn.functional.one_hot(x, K) + near + masks[..., None]


class OneHotFree(Net):
    """The same without `one_hot`, which may wait for the device."""

    def forward(self, x, t, given, pad=None):
        eye = torch.eye(K, device=x.device)
        masks = given.float() + (0 if pad is None else pad.float())
        return self.table + 1.5 * eye[x] + eye[x.roll(1, -1)] * (1 + t[:, None, None]) + masks[..., None]


@pytest.fixture
def replayed(monkeypatch):
    """Every function that a sampling run prepares for replay."""
    made = []

    class Recorded(GraphedFunction):
        def __init__(self, fn):
            super().__init__(fn)
            self.calls = 0
            made.append(self)

        def __call__(self, *inputs):
            self.calls += 1
            return super().__call__(*inputs)

    monkeypatch.setattr("usd3.core.samplers.run.GraphedFunction", Recorded)
    yield made
    made.clear()


def net(kind=OneHotFree):
    return kind().cuda().eval()


def generators():
    return {
        "cpu": lambda: torch.Generator().manual_seed(2),
        "cuda": lambda: torch.Generator("cuda").manual_seed(2),
        "default": lambda: torch.cuda.manual_seed(2),
    }


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("source", generators())
@pytest.mark.parametrize("sampler", ["exact", "euler", "tau_leaping", "gillespie", "revision", "trapezoidal"])
def test_a_graph_draws_what_plain_steps_draw(name, source, sampler, replayed):
    d, model, found = usd3.Diffusion(NOISES[name][0](), usd3.Cosine()), net(), []
    for graph in (False, True):
        made = generators()[source]()
        generator = made if isinstance(made, torch.Generator) else None
        found.append(d.sample(model, (32, D), 20, generator=generator, sampler=sampler, graph=graph))
    assert torch.equal(*found)
    assert any(fn.captured for fn in replayed) is (sampler != "gillespie")


@pytest.mark.parametrize("noise", [usd3.Uniform(K), usd3.Absorbing(K)], ids=str)
@pytest.mark.parametrize("sampler", ["confidence", "margin", "entropy"])
def test_a_graph_draws_the_surest_first_as_plain_steps_do(noise, sampler, replayed):
    """Twelve elements, so that there are calls enough for a capture."""
    table = torch.randn(12, K, generator=torch.Generator().manual_seed(1)).cuda()
    model = lambda x, t: table + torch.eye(K, device="cuda")[x.roll(1, -1)] * (1 + t[:, None, None])
    d, options = usd3.Diffusion(noise, usd3.Cosine()), {"sampler": sampler, "device": "cuda"}
    found = [
        d.sample(model, (32, 12), 20, generator=torch.Generator("cuda").manual_seed(2), graph=graph, **options)
        for graph in (False, True)
    ]
    assert torch.equal(*found)
    assert any(fn.captured for fn in replayed)


@pytest.mark.parametrize("step_size", [0.02, 0.5])  # the second is shortened
@pytest.mark.parametrize("num_steps", [None, 50])
def test_correctors_masks_and_callbacks(step_size, num_steps, replayed):
    d, model, found, seen = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), num_steps), net(), [], []
    g = torch.Generator().manual_seed(0)
    tokens, given = torch.randint(K, (32, D), generator=g), torch.rand(32, D, generator=g) < 0.3
    for graph in (False, True):
        steps = []
        x = d.sample(
            model, (32, D), 20, usd3.Corrector(2, step_size, last=10), given=given, given_tokens=tokens,
            pad=torch.tensor([False, False, True]), generator=torch.Generator("cuda").manual_seed(1),
            callback=steps.append, device="cuda", graph=graph,
        )  # fmt: skip
        found.append(x)
        seen.append(torch.stack([step.x_s for step in steps]))
    assert torch.equal(*found)
    assert torch.equal(*seen)
    often = [fn for fn in replayed if fn.calls >= SETTLED]  # a cap that only the last step needs is used twice
    assert len(often) == 2
    assert all(fn.captured for fn in often)
    assert torch.equal(found[0].cpu()[given], tokens[given])


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("when", [0.95, 0.5])
def test_nan_logits_are_refused(graph, when):
    """Also where they come in one step of many, in a replay."""

    class Broken(OneHotFree):
        def forward(self, x, t, given, pad=None):
            bad = ((t - when).abs() < 0.01)[:, None, None]
            return super().forward(x, t, given, pad).masked_fill(bad, torch.nan)

    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
    with pytest.raises(ValueError, match="logits contains nan: expected finite numbers"):
        d.sample(net(Broken), (8, D), 20, graph=graph)


class Waits(OneHotFree):
    def forward(self, x, t, given, pad=None):
        return super().forward(x, t, given, pad) * (2.0 if float(t[0]) > 0.5 else 1.0)


class Refuses(OneHotFree):
    def forward(self, x, t, given, pad=None):
        logits = super().forward(x, t, given, pad)
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("not in a graph")
        return logits


@pytest.mark.parametrize("kind", [Waits, Refuses, Net])
def test_what_cannot_be_captured_runs_as_it_is(kind, replayed):
    d, model = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine()), net(kind)
    found = [
        d.sample(model, (16, D), 20, generator=torch.Generator("cuda").manual_seed(0), graph=graph)
        for graph in (False, True)
    ]
    assert torch.equal(*found)
    if kind is not Net:
        assert not any(fn.captured for fn in replayed)
    assert torch.rand(3, device="cuda").isfinite().all()  # the default generator is still alive
    assert torch.cuda.get_sync_debug_mode() == 0


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("net", ["transformer", "film"])
@pytest.mark.parametrize("noise", ["uniform", "absorbing"])
def test_our_own_networks_are_replayed_by_themselves(precision, net, noise, replayed, monkeypatch):
    torch.manual_seed(0)
    config = PipelineConfig(
        num_classes=5,
        shape=[16],
        model=ModelConfig(net=net, dim=32, depth=2, heads=2, mlp=64, time_dim=8),
        diffusion=DiffusionConfig(noise=noise),
        precision=precision,
    )
    pipeline = Pipeline(config).to("cuda")
    for p in pipeline.model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    tokens = torch.randint(5, (20, 16))
    masks = {"tokens": tokens, "given": torch.arange(16) < 4, "pad": torch.arange(16) > 13}
    fast = pipeline.sample(num_steps=20, batch_size=8, **masks)  # the last batch is smaller
    assert [fn.captured for fn in replayed] == [True, True, True]
    assert not pipeline.sample(3, 4).isnan().any()
    assert len(replayed) == 3  # too few steps
    monkeypatch.setattr("usd3.pipeline.pipeline.is_packaged", lambda net: False)
    assert torch.equal(fast, pipeline.sample(num_steps=20, batch_size=8, **masks))
    assert len(replayed) == 3


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_graph_keeps_what_a_self_conditioned_network_said(precision, replayed, monkeypatch):
    """Also where a corrector has a graph of its own."""
    config = PipelineConfig(K, [D], model=replace(MODEL, self_conditioning=True), precision=precision)
    pipeline = Pipeline(config).to("cuda")
    for weight in pipeline.model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    corrector = usd3.Corrector(num_steps=2, step_size=0.05, last=None)
    found = [pipeline.sample(64, 20, corrector=corrector)]
    assert any(fn.captured for fn in replayed)
    monkeypatch.setattr("usd3.core.samplers.loop._WORTH", 1000)  # no graph
    found.append(pipeline.sample(64, 20, corrector=corrector))
    assert torch.equal(*found)


@pytest.mark.filterwarnings("ignore")  # of torch.compile's own
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("own", [{}, {"projection": True}, {"self_conditioning": True}], ids=str)
def test_a_compiled_network_is_captured_without_compiling_again(precision, own, replayed, monkeypatch):
    """Its weights are large, so that rounding decides few draws; marginal noise has a table on the device."""
    torch.compiler.reset()
    config = PipelineConfig(
        num_classes=5,
        shape=[16],
        model=replace(MODEL, **own),
        diffusion=DiffusionConfig(noise="marginal"),
        marginal=[0.1, 0.2, 0.3, 0.2, 0.2],
        precision=precision,
    )
    torch.manual_seed(0)
    pipeline = Pipeline(config).to("cuda")
    for weight in pipeline.model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    stats = torch._dynamo.utils.counters["stats"]
    pipeline.compile, before = True, stats["unique_graphs"]
    masks = {"tokens": torch.randint(5, (64, 16)), "given": torch.arange(16) < 4}
    with torch.inference_mode():
        drawn = pipeline.sample(num_steps=20, **masks)
    assert [fn.captured for fn in replayed] == [True]
    assert stats["unique_graphs"] == before + 1
    pipeline.sample(num_steps=20, **masks)
    pipeline.bound(drawn, num_samples=2, given=masks["given"])
    assert [fn.captured for fn in replayed] == [True, True]
    assert stats["unique_graphs"] == before + (2 if "self_conditioning" in own else 1)
    given = masks["given"].expand(64, 16).cuda()
    with as_captured():
        x_t, t = drawn.cuda(), torch.rand(64, device="cuda")
        fast = pipeline.denoiser()(x_t, t, given=given)
        pipeline.compile = False
        plain = pipeline.denoiser()(x_t, t, given=given)
    rough = 1e-3 if precision == "fp32" else 0.05
    torch.testing.assert_close(fast.float(), plain.float(), rtol=rough, atol=rough * float(plain.abs().max()))


def test_a_timeless_network_is_called_less_where_that_pays(replayed):
    torch.manual_seed(0)
    config = PipelineConfig(
        num_classes=5,
        shape=[16],
        model=ModelConfig(dim=32, depth=2, heads=2, mlp=64, time_dim=8, timeless=True),
        diffusion=DiffusionConfig(noise="absorbing", schedule="linear"),
    )
    pipeline, rows = Pipeline(config).to("cuda"), []
    pipeline.model.register_forward_pre_hook(lambda _, args: rows.append(len(args[0])))
    pipeline.sample(8, 500)
    assert not replayed
    assert sum(rows) <= 8 * 17
    pipeline.sample(8, 10)
    assert [fn.captured for fn in replayed] == [True]


def test_memory_is_given_back():
    d, model = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine()), net()
    used = []
    for _ in range(3):
        d.sample(model, (4096, D), 20, usd3.Corrector(1, 0.01), graph=True)
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        used.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
    assert used[0] == used[1] == used[2]


def test_replayed_is_the_function_itself():
    weight = torch.randn(64, 64, device="cuda")
    fn = GraphedFunction(lambda x, y: torch.tanh(x @ weight) + y)
    for i in range(8):
        x, y = torch.randn(16, 64, device="cuda"), torch.randn(64, device="cuda")
        out = fn(x, y)
        torch.testing.assert_close(out, torch.tanh(x @ weight) + y)
        kept = out.clone()
        fn(y.expand(16, 64).contiguous(), y)
        assert torch.equal(out, kept)  # answers are the caller's own
        assert fn.captured is (i > 0)


def test_an_error_of_the_function_is_the_users():
    def broken(x):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        GraphedFunction(broken)(torch.ones(3, device="cuda"))
