"""The moving average of the weights."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from usd3.training.ema import Ema


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def test_the_average_follows_the_ramp():
    module = torch.nn.Linear(1, 1, bias=False)
    ema, trainer = Ema(0.5), SimpleNamespace(global_step=0)
    torch.nn.init.zeros_(module.weight)
    ema.on_fit_start(trainer, module)
    ema.on_train_start(trainer, module)
    expected = 0.0
    for step in range(1, 30):
        trainer.global_step = step
        torch.nn.init.constant_(module.weight, float(step))
        for _ in range(2):  # the second part of an accumulated batch moves nothing
            ema.on_train_batch_end(trainer, module, None, None, 0)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    assert ema.averages[0].item() == pytest.approx(expected)
    with ema.averaged(module):
        assert module.weight.item() == pytest.approx(expected)
    assert module.weight.item() == 29


@pytest.mark.parametrize("decay", [0.0, 0.1, 0.99])
def test_a_rate_on_the_device_moves_the_averages_as_a_number_does(decay):
    found = []
    for as_tensor in (False, True):
        model, ema = network(), Ema(decay)
        ema.on_fit_start(None, model)
        move = ema.hand_over(model)
        for step in range(1, 20):
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(step / 7)
            move(torch.tensor(ema.rate(step)) if as_tensor else ema.rate(step))
        found.append(ema.averages)
    torch.testing.assert_close(*found)
    if decay == 0:
        assert all(torch.equal(a, p) for a, p in zip(ema.averages, model.parameters()))
