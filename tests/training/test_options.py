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
from usd3.pipeline.pipeline import PipelineConfig
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
