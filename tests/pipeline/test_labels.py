"""Labels of a pipeline: by name and number, in conditions, in bounds and predictions."""

import numpy as np
import pytest
import torch
from torch import nn

from usd3.core.options import DiffusionConfig
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.labels import label_rows, split_where
from usd3.pipeline.pipeline import Pipeline

NAMES = {"label": ["cat", "dog", "a, b"]}
TWO = {"label": ["cat", "dog"], "size": ["small", "large"]}


class Follows(nn.Module):
    """Category 1 + the class is sure; without a label all categories are equally likely."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(8.0))
        self.rows = []

    def forward(self, x_t, t, label=None):
        self.rows.append(len(x_t))
        label = torch.full((len(x_t), 1), -1) if label is None else label
        logits = torch.zeros(*x_t.shape, 5)
        known = label[:, 0] >= 0
        logits[known, :, :] += self.weight * nn.functional.one_hot(1 + label[known, 0], 5)[:, None]
        return logits


@pytest.fixture
def pipeline():
    config = PipelineConfig(4, [3], diffusion=DiffusionConfig(noise="absorbing"), model=ModelConfig(hollow=False))
    config.labels = NAMES
    return Pipeline(config, Follows())


def test_a_condition_names_labels_and_leaves_the_rest(pipeline):
    kind = pipeline.kind
    assert split_where("label=cat", NAMES, kind) == ({"label": "cat"}, None)
    assert split_where({"label": 1}, NAMES, kind) == ({"label": 1}, None)
    assert split_where('label="a, b"', NAMES, kind) == ({"label": "a, b"}, None)
    assert split_where("age=3", {}, kind) == (None, "age=3")
    with pytest.raises(
        ValueError, match=r"name in where = lable: expected one of label \(is label meant\?\), as in label=cat"
    ):
        split_where("lable=cat", NAMES, kind)
    for wrong in ("label!=cat", "label=cat,label=dog", "label"):
        with pytest.raises(ValueError, match=r"where = .*: expected NAME=CLASS for a label, once"):
            split_where(wrong, NAMES, kind)


def test_the_labels_of_objects_as_numbers():
    assert label_rows(None, NAMES, 2) is None
    for given in ({"label": "dog"}, "label=dog", {"label": 1}, "label=1", ["dog", "dog"], [1, 1], np.array([[1], [1]])):
        assert label_rows(given, NAMES, 2).tolist() == [[1], [1]]
    assert label_rows(["cat", None], NAMES, 2).tolist() == [[0], [-1]]
    assert label_rows(torch.tensor([2, -1]), NAMES, 2).tolist() == [[2], [-1]]
    assert label_rows({"size": "large"}, TWO, 1).tolist() == [[-1, 1]]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"label": "catt"}, r"label = catt: expected one class, of cat, dog, a, b \(is cat meant\?\)"),
        ({"label": "cat|dog"}, r"label = cat\|dog: expected one class, of cat"),
        ({"labels": "cat"}, r"name in labels = labels: expected one of label \(is label meant\?\)"),
        ([0, 3], r"label in labels = \[3\]: expected 0\.\.2, or -1"),
        ([0], r"labels = int64 \(1, 1\): expected integers \(2, 1\)"),
        (["label"], "expected one class"),
        (1, r"labels = 1: expected integers \(2, 1\), or label=cat for all objects"),
        ([[0], [0, 1]], r"labels = .*: expected integers \(2, 1\)"),
    ],
)
def test_wrong_labels_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        label_rows(labels, NAMES, 2)
    with pytest.raises(ValueError, match=r"labels = .*: expected None, as the model was trained on data without"):
        label_rows({"label": "cat"}, {}, 2)


def test_where_names_are_numbers_a_text_is_a_name():
    names = {"label": ["1", "2"]}
    assert label_rows("label=1", names, 1).tolist() == [[0]]
    assert label_rows([1], names, 1).tolist() == [[1]]  # integers are numbers of classes
    with pytest.raises(ValueError, match="label = 0: expected one class, of 1, 2"):
        label_rows("label=0", names, 1)


def test_objects_of_a_class_are_drawn(pipeline):
    for where in ({"label": "dog"}, "label=dog", "label=1"):
        assert (pipeline.sample(30, 4, where=where) == 2).float().mean() > 0.98
    x = pipeline.sample(labels=["cat", "dog", "a, b"], num_steps=4, top_k=1)
    assert x.tolist() == [[1] * 3, [2] * 3, [3] * 3]
    assert len(pipeline.sample(100, 4).unique()) == 4
    assert (pipeline.generate(5, where="label=cat", num_steps=4, top_k=1) == 1).all()
    pipeline.require_where("label=cat")
    with pytest.raises(ValueError, match="label = fox"):
        pipeline.require_where("label=fox")
    with pytest.raises(ValueError, match=r"labels = .*: expected None where `where` names a label"):
        pipeline.sample(2, where="label=cat", labels=[0, 0])


def test_guidance_by_a_label_asks_about_twice_the_objects_in_half_the_batch(pipeline):
    pipeline.sample(10, 1, where="label=dog", guidance_scale=2.0, batch_size=5)
    assert pipeline.model.rows == [10, 10]
    pipeline.model.rows.clear()
    logits = pipeline.diffusion.noise.num_classes * 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("usd3.pipeline.pipeline._LOGITS_AT_ONCE", {"cpu": 10 * logits})
        pipeline.sample(10, 1, where="label=dog", guidance_scale=2.0)
    assert pipeline.model.rows == [10, 10]
    for nothing in ({}, {"labels": [-1, -1]}, {"where": "label="}):
        with pytest.raises(ValueError, match=r"guidance_scale = 2\.0: expected 1 where nothing is given and no label"):
            pipeline.sample(2, 1, guidance_scale=2.0, **nothing)
    with pytest.raises(ValueError, match=r"guidance_scale = 2\.0: expected 1 where nothing is given"):
        pipeline.sample(
            tokens=torch.zeros(2, 3, dtype=torch.long), given=torch.zeros(3, dtype=torch.bool), guidance_scale=2.0
        )


def test_the_bound_and_predictions_know_the_label(pipeline):
    dogs = torch.full((4, 3), 2)
    right, none, wrong = (pipeline.bound(dogs, labels=labels) for labels in ([1] * 4, None, [0] * 4))
    assert (right < 0.1).all()
    assert none.mean() == pytest.approx(3 * np.log(4), rel=0.05)
    assert (wrong > 20).all()
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    probs = pipeline.predict(torch.zeros(2, 3, dtype=torch.long), nothing, labels=["cat", "dog"])
    assert probs[:, 0].argmax(-1).tolist() == [1, 2]
    with pytest.raises(ValueError, match="name = kind: expected one of label"):
        pipeline.predict_label(dogs, name="kind")


def test_predictions_take_the_options_of_draws(pipeline):
    known = torch.zeros(1, 3, dtype=torch.bool)
    bias = [0.0, 1.0, 0.0, 0.0]
    probs = pipeline.predict(torch.zeros(1, 3, dtype=torch.long), known, bias=bias, temperature=0.5)[0, 0]
    torch.testing.assert_close(probs, torch.softmax(torch.tensor(bias) / 0.5, -1))
    probs = pipeline.predict(torch.zeros(1, 3, dtype=torch.long), known, bias=bias, top_k=1)[0, 0]
    assert probs.tolist() == [0, 1, 0, 0]
    shifted = pipeline.predict(
        torch.zeros(1, 3, dtype=torch.long), known, adjust=lambda logits, x, t: logits + torch.tensor([0, 0, 3.0, 0, 0])
    )
    assert shifted[0, 0].argmax() == 2


def test_conditions_on_elements_follow_the_options_of_draws_too(pipeline):
    """Elements under a condition are drawn from predictions: bias, top_k and label count there."""
    where = torch.ones(3, 4)
    where[0, 0] = 0  # element 0 has not category 0
    x = pipeline.sample(60, 4, where=where, bias=[0.0, 0.0, 9.0, 0.0])
    assert (x[:, 0] == 2).float().mean() > 0.97
    for labels in ({"label": "a, b"}, 'label="a, b"'):
        x = pipeline.sample(20, 4, where=where, labels=labels)
        assert (x[:, 0] == 3).all()


def test_a_range_alone_is_followed_only_where_its_values_are_drawn_first(pipeline):
    where = torch.ones(3, 4)
    where[0, 2:] = 0
    x = pipeline.sample(40, 4, where=where, guidance_scale=2.0)
    assert (x[:, 0] < 2).all()
    uniform = PipelineConfig(4, [3], diffusion=DiffusionConfig(noise="uniform"), model=ModelConfig(hollow=False))
    other = Pipeline(uniform, nn.Sequential(nn.Embedding(4, 4)))
    other.model.forward = lambda x_t, t: torch.zeros(*x_t.shape, 4)
    with pytest.raises(ValueError, match=r"guidance_scale = 2\.0: expected 1, or a label, or a single value"):
        other.sample(4, 2, where=where, guidance_scale=2.0)
