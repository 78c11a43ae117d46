"""`usd3 paper keep` and `run --kept true`: a study of two methods that goes on in another place."""

import io
import json
import shutil
import tarfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import yaml

from support.runs import tiny_recipe
from usd3.cli.main import main
from usd3_paper.kept import kept_names

STUDY = """
about: A study.
steps: 8
trainings: {trainings: 1}
data: {expected: an .npz file, file: "{paper}/base.yaml --data.path {path}"}
objects: {file: {shape: [8], categories: 5, held_out: 10}}
words:
  how: >-
    --training.steps {steps} --evaluation.steps 3 --evaluation.runs 2 --evaluation.bound_samples 2 --out {out}/compare
stages:
  - compare {data} --methods "one:usd3+discrete" {how}
  - compare {data} --methods "one:usd3+discrete" --repeats {trainings} {how}
results: {compare: compare}
"""
TABLE = """
title: A table
place: Table 7
study: small
columns: {edit_diversity: edit}
rows: {one: Method}
"""


def run(paper, *words):
    return main(["paper", *words, "--paper", str(paper), "--trust_code", "true"])


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A paper with a run of its study, and its data."""
    folder = tmp_path_factory.mktemp("kept")
    paper = folder / "paper"
    (paper / "studies" / "small").mkdir(parents=True)
    (paper / "table").mkdir()
    text = STUDY.replace("{paper}/base.yaml", str(paper / "base.yaml"))
    (paper / "studies" / "small.yaml").write_text(text)
    (paper / "table" / "table.yaml").write_text(TABLE)
    (paper / "base.yaml").write_text(yaml.safe_dump(asdict(tiny_recipe(folder))))
    data = folder / "data.npz"
    assert run(paper, "run", "table", "--data", str(data), "--out", str(folder / "runs")) == 0
    return paper, folder / "runs", data


@pytest.fixture
def kept(begun, tmp_path):
    """The same with its trainings kept, all in another place."""
    paper, runs, data = begun
    assert run(paper, "keep", "small", "--out", str(runs)) == 0
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(data, other / "moved.npz")
    return paper, runs, other / "moved.npz"


def test_a_kept_training_is_not_made_again_in_another_place_and_further_ones_are(kept, tmp_path, capfd):
    paper, runs, data = kept
    words = ["run", "table", "--data", str(data), "--kept", "true", "--out", str(tmp_path / "new")]
    assert run(paper, *words, "--trainings", "2") == 0
    said = capfd.readouterr().err
    assert "small begins with 1 trainings that were kept: one" in said
    folder = tmp_path / "new" / "small" / "compare"
    assert not (folder / "one" / "model.safetensors").exists()
    assert (folder / "one-2" / "model.safetensors").is_file()
    assert "1 of 2 are trained already" in said
    first, second = (json.loads((place / "small/results.json").read_text()) for place in (runs, tmp_path / "new"))
    assert first["rows"]["one"]["edit_diversity"] != second["rows"]["one"]["edit_diversity"]  # a mean of two
    before = json.loads((runs / "small/compare/one/comparison.json").read_text())
    after = json.loads((folder / "one" / "comparison.json").read_text())
    assert before.pop("model") != after.pop("model")
    assert before == after
    assert (folder / "training.csv").is_file()  # the logs were kept, too
    assert run(paper, *words, "--trainings", "2") == 0  # the same command goes on
    assert run(paper, "keep", "small", "--out", str(tmp_path / "new")) == 0
    capfd.readouterr()
    assert run(paper, "keep", "small", "--out", str(runs)) == 1
    assert "expected a run that has one-2 too, as trainings.tar.xz has" in capfd.readouterr().err
    (paper / "studies" / "small" / "trainings.tar.xz").unlink()


def test_an_archive_names_no_folder_of_its_machine(kept):
    paper, runs, _ = kept
    file = paper / "studies" / "small" / "trainings.tar.xz"
    assert kept_names(file) == ["one"]
    with tarfile.open(file) as archive:
        names = archive.getnames()
        texts = [archive.extractfile(name).read().decode() for name in names]
    assert "study.json" in names
    assert "compare/one/logs/version_0/metrics.csv" in names
    assert not [name for name in names if name.endswith((".safetensors", ".ckpt"))]
    assert not [name for name, text in zip(names, texts) if str(runs.parent) in text]


def test_other_data_are_refused(kept, tmp_path, capsys):
    paper, _, data = kept
    arrays = np.load(data)
    np.savez(data, train=arrays["train"][:40], test=arrays["test"])
    assert run(paper, "run", "table", "--data", str(data), "--kept", "true", "--out", str(tmp_path / "new")) == 1
    assert "train_objects of " in capsys.readouterr().err
    assert not (tmp_path / "new" / "small" / "study.json").exists()


@pytest.mark.parametrize("name", ["../outside.txt", "/outside.txt"])
def test_a_file_outside_of_the_run_is_refused(kept, tmp_path, capsys, name):
    paper, _, data = kept
    with tarfile.open(paper / "studies/small/trainings.tar.xz", "w:xz") as archive:
        for member in (tarfile.TarInfo("compare/one/recipe.yaml"), tarfile.TarInfo(name)):
            archive.addfile(member, io.BytesIO(b""))
    assert run(paper, "run", "table", "--data", str(data), "--kept", "true", "--out", str(tmp_path / "new")) == 1
    assert f"kept = {name}: expected a file in the folder of the study" in capsys.readouterr().err
    assert not Path(tmp_path, "outside.txt").exists()
    (paper / "studies/small/trainings.tar.xz").unlink()


def test_what_is_not_there_is_said(begun, tmp_path, capsys):
    paper, _, data = begun
    (paper / "studies/small/trainings.tar.xz").unlink(missing_ok=True)
    words = ["--data", str(data), "--kept", "true", "--out", str(tmp_path / "new")]
    assert run(paper, "run", "table", *words) == 1
    assert "kept = True: expected false for small, of which no trainings are kept" in capsys.readouterr().err
    assert run(paper, "keep", "small", "--out", str(tmp_path / "new")) == 1
    assert "new/small: expected a run of small" in capsys.readouterr().err
    assert run(paper, "show", "table", "--kept", "true") == 1
    assert "kept = True: expected an option of run alone" in capsys.readouterr().err
