"""`usd3 paper keep` and `run --kept true`: a study of one method that goes on in another place."""

import io
import json
import shutil
import tarfile
from dataclasses import asdict

import numpy as np
import pytest
import yaml

from support.runs import tiny_recipe
from usd3.cli.main import main
from usd3_paper.trainings import _marked

ARCHIVE = "studies/small/trainings.tar.xz"
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
    """The same in other places, with its trainings kept."""
    paper, runs, data = begun
    moved, file = tmp_path / "moved", tmp_path / "data #1" / "moved.npz"  # YAML would take the rest for a comment
    shutil.copytree(paper, moved)
    study = moved / "studies" / "small.yaml"
    study.write_text(study.read_text().replace(str(paper), str(moved)))
    file.parent.mkdir()
    shutil.copy(data, file)
    assert run(paper, "keep", "small", "--out", str(runs / ".." / runs.name)) == 0
    shutil.move(paper / ARCHIVE, moved / ARCHIVE)
    return moved, runs, file


def texts(file):
    with tarfile.open(file) as archive:
        return {name: archive.extractfile(name).read().decode() for name in archive.getnames()}


def kept_names(file):
    return sorted(name.removesuffix("/recipe.yaml") for name in texts(file) if name.endswith("/recipe.yaml"))


def write(file, files):
    with tarfile.open(file, "w:xz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))


def test_a_kept_training_is_not_made_again_in_another_place_and_further_ones_are(kept, tmp_path, capfd):
    paper, runs, data = kept
    words = ["run", "table", "--data", str(data), "--kept", "true", "--out", str(tmp_path / "x" / ".." / "new")]
    assert run(paper, *words, "--trainings", "2") == 0
    said = capfd.readouterr().err
    assert "small begins with kept trainings: compare/one\n" in said
    assert "1 of 2 are trained already" in said
    folder = tmp_path / "new" / "small" / "compare"
    assert not (folder / "one" / "model.safetensors").exists()
    assert (folder / "one-2" / "model.safetensors").is_file()
    first, second = (json.loads((place / "small/results.json").read_text()) for place in (runs, tmp_path / "new"))
    assert first["rows"]["one"]["edit_diversity"] != second["rows"]["one"]["edit_diversity"]  # a mean of two
    before = json.loads((runs / "small/compare/one/comparison.json").read_text())
    after = json.loads((folder / "one" / "comparison.json").read_text())
    assert before.pop("model") != after.pop("model")
    assert before == after
    assert (folder / "training.csv").is_file()  # the logs were kept, too
    assert run(paper, *words, "--trainings", "2") == 0  # the same command goes on
    assert "small has begun in" in capfd.readouterr().err
    assert run(paper, "publish", "small", "--out", str(tmp_path / "new")) == 0
    assert run(paper, "keep", "small", "--out", str(tmp_path / "new")) == 0
    assert kept_names(paper / ARCHIVE) == ["compare/one", "compare/one-2"]
    capfd.readouterr()
    shutil.rmtree(folder / "one-2")
    assert run(paper, "keep", "small", "--out", str(tmp_path / "new")) == 1
    assert "expected a run that has compare/one-2 too, as trainings.tar.xz has" in capfd.readouterr().err


def test_all_studies_begin_with_what_is_kept(kept, tmp_path, capfd):
    paper, _, data = kept
    assert run(paper, "run", "all", "--data", f"file={data}", "--kept", "true", "--out", str(tmp_path / "new")) == 0
    said = capfd.readouterr().err
    assert "small begins with kept trainings: compare/one\n" in said
    assert "1 of 1 are trained already" in said


def test_an_archive_names_no_folder_of_its_machine(kept):
    paper, runs, _ = kept
    found = texts(paper / ARCHIVE)
    assert kept_names(paper / ARCHIVE) == ["compare/one"]
    assert "compare/one/logs/version_0/metrics.csv" in found
    assert not [name for name in found if name.endswith((".safetensors", ".ckpt"))]
    assert not [name for name, text in found.items() if str(runs.parent) in text]


def test_a_path_is_replaced_as_a_whole():
    parts = {"/data": "<root>", "/data/x.npz": "<data>", "/päth": "<paper>"}
    given = {"a": "/data/run", "b": ["/database/y", "/other/data/z", "usd3+/päth/one.yaml"], "c": "/data/x.npz"}
    wanted = {"a": "<root>/run", "b": ["/database/y", "/other/data/z", "usd3+<paper>/one.yaml"], "c": "<data>"}
    assert json.loads(_marked("a.json", json.dumps(given), parts)) == wanted
    assert yaml.safe_load(_marked("a.yaml", yaml.safe_dump(given), parts)) == wanted


@pytest.mark.parametrize("changed", ["train", "test"])
def test_other_data_are_refused(kept, tmp_path, capsys, changed):
    paper, _, data = kept
    arrays = dict(np.load(data))
    np.savez(data, **(arrays | {changed: arrays[changed][:-1]}))
    words = ["run", "table", "--data", str(data), "--kept", "true", "--out", str(tmp_path / "new")]
    assert run(paper, *words) == 1
    assert "contents of the data = " in capsys.readouterr().err
    assert not (tmp_path / "new" / "small").exists()


def test_other_steps_are_refused(kept, tmp_path, capsys):
    paper, _, data = kept
    words = ["run", "table", "--data", str(data), "--steps", "2", "--out", str(tmp_path / "new")]
    assert run(paper, *words, "--kept", "true") == 1
    assert "steps = 2: expected 8, as the trainings kept in" in capsys.readouterr().err
    assert run(paper, *words) == 0
    assert run(paper, "keep", "small", "--out", str(tmp_path / "new")) == 1
    assert "steps = 2: expected 8, as the trainings kept in" in capsys.readouterr().err


def test_a_machine_with_another_precision_is_refused(kept, tmp_path, capsys):
    paper, _, data = kept
    study = paper / "studies" / "small.yaml"
    study.write_text(study.read_text().replace("runs 2", "runs 2 --training.precision {precision}"))
    found = texts(paper / ARCHIVE)
    state = json.loads(found["study.json"])
    assert state["precision"] == "fp32"
    write(paper / ARCHIVE, found | {"study.json": json.dumps(state | {"precision": "bf16"})})
    assert run(paper, "run", "table", "--data", str(data), "--kept", "true", "--out", str(tmp_path / "new")) == 1
    assert "precision = fp32: expected bf16, as the trainings kept in" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../outside.txt", "/outside.txt"])
def test_a_file_outside_of_the_run_is_refused(kept, tmp_path, capsys, name):
    paper, _, data = kept
    write(paper / ARCHIVE, texts(paper / ARCHIVE) | {name: ""})
    assert run(paper, "run", "table", "--data", str(data), "--kept", "true", "--out", str(tmp_path / "new")) == 1
    assert f"kept = {name}: expected a file in the folder of the study" in capsys.readouterr().err
    assert not (tmp_path / "new" / "small").exists()


def test_a_file_that_is_huge_when_unpacked_is_refused(kept, tmp_path, capsys):
    paper, _, data = kept
    write(paper / ARCHIVE, texts(paper / ARCHIVE) | {"compare/one/zeros.csv": "0" * (2**26 + 1)})
    assert run(paper, "run", "table", "--data", str(data), "--kept", "true", "--out", str(tmp_path / "new")) == 1
    assert "kept = compare/one/zeros.csv: expected a file of at most 67,108,864 bytes" in capsys.readouterr().err


def test_what_is_no_archive_is_refused(kept, tmp_path, capsys):
    paper, _, data = kept
    words = ["run", "table", "--data", str(data), "--kept", "true", "--out", str(tmp_path / "new")]
    found = texts(paper / ARCHIVE)
    del found["study.json"]
    write(paper / ARCHIVE, found)
    assert run(paper, *words) == 1
    assert "trainings.tar.xz: expected what usd3 paper keep writes" in capsys.readouterr().err
    whole = texts(paper / ARCHIVE)
    write(paper / ARCHIVE, whole | {"study.json": "{}"})
    assert run(paper, *words) == 1
    assert "expected what usd3 paper keep writes, with budget, contents, precision, steps" in capsys.readouterr().err
    damaged = bytearray((paper / ARCHIVE).read_bytes())
    damaged[len(damaged) // 2] ^= 255
    (paper / ARCHIVE).write_bytes(damaged)
    assert run(paper, *words) == 1
    assert "trainings.tar.xz: expected what usd3 paper keep writes" in capsys.readouterr().err
    (paper / ARCHIVE).write_bytes(b"no archive")
    assert run(paper, *words) == 1
    assert "trainings.tar.xz: expected what usd3 paper keep writes" in capsys.readouterr().err


def test_what_is_not_there_is_said(begun, tmp_path, capsys):
    paper, _, data = begun
    words = ["--data", str(data), "--kept", "true", "--out", str(tmp_path / "new")]
    assert run(paper, "run", "table", *words) == 1
    assert "kept = True: expected false for small, of which no trainings are kept" in capsys.readouterr().err
    assert run(paper, "keep", "small", "--out", str(tmp_path / "new")) == 1
    assert "new/small: expected a run of small" in capsys.readouterr().err
    assert run(paper, "show", "table", "--kept", "true") == 1
    assert "kept = True: expected an option of run alone" in capsys.readouterr().err


def test_a_study_that_needs_another_is_not_kept(begun, tmp_path, capsys):
    paper, runs, _ = begun
    shutil.copytree(paper, tmp_path / "paper")
    study = tmp_path / "paper" / "studies" / "small.yaml"
    study.write_text(study.read_text() + "needs: [tokens]\n")
    assert run(tmp_path / "paper", "keep", "small", "--out", str(runs)) == 1
    assert "name = small: expected a study by itself; this one needs tokens" in capsys.readouterr().err
