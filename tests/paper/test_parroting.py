"""The script that trains until melodies are known by heart, on a tiny scale."""

import csv
import json

import numpy as np
import pytest
import torch
from studies.parroting import parroting
from studies.parroting.parroting import Objects

from support.runs import weights_of
from usd3.pipeline.pipeline import Pipeline

HEAD, OTHER = [1, 2, 3, 4], [4, 3, 2, 1]
TRAIN = np.array([[*HEAD, 5, 5, 5, 5], [*HEAD, 6, 6, 6, 6], [*OTHER, 7, 7, 7, 7], [*OTHER, 8, 8, 8, 8], [9] * 8])


def test_held_out_objects_begin_like_training_objects_and_go_on_differently():
    held_out = np.array([[*HEAD, 5, 5, 5, 0], [*HEAD, 0, 0, 0, 0], [*OTHER, 7, 7, 0, 0], [3] * 8])
    objects = parroting.chosen(Objects(TRAIN, held_out), 4, 0.5, 4)
    assert objects.held_out.tolist() == held_out[1:3].tolist()
    assert objects.train.tolist() == TRAIN[:4].tolist()
    more = parroting.chosen(Objects(TRAIN, held_out), 4, 1.0, 3)
    assert more.held_out.tolist() == held_out[1:2].tolist()
    assert len(more.train) == 3
    assert more.train[:2].tolist() == TRAIN[:2].tolist()
    with pytest.raises(ValueError, match=r"train = 3: expected 4\.\.5"):
        parroting.chosen(Objects(TRAIN, held_out), 4, 0.5, 3)
    with pytest.raises(ValueError, match="held-out objects = 0: expected some that begin like training objects"):
        parroting.chosen(Objects(TRAIN, held_out[3:]), 4, 0.5, 4)


def test_one_melody_of_each_beginning_is_held_out():
    objects = parroting.by_beginning(np.concatenate([TRAIN, TRAIN[:1], [[9] * 7 + [0]]]), 4)
    assert objects.held_out.tolist() == TRAIN[[0, 2]].tolist()
    assert objects.train.tolist() == TRAIN[[1, 3]].tolist()


def test_copies_and_the_truth_are_told_apart():
    objects = Objects(TRAIN, np.array([[*HEAD, 0, 1, 2, 3], [*OTHER, 0, 1, 0, 1]]))
    truth, copy = parroting.references(objects, 4)
    assert (truth["3g_hellinger_to_test"], truth["3g_hellinger_literal"], truth["copied"]) == (0, 0, 0)
    assert (truth["3g_hellinger_swapped"], truth["nearest_edit"]) == (None, 1)
    assert (copy["copied"], copy["nearest_edit"]) == (1, 0)
    assert copy["3g_hellinger_to_train"] < copy["3g_hellinger_to_test"] == 1  # the mean of two, of which one is copied
    shared = parroting.shared_of(objects, 4)
    half = torch.stack([shared.train[[0, 2]], shared.truth])
    assert parroting.compared(half, shared)["copied"] == 0.5


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("songs.npz", train=np.tile(TRAIN, (1, 2)), parrot=np.array([HEAD + [0, 1, 2, 3] * 3, OTHER + [0] * 12]))
    (tmp_path / "tiny.yaml").write_text(
        "model: {dim: 16, depth: 1, heads: 2, mlp: 16, time_dim: 8}\ntraining: {ema: 0.9, accelerator: cpu}\n"
    )
    sizes = "--train 5 --length 16 --prefix 4 --batch_size 5 --runs 2 --steps 2 --times 2 --recipes tiny.yaml"
    return ["songs.npz", *sizes.split(), "--methods", "usd3+discrete mdlm"]


def test_stages_are_parts_of_one_training(command, tmp_path, capsys):
    parroting.main([*command, "--out", "parts", "--stages", "4"])
    command[-1] = "mdlm"
    capsys.readouterr()
    parroting.main([*command, "--out", "parts", "--stages", "4 6 8"])
    assert len(capsys.readouterr().out.splitlines()) == 2  # the stage that was measured is not run again
    with open("parts/table.csv") as file:
        *rows, truth, copy = csv.DictReader(file)
    stages = [("usd3+discrete", "4", "4"), *(("mdlm", steps, steps) for steps in ("4", "6", "8"))]
    assert [(row["method"], row["steps"], row["epochs"]) for row in rows] == stages
    assert (truth["method"], copy["method"]) == ("the truth", "a training object")
    assert all(float(row["bits_train"]) > 0 and float(row["bits_held_out"]) > 0 for row in rows)
    assert (tmp_path / "parts/parroting.png").stat().st_size > 0
    assert json.loads((tmp_path / "parts/results.json").read_text())["held_out"] == 2

    parroting.main([*command, "--out", "again", "--stages", "4 8"])
    weights = [weights_of(Pipeline.from_pretrained(f"{folder}/runs/mdlm")) for folder in ("parts", "again")]
    assert torch.equal(*weights)
    with pytest.raises(ValueError, match="seed = 7: expected 1, as in parts"):
        parroting.main([*command, "--out", "parts", "--seed", "7"])
