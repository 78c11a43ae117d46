"""What is measured on held-out objects, on data where the answers are known."""

import math
import re

import pytest
import torch

from usd3.evaluation.evaluate import Continuations, continue_held_out, evaluate
from usd3.evaluation.held_out import HeldOut
from usd3.evaluation.results import Evaluation
from usd3.evaluation.settings import EvaluationSettings
from usd3.kinds.dataset import Dataset, Sequences
from usd3.kinds.melody.kind import Melody
from usd3.kinds.options import DataConfig
from usd3.metrics.summary import COLUMNS
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline

K, L, P = 5, 12, 4  # categories, elements, given ones


def counting(starts: list[int]) -> torch.Tensor:
    return (torch.arange(L) + torch.tensor(starts)[:, None]) % K


def pipeline() -> Pipeline:
    torch.manual_seed(0)
    return Pipeline(PipelineConfig(K, [L], model=ModelConfig(dim=16, depth=1, heads=2, time_dim=8), prefix=P))


def measured(dataset: Dataset, generated: torch.Tensor | None = None, **settings):
    chosen, model = EvaluationSettings(**{"runs": 2, "steps": 2, "bound_samples": 2} | settings), pipeline()
    held_out = HeldOut.of(model, dataset, chosen)
    made = continue_held_out(model, held_out, chosen) if generated is None else generated
    return held_out, made, evaluate(model, dataset, held_out, chosen, made)


def test_the_truth_is_at_distance_0_and_a_perfect_chain_too():
    dataset = Dataset("x", K, Sequences(counting([0, 1, 2, 3, 4] * 4)), Sequences(counting([0, 1, 2])))
    _, _, found = measured(dataset, counting([0, 1, 2]).expand(2, -1, -1))
    for row in ("model", "Markov chain", "the truth itself"):
        assert {s.mean for key, s in found.rows[row].items() if key != "edit_diversity"} == {0.0}
    assert found.bits_per_element["Markov chain"] == pytest.approx(0, abs=0.05)
    assert found.bits_per_element["model (upper bound)"] > 1
    assert "the truth itself" in found.as_text()


def test_each_object_has_its_values_and_their_means_are_those_of_the_table():
    tokens, pad = counting([2, 3, 4, 0]), torch.arange(L) >= torch.tensor([L, L - 2, P - 1, L - 1])[:, None]
    test = Sequences(tokens, pad, groups=torch.tensor([7, 7, 8, 9]))
    held_out, _, found = measured(Dataset("x", K, Sequences(counting([0, 1])), test), runs=3)
    assert held_out.groups.tolist() == found.per_object.pop("group") == [7, 7, 9]  # the third ends with the prefix
    assert found.per_object.pop("elements") == [L - P, L - P - 2, L - P - 1]
    bits = sum(found.per_object.pop("nats")) / (3 * (L - P) - 3) / math.log(2)
    assert bits == pytest.approx(found.bits_per_element["model (upper bound)"], rel=1e-7)
    assert set(found.per_object) == set(COLUMNS)
    for key, values in found.per_object.items():
        assert len(values) == 3
        assert sum(values) / 3 == pytest.approx(found.rows["model"][key].mean, rel=1e-7)
    alone = measured(Dataset("x", K, Sequences(counting([0, 1])), Sequences(tokens)), runs=1, bound_samples=0)[2]
    assert set(alone.per_object) == set(COLUMNS) - {"edit_diversity"}
    assert Evaluation({}, 1, 0, {}, per_object={"nats": [1.0, math.inf]}).as_dict()["per_object"] == {"nats": [1, None]}


def test_the_prefix_is_kept_and_counts_or_not():
    dataset = Dataset("x", K, Sequences(counting([0, 1])), Sequences(counting([2, 3, 4])))
    held_out, made, with_prefix = measured(dataset)
    assert torch.equal(made[:, :, :P], held_out.truth[:, :P].expand(2, -1, -1))
    without = measured(dataset, made, include_prefix=False)[2]
    key = "1g_outliers"
    assert without.rows["model"][key].mean == with_prefix.rows["model"][key].mean == 0  # every category occurs
    assert without.rows["model"]["2g_outliers"].mean > with_prefix.rows["model"]["2g_outliers"].mean


def test_objects_that_end_with_the_prefix_are_left_out():
    tokens = counting([0, 1, 2, 3])
    pad = torch.arange(L) >= torch.tensor([L, P + 2, P + 3, P - 1])[:, None]
    dataset = Dataset("x", K, Sequences(counting([0, 1])), Sequences(tokens, pad))
    held_out, made, found = measured(dataset)
    assert torch.equal(held_out.truth, tokens[[0, 2]])
    assert (found.objects, found.skipped) == (2, 2)
    assert torch.equal(made[:, 1, P + 3 :], tokens[None, 2, P + 3 :].expand(2, -1))
    for settings in ({"include_prefix": False}, {"limit": 1}):
        assert measured(dataset, **settings)[2].objects == settings.get("limit", 2)
    short = Dataset("x", K, Sequences(tokens), Sequences(tokens[3:], pad[3:]))
    with pytest.raises(ValueError, match="expected held-out objects with 3 elements or more"):
        measured(short)


