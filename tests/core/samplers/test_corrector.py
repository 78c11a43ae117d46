import torch

import usd3
from support.toys import random_logits
from usd3._internal.checks import Checks
from usd3.core import fused
from usd3.core.model import Denoiser
from usd3.core.samplers import Run, corrector_jumps
from usd3.core.samplers.corrector import ask_and_draw_capped


def run_of(d, logits, x):
    denoise = Denoiser(lambda x, t: logits, d.noise.num_classes, None, None)
    return Run(d, denoise, torch.ones_like(x, dtype=torch.bool), Checks(True), torch.Generator().manual_seed(0))


def test_the_automatic_step_size_is_a_cap_and_no_aim():
    """Jumps are as rare as those of 0.001, and are not scaled up to 0.8. Long moves are scaled down to it."""
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine())
    x = torch.zeros(3000, 3, dtype=torch.long)
    logits = random_logits(x)
    auto, small, long = (
        usd3.Corrector(1, size, None)(run_of(d, logits, x), [1.0, 0.5, 0.0])(x, 0) for size in ("auto", 1e-3, 1e6)
    )
    assert torch.equal(auto, small)
    assert (auto != x).double().mean() < 0.02
    assert 0.1 < (long != x).double().mean() < 0.8


def test_no_element_jumps_with_more_than_the_cap():
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine())
    x = torch.zeros(2000, 3, dtype=torch.long)
    logits, time = random_logits(x[:1]).expand(2000, 3, 4), torch.full((2000,), 0.5, dtype=torch.float64)
    level, jumps = d.level(time, x), corrector_jumps(d, time, x).scaled(50.0)
    mass = fused.jump_mass(logits, x, d.noise, level, jumps, None, "eager", Checks(True))[0]
    run = run_of(d, logits, x)
    new = ask_and_draw_capped(run, x, time, level, jumps, run.uniforms(x))
    torch.testing.assert_close((new != x).double().mean(0), 0.8 * mass / mass.max(), rtol=0, atol=0.05)
