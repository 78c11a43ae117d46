"""Guidance, top_p, top_k, bias, adjust and samplers as arguments of a pipeline."""

import pytest
import torch
from torch import nn

import usd3
from usd3.core.options import DiffusionConfig
from usd3.methods.options import MethodConfig
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline

K, L = 4, 5


class Follows(nn.Module):
    """Element 0 as it is known makes the same category likelier everywhere; logits (0, 0.5, 1, ...) without it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0, 0.5 * (K - 1), K))
        self.rows = []

    def forward(self, x_t, t, given):
        self.rows.append(len(x_t))
        logits = nn.functional.pad(self.weight, (0, 1)).expand(*x_t.shape, -1)
        near = nn.functional.one_hot(x_t[:, :1], K + 1) * given[:, :1, None]
        return logits + near


def made(net=None, **options):
    config = PipelineConfig(K, [L], diffusion=DiffusionConfig(noise="absorbing"), **options)
    return Pipeline(config, Follows() if net is None else net)


def share(x, category):
    return float((x[:, 1:] == category).float().mean())


PROMPT = {"tokens": torch.zeros(2000, L, dtype=torch.long), "given": torch.arange(L) == 0}


@pytest.mark.parametrize("scale", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("guidance", ["f", "step"])
def test_guidance_follows_the_given_elements(scale, guidance):
    """f is the same in all steps, so one step from t = 1 has it; 8,000 draws have a standard error of 0.006 at most."""
    pipeline = made()
    x = pipeline.sample(num_steps=1, guidance_scale=scale, guidance=guidance, batch_size=2000, **PROMPT)
    f = (torch.linspace(0, 0.5 * (K - 1), K) + scale * torch.eye(K)[0]).softmax(-1)
    assert (x[:, 0] == 0).all()
    assert share(x, 0) == pytest.approx(float(f[0]), abs=0.025)
    assert sum(pipeline.model.rows) == (4000 if scale == 3 else 2000)  # on a CPU in several calls


def test_guidance_needs_a_condition_and_logits():
    with pytest.raises(ValueError, match="guidance_scale = 3: expected 1 where nothing is given"):
        made().sample(2, guidance_scale=3)
    with pytest.raises(ValueError, match="guidance = both: expected one of"):
        made().sample(2, guidance="both")
    with pytest.raises(ValueError, match='sampler = euler: expected None or "exact" for guidance "step"'):
        made().sample(guidance_scale=3, guidance="step", sampler="euler", **PROMPT)
    sedd = made(method=MethodConfig("sedd"), model=ModelConfig(hollow=False))
    for name, value in {"guidance_scale": 3, "top_p": 0.5, "top_k": 2, "bias": torch.zeros(K)}.items():
        with pytest.raises(ValueError, match=f"{name} = .*SEDD, whose outputs are no logits".replace(".*", "(.|\n)*")):
            sedd.sample(num_steps=2, **PROMPT, **{name: value})


def test_top_k_top_p_bias_and_adjust_reach_the_draw():
    pipeline = made()
    assert share(pipeline.sample(50, 4, top_k=1), K - 1) == 1
    assert share(pipeline.sample(50, 4, top_p=0.01), K - 1) == 1
    assert share(pipeline.sample(50, 4, bias=[0.0, 100.0, 0.0, 0.0]), 1) == 1
    only = torch.full((L, K), -torch.inf).scatter(1, torch.tensor([0, 1, 2, 3, 0])[:, None], 0.0)
    assert pipeline.sample(3, 4, bias=only).tolist() == [[0, 1, 2, 3, 0]] * 3
    assert share(pipeline.sample(50, 4, adjust=lambda logits, x_t, t: -1000 * logits.abs()), 0) == 1
    with pytest.raises(ValueError, match=r"bias.shape = \(3,\): expected \(4,\) or \(5, 4\)"):
        pipeline.sample(1, bias=[0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="bias = nan or inf"):
        pipeline.sample(1, bias=[0.0, torch.nan, 0.0, 0.0])


def test_a_bias_is_in_the_categories_of_the_data():
    pipeline = made(decode=[2, 0, 3, 1])
    assert share(pipeline.sample(50, 4, bias=[0.0, 100.0, 0.0, 0.0]), 1) == 1


def test_a_sampler_may_be_a_function():
    classifier = usd3.ClassifierGuided(lambda x_t, t: 50.0 * (x_t == 2).sum(1).double())
    pipeline = made()
    assert share(pipeline.sample(20, 10, sampler=classifier), 2) == 1
    assert pipeline.num_moves(10, classifier) == 10


def test_the_holes_of_a_prompt_are_filled_with_guidance():
    x = made().fill(PROMPT["tokens"], PROMPT["given"].expand(2000, L), num_steps=1, guidance_scale=8.0)
    assert share(x, 0) > 0.98
