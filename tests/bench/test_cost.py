"""What `usd3 cost` measures: network calls are counted, and the clock is a fake one."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from support.runs import tiny_recipe
from usd3._internal.graphs import SETTLED
from usd3.bench import clock
from usd3.bench.clock import BlockClock
from usd3.bench.cost import CostSettings, _sampling_ms, measure_cost, random_tokens, require_measurable
from usd3.core.options import DiffusionConfig
from usd3.core.samplers import Corrector
from usd3.methods.options import MethodConfig
from usd3.training.run import pipeline_for

CPU = torch.device("cpu")
METHODS = {
    "usd3": (MethodConfig(), DiffusionConfig(num_steps=20), {}),
    "sedd": (MethodConfig("sedd"), DiffusionConfig(schedule="loglinear"), {"hollow": False}),
    "mdlm": (MethodConfig("mdlm"), DiffusionConfig("absorbing", "linear"), {"hollow": False, "timeless": True}),
    "gillespie": (MethodConfig(sampler="gillespie"), DiffusionConfig(), {}),
}
SETTINGS = CostSettings(steps=5, draw=4, draw_steps=20, timed_draw_steps=5, objects=100, corrector_steps=3)


def recipe_of(name, folder, **training):
    recipe = tiny_recipe(folder, **training)
    recipe.method, recipe.diffusion, own = METHODS[name]
    for option, value in own.items():
        setattr(recipe.model, option, value)
    return recipe


def counting(name, folder):
    """A pipeline, and the number of objects in each call of its network."""
    recipe = recipe_of(name, folder)
    pipeline, calls = pipeline_for(recipe, recipe.data.load()), []
    pipeline.model.register_forward_pre_hook(lambda module, inputs: calls.append(len(inputs[0])))
    return pipeline, calls


@pytest.fixture
def ticking(monkeypatch):
    """Every look at the clock finds it a second later."""
    seconds = itertools.count()
    monkeypatch.setattr(clock, "settled_now", lambda device: float(next(seconds)))


def test_a_clock_looks_at_the_ends_of_its_blocks_alone(monkeypatch):
    times = iter([10.0, 13.0, 14.0, 24.0])
    monkeypatch.setattr(clock, "settled_now", lambda device: next(times))
    found = BlockClock("cpu", 2, 7, blocks=3)
    for done in (1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10):  # parts of an accumulated batch repeat the number
        assert found.over == (done == 10 or (done == 9 and len(found.times) == 4))
        found(done)
    assert found.ends == [2, 4, 6, 9]
    assert found.ms == pytest.approx([1500.0, 500.0, 10000 / 3])
    assert BlockClock("cpu", 3, 2, blocks=5).ends == [3, 4, 5]
    assert all(math.isnan(peak) for peak in found.peaks)


def test_the_corrector_costs_its_moves(tmp_path):
    pipeline, calls = counting("usd3", tmp_path)
    _, size, timed = _sampling_ms(pipeline, 4, SETTINGS)
    assert (size, timed, calls) == (4, 5, [4] * (SETTLED + 5))
    calls.clear()
    _sampling_ms(pipeline, 4, SETTINGS, Corrector(3, last=None))
    assert calls == [4] * (SETTLED + 5) * (1 + 3)


def test_hours_are_those_of_all_steps_and_all_objects(tmp_path, ticking):
    found = measure_cost(recipe_of("usd3", tmp_path, steps=7200), SETTINGS, CPU)
    assert (found.draw, found.timed_draw_steps) == (4, 5)
    values = found.as_dict()["values"]
    assert values["train_ms"] == {"mean": 1000.0, "std": 0.0}  # blocks of one step, a second each
    assert values["train_hours"]["mean"] == pytest.approx(2.0)
    assert values["train_mib"] == {"mean": None, "std": None}
    for name in ("sample_hours", "sample_hours_corrected"):
        assert values[name]["mean"] == pytest.approx(20 * 100 / 4 / 3600)


@pytest.mark.parametrize("compile", [False, True])
def test_sampling_is_compiled_where_training_is(compile, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr("usd3.training.module.compiled", lambda loss, mode: loss)
    monkeypatch.setattr("usd3.pipeline.pipeline.Compiled", lambda net: made.append(net) or net)
    measure_cost(recipe_of("usd3", tmp_path, compile=compile), replace(SETTINGS, timed_draw_steps=1), CPU)
    assert len(made) == compile


def test_all_steps_are_run_where_they_differ(tmp_path, ticking):
    pipeline, calls = counting("mdlm", tmp_path)
    ms, _, timed = _sampling_ms(pipeline, 4, SETTINGS)
    assert timed == 20
    assert ms == (1000 / 20, 0.0)  # the clock is looked at before the first step and after the last
    whole = calls[-next(i for i, size in enumerate(reversed(calls), start=1) if i > 1 and size == 4) :]
    assert 0 < sum(whole) < 20 * 4  # objects that did not change are left out
    pipeline, _ = counting("gillespie", tmp_path)
    assert _sampling_ms(pipeline, 4, SETTINGS)[2] == 20
    pipeline, _ = counting("usd3", tmp_path)
    assert _sampling_ms(pipeline, 4, CostSettings(draw_steps=8, timed_draw_steps=5))[2] == 8  # there are no more


def test_a_batch_that_does_not_fit_is_timed_as_it_does(tmp_path, monkeypatch, ticking):
    pipeline, _ = counting("usd3", tmp_path)
    drawn = type(pipeline.method).sample

    def small(self, model, shape, *rest, callback, **options):
        def full(step):
            callback(step)
            if step.index == SETTLED + 1 and shape[0] > 4:  # after the clock has begun
                raise torch.OutOfMemoryError

        return drawn(self, model, shape, *rest, callback=full, **options)

    monkeypatch.setattr(type(pipeline.method), "sample", small)
    ms, size, _ = _sampling_ms(pipeline, 8, SETTINGS)
    assert (ms.mean, size) == (1000.0, 4)


def test_without_a_place_for_a_corrector_nothing_is_known(tmp_path):
    found = measure_cost(recipe_of("sedd", tmp_path), SETTINGS, CPU)
    assert found.as_dict()["values"]["sample_hours_corrected"] == {"mean": None, "std": None}
    assert found.values["sample_hours"].mean > 0
    assert found.values["parameters"].mean > 1000


def test_random_tokens_have_the_form_that_is_asked_for(tmp_path):
    data = random_tokens(tmp_path, [2, 3], 300).load()
    assert (data.num_classes, tuple(data.shape)) == (300, (2, 3))
    recipe = recipe_of("usd3", tmp_path)
    require_measurable(recipe, data, CostSettings(draw_steps=20))
    with pytest.raises(ValueError, match="num_steps = 1000"):
        require_measurable(recipe, data, CostSettings())
    require_measurable(recipe, data, CostSettings(timed_draw_steps=0))
