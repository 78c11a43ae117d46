"""A network that also sees its previous prediction."""

import pytest
import torch
from torch import nn

import usd3
from usd3.core.options import DiffusionConfig
from usd3.methods.options import MethodConfig
from usd3.nets import SelfConditioned
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline

K, SHAPE = 4, (6, 3)
DIFFUSION = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), num_steps=None)
MODEL = ModelConfig(dim=16, depth=1, heads=2, mlp=16, time_dim=8, self_conditioning=True)


class Recorded(nn.Module):
    """Logits from a table of its own, shifted by the estimate; records its estimates and its logits."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(SHAPE[1], K, generator=torch.Generator().manual_seed(0)))
        self.estimates, self.outputs = [], []

    def forward(self, x_t, t, estimate=None, given=None):
        self.estimates.append(estimate if estimate is None else estimate.clone())
        logits = self.table + nn.functional.one_hot(x_t, K) + (0 if estimate is None else 2 * estimate)
        self.outputs.append(logits.detach())
        return logits


def test_a_sampler_tells_it_what_it_said_in_the_step_before():
    net = Recorded()
    model = SelfConditioned(net).eval()
    corrector = usd3.Corrector(num_steps=2, step_size=0.01, last=None)
    for _ in range(2):  # a run does not know of the one before
        net.estimates, net.outputs = [], []
        DIFFUSION.sample(model, SHAPE, 5, corrector=corrector, generator=torch.Generator().manual_seed(1))
        assert len(net.estimates) == 5 + 2 * 4
        assert not net.estimates[0].any()
        for estimate, output in zip(net.estimates[1:], net.outputs):
            assert torch.allclose(estimate, output.softmax(-1))


def test_a_bound_and_a_loss_that_is_not_trained_on_tell_it_nothing():
    net = Recorded()
    model, x_0 = SelfConditioned(net).eval(), torch.zeros(SHAPE, dtype=torch.long)
    DIFFUSION.bound(model, x_0, num_samples=3)
    DIFFUSION.loss(model, x_0)
    assert net.estimates
    assert all(estimate is None for estimate in net.estimates)


def test_in_training_half_of_the_objects_are_told_its_first_answer():
    net = Recorded()
    model, x_0 = SelfConditioned(net).train(), torch.zeros(1000, SHAPE[1], dtype=torch.long)
    torch.manual_seed(0)
    model(x_0, torch.full((1000,), 0.5)).sum().backward()
    first, second = net.estimates
    assert first is None
    has_estimate = second.flatten(1).any(1)
    assert 400 < has_estimate.sum() < 600
    assert torch.allclose(second[has_estimate], net.outputs[0].softmax(-1)[has_estimate])
    assert torch.allclose(net.table.grad, torch.full_like(net.table, 1000.0))  # no gradient through the estimate


@pytest.mark.parametrize("hollow", [True, False])
def test_our_network_takes_it_and_starts_as_if_it_did_not(hollow):
    torch.manual_seed(0)
    model = ModelConfig(**{**vars(MODEL), "hollow": hollow}).build(DIFFUSION, SHAPE[1:]).eval()
    x, t, estimate = torch.zeros(SHAPE, dtype=torch.long), torch.full((6,), 0.5), torch.rand(*SHAPE, K)
    nn.init.normal_(next(m for m in model.modules() if isinstance(m, usd3.nets.Transformer)).logits.weight)
    alone = model(x, t)
    assert torch.equal(model(x, t, estimate=estimate), alone)  # the weights of the estimate start at 0
    inner = next(m for m in model.modules() if isinstance(m, usd3.nets.Transformer))
    nn.init.normal_(inner.estimate.weight)
    assert not torch.allclose(model(x, t, estimate=estimate), alone)
    assert torch.equal(model(x, t, estimate=torch.zeros_like(estimate)), model(x, t))


def test_a_pipeline_draws_with_it_and_is_the_same_after_loading(tmp_path):
    pipeline = Pipeline(PipelineConfig(K, [3], DiffusionConfig(num_steps=20), model=MODEL))
    for weight in pipeline.model.parameters():
        nn.init.normal_(weight, std=0.3)
    drawn = pipeline.sample(50, 8)
    pipeline.save_pretrained(tmp_path / "saved")
    assert torch.equal(Pipeline.from_pretrained(tmp_path / "saved", device="cpu").sample(50, 8), drawn)
    alone = Pipeline(pipeline.config, model=pipeline.model.module)  # never gets an estimate
    assert not torch.equal(alone.sample(50, 8), drawn)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"net": "film"}, "model.self_conditioning = True: expected false for film"),
        ({"timeless": True}, "model.timeless = True: expected false with model.self_conditioning"),
        ({"projection": True}, "model.projection = True: expected false with model.self_conditioning"),
    ],
)
def test_what_does_not_go_with_it_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**{**vars(MODEL), **options}).build(DIFFUSION, SHAPE[1:])


def test_a_method_that_reads_the_output_otherwise_refuses_it():
    model = ModelConfig(**{**vars(MODEL), "hollow": False})
    config = PipelineConfig(K, [3], DiffusionConfig(), MethodConfig("sedd"), model)
    with pytest.raises(ValueError, match=r"model\.self_conditioning = True: expected false for sedd"):
        Pipeline(config)
