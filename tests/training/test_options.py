"""Settings made in Python are refused in the words of the options, like those of the command line."""

from dataclasses import fields
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from usd3.cli.bench import BenchOptions
from usd3.cli.export import ExportOptions
from usd3.cli.paper import PaperOptions
from usd3.cli.sample import CorrectorOptions
from usd3.core.options import DiffusionConfig
from usd3.evaluation.settings import EvaluationSettings
from usd3.kinds.options import DataConfig
from usd3.methods.options import MethodConfig
from usd3.nets import Transformer
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.training.classifier import ClassifierConfig
from usd3.training.options import TrainingConfig
from usd3.training.vqgan import VQGANConfig

PARTS = {
    DataConfig: "data.",
    DiffusionConfig: "diffusion.",
    TrainingConfig: "training.",
    CorrectorOptions: "corrector.",
}
NEEDED = {PipelineConfig: {"num_classes": 3, "shape": [4]}}
CHOICES = [
    (kind, field.name)
    for kind in (*PARTS, ClassifierConfig, VQGANConfig, BenchOptions, ExportOptions, PaperOptions, PipelineConfig)
    for field in fields(kind)
    if "Literal" in str(get_type_hints(kind)[field.name])
]


def choices(kind: type, name: str) -> list[str]:
    hint = get_type_hints(kind)[name]
    found = [hint] if get_origin(hint) is Literal else [one for one in get_args(hint) if get_origin(one) is Literal]
    return [choice for one in found for choice in get_args(one)]


@pytest.mark.parametrize(("kind", "name"), CHOICES)
def test_a_choice_that_is_not_known_is_refused_and_asked_about(kind, name):
    for choice in choices(kind, name):
        wrong = f"{choice}x"
        with pytest.raises(ValueError, match=rf"^{PARTS.get(kind, '')}{name} = ") as refused:
            kind(**NEEDED.get(kind, {}), **{name: wrong})
        assert choice in str(refused.value)
        assert "\n" not in str(refused.value)


def test_a_misspelt_source_is_asked_about():
    with pytest.raises(ValueError, match=r"^data.source = aray: expected one of array, bach, .* \(is array meant\?\)$"):
        DataConfig(source="aray")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrainingConfig(lr="fast"), "training.lr is a str: expected a number"),
        (lambda: TrainingConfig(compile="no"), "training.compile is a str: expected true or false"),
        (lambda: TrainingConfig(betas=(0.9,)), "training.betas is a tuple: expected a list, each a number"),
        (lambda: TrainingConfig(devices=1.5), "training.devices is a float: expected a whole number or auto"),
        (lambda: ModelConfig(dim="7"), "model.dim is a str: expected a whole number"),
        (lambda: ModelConfig(net=Transformer), "model.net is the class Transformer: expected a text"),
        (lambda: MethodConfig(options=[1]), "method.options is a list: expected a mapping"),
        (lambda: DiffusionConfig(schedule_options={"beta": "x"}), "diffusion.schedule_options is a dict: expected"),
        (lambda: DataConfig(music=1), "data.music is a int: expected true or false"),
        (lambda: EvaluationSettings(runs=2.0), "runs is a float: expected a whole number"),
    ],
)
def test_a_value_of_another_kind_is_refused(make, message):
    with pytest.raises(TypeError, match=f"^{message}"):
        make()


def test_numbers_of_numpy_and_paths_are_welcome(tmp_path):
    config = DataConfig(source="array", path=tmp_path, length=np.int64(8), test_fraction=np.float32(0.5))
    assert config.path == str(tmp_path)
    assert TrainingConfig(lr=1, betas=[0.9, 0.95]).lr == 1


def test_learning_rates():
    def rates(*steps, **config):
        made = TrainingConfig(**{"steps": 100, "warmup": 10} | config)
        return [made.learning_rate(step) for step in steps]

    assert rates(0, 4, 9, 10, decay="constant") == pytest.approx([0.1, 0.5, 1, 1])
    assert rates(10, 55, 100, 120, decay="cosine") == pytest.approx([1, 0.5, 0, 0])
    assert rates(10, 55, 100, decay="linear") == pytest.approx([1, 0.5, 0])
    assert rates(19, 20, 45, decay="halve", halve_every=20) == pytest.approx([1, 0.5, 0.25])
    assert rates(0, decay="constant", warmup=0) == [1]
    assert rates(9, 24, decay="constant", warmup=50) == pytest.approx([0.4, 1])  # at most a quarter of the steps
    assert rates(9, 24, decay="halve", warmup=50) == pytest.approx([0.2, 0.5])  # counted in steps, like the halving


def test_learning_rates_follow_the_clock_where_it_is_ahead_of_the_steps():
    config = TrainingConfig(steps=1000, warmup=100, decay="linear")
    assert config.learning_rate(9, 0.5) == pytest.approx(0.5)  # the rise takes a quarter of the time at most
    assert config.learning_rate(9, 0.05) == pytest.approx(0.2 * 0.95)
    assert config.learning_rate(39, 0.05) == pytest.approx(0.4 * 0.95)
    assert config.learning_rate(550, 0.1) == config.learning_rate(550)
    assert [config.learning_rate(300, spent) for spent in (1.0, 1.2)] == [0, 0]
    halving = TrainingConfig(steps=1000, warmup=100, decay="halve")
    assert halving.learning_rate(9, 0.5) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"accumulate": 2}, "training.accumulate 2"),
        ({"strategy": "ddp"}, "training.strategy ddp"),
        ({"devices": 2}, "training.devices 2"),
        ({"nodes": 2}, "training.nodes 2"),
        ({"accelerator": "cpu"}, "training.accelerator cpu"),
        ({"compile": True, "compile_mode": "reduce-overhead"}, "training.compile_mode reduce-overhead"),
    ],
)
def test_settings_that_allow_no_graph_are_refused_with_always(change, setting):
    with pytest.raises(ValueError, match=rf"training\.cuda_graph = always: expected auto or never with {setting}"):
        TrainingConfig(cuda_graph="always", **change)
    for mode in ("auto", "never"):
        assert TrainingConfig(cuda_graph=mode, **change).graph_hindrances == [setting]


def test_an_unknown_choice_is_refused():
    with pytest.raises(ValueError, match=r"training\.cuda_graph = yes: expected one of auto, always, never"):
        TrainingConfig(cuda_graph="yes")