def test_parroting_is_seen_where_a_prefix_occurs_in_the_training_data():
    train = counting([0, 1])
    truth = train.clone()
    truth[:, P:] = 4 - truth[:, P:]
    dataset = Dataset("x", K, Sequences(train), Sequences(torch.cat([truth, counting([2])])))
    generated = torch.cat([train, counting([2])])[None]
    found = measured(dataset, generated)[2]
    values = found.parroting["3g Hellinger"]
    assert values["objects"] == 2
    assert values["to_train"] == 0
    assert values["to_test"] > 0
    assert math.isinf(values["literal"])
    assert found.as_dict()["parroting"]["3g Hellinger"]["literal"] is None
    assert "2 prefixes occur in the training data: too few" in found.as_text()
    many = Dataset("x", K, dataset.train, Sequences(truth.repeat(5, 1)))
    text = measured(many, train.repeat(5, 1)[None])[2].as_text()
    assert "train-to-test ratio, on the 10 objects" in text
    assert re.search(r"3g Hellinger +\d.\d{3} +0.000 +inf +0.000$", text, re.MULTILINE)
    padded = Dataset("x", K, Sequences(train, torch.arange(L).expand(2, -1) > 9), dataset.test)
    assert not measured(padded, generated)[2].parroting


def test_other_data_than_the_models_are_refused():
    with pytest.raises(ValueError, match=r"shape of the data = \(3,\): expected \(12,\)"):
        measured(Dataset("x", K, Sequences(counting([0])[:, :3]), Sequences(counting([0])[:, :3])))


def melodies(num: int, beat: int) -> torch.Tensor:
    """Melodies of two equal bars whose notes begin every `beat` steps, or every second of them."""
    pitches = 60 + torch.arange(num * 16 // beat).reshape(num, -1)
    return pitches.repeat_interleave(beat, 1).repeat(1, 2)


def test_melodies_are_also_measured_by_what_holds_them_together():
    held_out = melodies(6, 4)
    dataset = Dataset(
        "x", 129, Sequences(melodies(6, 4)), Sequences(held_out), kind=Melody(129, tuple(held_out.shape[1:]))
    )
    model = Pipeline(PipelineConfig(129, [32], model=ModelConfig(dim=16, depth=1, heads=2, time_dim=8), prefix=4))
    settings = EvaluationSettings(runs=2, steps=2, bound_samples=0, from_nothing=True)
    task = Continuations.of(model, DataConfig("array"), dataset, settings)
    assert task.sizes == {"tokens": 6, "free_tokens": 6}
    drawn = task.draw()
    assert drawn["free_tokens"].shape == drawn["tokens"].shape == (2, 6, 32)
    assert not torch.equal(drawn["free_tokens"][:, :, :4], held_out[:, :4].expand(2, -1, -1))
    found = task.measure(drawn | {"tokens": melodies(6, 2).expand(2, -1, -1)}, settings)
    assert list(found.rows)[:2] == ["model", "model, from nothing"]
    of = {
        name: {key: row[key].mean for key in ("on_beat", "rests", "repeated_bars")} for name, row in found.rows.items()
    }
    assert of["model"] == {"on_beat": 0.5, "rests": 0, "repeated_bars": 0.5}
    assert of["the truth itself"] == {"on_beat": 1, "rests": 0, "repeated_bars": 0.5}
    assert of["model, from nothing"]["repeated_bars"] == 0
    assert "1g_hellinger" not in found.rows["model, from nothing"]
    assert found.free_objects == 6
    titles = r"notes on the beat +notes a bar +rests +bars repeated +notes in key +range"
    assert re.search(rf"{titles}\nmodel +0.500 +8.000 +0.000 +0.500 +0.\d\d\d +7.000\n", found.as_text())
    alone = task.measure({"tokens": drawn["tokens"]}, settings)
    assert "model, from nothing" not in alone.rows


def test_other_data_than_melodies_have_no_metre():
    dataset = Dataset("x", K, Sequences(counting([0, 1])), Sequences(counting([2, 3, 4])))
    chosen = EvaluationSettings(runs=1, steps=2, bound_samples=0, from_nothing=True)
    task = Continuations.of(pipeline(), DataConfig("array"), dataset, chosen)
    assert list(task.sizes) == ["tokens"]
    found = task.measure(task.draw(), chosen)
    assert "on_beat" not in found.rows["model"]
    assert "beat" not in found.as_text()
