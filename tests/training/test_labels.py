"""Labels and absent elements in training."""

import dataclasses

import numpy as np
import pytest
import torch

import usd3
from support.runs import tiny_recipe
from usd3.core.model import bound_keywords
from usd3.methods import METHODS
from usd3.pipeline.pipeline import Pipeline
from usd3.training.labels import LabelTraining, with_absences
from usd3.training.options import TrainingConfig
from usd3.training.run import fit


class Net(torch.nn.Module):
    """Remembers the labels it was asked with; predicts class 1 with log odds 2."""

    labels = (2,)

    def forward(self, x_t, t, label, label_out, given=None):
        self.seen = label
        label_out.append(torch.tensor([0.0, 2.0]).expand(len(x_t), 2))
        return torch.zeros(*x_t.shape, 3)


def test_a_share_of_the_labels_is_absent_and_these_are_predicted():
    torch.manual_seed(0)
    truth, net = torch.tensor([[0], [1]] * 50 + [[-1]] * 100), Net()
    counts = []
    for _ in range(30):
        training = LabelTraining(net, truth, 0.25)
        training(torch.zeros(200, 2, dtype=torch.long), torch.zeros(200))
        dropped = net.seen != truth
        counts.append(int(training.dropped.sum()))
        assert (net.seen[dropped] == -1).all()
        known = training.dropped[:, 0] & (truth[:, 0] >= 0)
        share = truth[known, 0].float().mean()
        expected = share * np.log1p(np.exp(-2)) + (1 - share) * np.log1p(np.exp(2))
        torch.testing.assert_close(training.label_nats(), expected)
    assert set(counts) <= {49, 50, 51}  # evenly spread
    everywhere = torch.stack([LabelTraining(net, truth, 0.25).dropped[:, 0] for _ in range(400)]).float().mean(0)
    assert (everywhere - 0.25).abs().max() < 0.13  # 6 standard errors: each object is as likely as any other


def test_labels_that_are_known_in_no_dropped_object_cost_nothing():
    training = LabelTraining(Net(), torch.full((4, 1), -1), 0.9)
    training(torch.zeros(4, 2, dtype=torch.long), torch.zeros(4))
    assert training.label_nats() == 0


def test_given_elements_of_some_objects_are_absent():
    torch.manual_seed(0)
    given = torch.tensor([True, False, True]).expand(400, 3)
    model = with_absences(lambda x, t, absent: x, given, None, TrainingConfig(absent=0.3))
    absent = bound_keywords(model)["absent"]
    assert not absent[:, 1].any()
    assert torch.equal(absent[:, 0], absent[:, 2])
    assert 0.2 < absent[:, 0].float().mean() < 0.4
    plain = with_absences(Net(), given, None, TrainingConfig())
    assert isinstance(plain, Net)


@pytest.mark.parametrize(
    ("name", "steps", "expected"), [("usd3", None, 1.001), ("usd3", 50, 0.021), ("rdm", 50, 1.0), ("d3pm", 50, 0.02)]
)
def test_a_nat_of_a_label_weighs_like_a_nat_of_an_element(name, steps, expected):
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), steps)
    assert METHODS[name](d).nat_weight == pytest.approx(expected)


def labelled_recipe(folder, **training):
    """Objects of class 0 count up, those of class 1 count down."""
    up = (np.arange(8) + np.arange(60)[:, None]) % 5
    rows, label = np.concatenate([up, up[:, ::-1]]), np.repeat([0, 1], 60)
    order = np.random.default_rng(0).permutation(120)
    rows, label = rows[order], label[order]
    arrays = {"train": rows[:100], "test": rows[100:], "train_label": label[:100], "test_label": label[100:]}
    np.savez(folder / "data.npz", **arrays, label_classes=np.array(["up", "down"]))
    recipe = tiny_recipe(folder, **training)
    recipe.model.hollow = False
    return recipe


def test_a_model_learns_its_labels_and_resumes_with_the_same_ones(tmp_path):
    recipe = labelled_recipe(tmp_path, steps=250, batch_size=32, lr=1e-2, validate_every=0, checkpoint_every=250)
    recipe.diffusion.num_steps, recipe.diffusion.noise, recipe.diffusion.schedule = None, "absorbing", "linear"
    recipe.model.dim, recipe.model.depth, recipe.model.dropout = 32, 2, 0.0
    pipeline = fit(recipe, tmp_path / "run", progress=False)
    assert pipeline.config.labels == {"label": ["up", "down"]}
    for label, step in (("up", 1), ("down", 4)):
        x = pipeline.sample(40, 20, where={"label": label}, sampler="first_hitting")
        assert (((x[:, 1:] - x[:, :-1]) % 5) == step).float().mean() > 0.5  # by chance 0.2
    data = recipe.data.load().test
    probs = pipeline.predict_label(data.tokens)
    assert (probs.argmax(1) == data.labels[:, 0]).float().mean() > 0.9
    assert (pipeline.predict_label(data.tokens, t=1.0).max(1).values < 0.8).all()  # nothing is seen at t = 1
    nats = [
        pipeline.bound(data.tokens, labels=labels).mean() for labels in (data.labels[:, 0], None, 1 - data.labels[:, 0])
    ]
    assert nats[0] < nats[1] < nats[2]
    log = next((tmp_path / "run").rglob("metrics.csv")).read_text()
    assert "label_nats" in log.splitlines()[0]
    arrays = dict(np.load(tmp_path / "data.npz"))
    np.savez(tmp_path / "data.npz", **arrays | {"label_classes": np.array(["down", "up"])})
    more = dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, steps=252))
    with pytest.raises(ValueError, match=r"labels of .*start a new run"):
        fit(more, tmp_path / "run", resume=True, progress=False)
    np.savez(tmp_path / "data.npz", **arrays)
    fit(more, tmp_path / "run", resume=True, progress=False)
    assert Pipeline.from_pretrained(tmp_path / "run").config.steps == 252


def test_absent_elements_in_training_and_in_guidance(tmp_path):
    recipe = tiny_recipe(tmp_path, absent=0.5, steps=2)
    pipeline = fit(recipe, tmp_path / "run", progress=False)
    assert pipeline.config.absent
    seen = []
    pipeline.bare_network.register_forward_pre_hook(lambda _, args, kwargs: seen.append(kwargs), with_kwargs=True)
    given = torch.arange(8) < 3
    pipeline.sample(tokens=torch.zeros(2, 8, dtype=torch.long), given=given, guidance_scale=2.0, num_steps=1)
    assert torch.equal(seen[0]["absent"], torch.cat([torch.zeros(2, 8, dtype=torch.bool), given.expand(2, 8)]))
    changed = dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, absent=0.0, steps=4))
    with pytest.raises(ValueError, match=r"training\.absent above 0"):
        fit(changed, tmp_path / "run", resume=True, progress=False)


def test_fit_takes_the_class_of_each_object(tmp_path):
    rows = (np.arange(6) + np.arange(40)[:, None]) % 5
    small = {"dim": 16, "depth": 1, "heads": 2}
    quick = {"steps": 2, "validate_every": 0}
    words = ["up"] * 20 + ["down"] * 20
    model = usd3.fit(rows, labels=words, progress=False, model=small, training=quick)
    assert model.config.labels == {"label": ["down", "up"]}
    assert model.generate(2, where={"label": "up"}).shape == (2, 6)
    model = usd3.fit(["ACGT", "AAGT", "CCGT", "ACGG"] * 5, labels=[0, 1, 1, 0] * 5, kind="sequence", progress=False,
                     model=small, training=quick)  # fmt: skip
    assert model.config.labels == {"label": ["0", "1"]}
    for data, more, message in (
        (rows, {"labels": [1, 0]}, r"labels = int64 \(2,\): expected integers \(40,\)"),
        (rows, {"data": {"labels": True}}, r"data\.labels = True: expected null or false: the argument `labels`"),
        ("some text " * 50, {"labels": [1], "kind": "text"}, "labels = given: expected None for texts"),
    ):
        with pytest.raises(ValueError, match=message):
            usd3.fit(data, progress=False, model=small, training=quick, **more)
