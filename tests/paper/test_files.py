"""The files of the studies: each CSV has a command, and the scripts that the commands name."""

import csv
import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from support.places import ROOT
from usd3.kinds.dataset import Dataset, Sequences
from usd3_paper import Study

STUDIES = ROOT / "paper" / "studies"
CSVS = sorted(path.relative_to(ROOT).as_posix() for path in STUDIES.rglob("*.csv"))


def script(path):
    """A script of the studies as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(path, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", [path.name, *map(str, words)])
    script(path).main()


def cells(file):
    return list(csv.reader(file.read_text().splitlines()))


def commands(page):
    """The commands in the blocks of a page, each in a line."""
    for block in re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        yield from block.replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("path", CSVS)
def test_every_csv_of_the_studies_has_a_command(path):
    """In the README beside it, or above it; or its study publishes it."""
    file = ROOT / path
    study = STUDIES / f"{file.parent.name}.yaml"
    if study.is_file() and any(name.endswith(f"/{file.name}") for name in Study.read(ROOT / "paper", study.stem).files):
        return
    pages = [folder / "README.md" for folder in (file.parent, file.parent.parent)]
    page = next(page for page in pages if page.is_file()).read_text()
    (line,) = [line for line in commands(page) if path in line]
    words = shlex.split(line, comments=True)
    assert words[0] in ("python", "cp")
    if words[0] == "python":
        assert (ROOT / words[1]).is_file()
        assert words[words.index("--out") + 1] == path
    else:  # from the folder of a comparison, a sweep or a script that the page runs
        assert any(f"--out {Path(words[1]).parent} " in f"{other} " for other in commands(page))


@pytest.mark.parametrize("path", [path for path in CSVS if re.search(r"(steps|variants|rates|held-out.*)\.csv", path)])
def test_the_columns_of_a_csv_are_those_of_its_command(path):
    page = ((ROOT / path).parent / "README.md").read_text()
    (line,) = [line for line in commands(page) if path in line]
    words = shlex.split(line, comments=True)
    title = words[words.index("--title") + 1] if "--title" in words else "name"
    columns = [title if word == "name" else word for word in words[words.index("--columns") + 1].split()]
    assert columns == cells(ROOT / path)[0]


def test_evaluations_become_a_csv(tmp_path, monkeypatch):
    cell = {"3g_hellinger": {"mean": 0.62345678, "std": 0.0012}}
    found = {"rows": {"model": cell}, "bits_per_element": {"model (upper bound)": None}, "objects": 60, "data": "d"}
    found |= {
        "settings": {"runs": 1, "steps": 8, "temperature": 0.4},
        "sampling_seconds": 1.0,
        "torch": "2",
        "usd3": "0",
    }
    found |= {"trained": {"parameters": 3, "steps": 50, "minutes": 14.0}}
    (tmp_path / "a.json").write_text(json.dumps(found))
    columns = (
        "name temperature sampling_steps objects steps minutes 3g_hellinger 3g_hellinger_std bits_per_element torch"
    )
    words = ["evaluations", f"a, b={tmp_path / 'a.json'}", "--columns", columns, "--out", tmp_path / "a.csv"]
    call(STUDIES / "to_csv.py", monkeypatch, *words, "--title", "model")
    head, line = cells(tmp_path / "a.csv")
    assert head == ["model", *columns.split()[1:]]
    assert line == ["a, b", "0.4000", "8", "60", "50", "14", "0.6235", "0.0012", "", "2"]


def test_logs_become_a_csv(tmp_path, monkeypatch):
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({"training": {"objective": "ce", "lr": 5e-4}}))
    log = tmp_path / "logs" / "version_0"
    log.mkdir(parents=True)
    (log / "metrics.csv").write_text("step,minutes,val/bits_per_element\n100,0.2,\n250,0.3064,19.1658\n")
    words = ["logs", tmp_path, "--columns", "objective lr step minutes bits_per_element", "--out", tmp_path / "a.csv"]
    call(STUDIES / "to_csv.py", monkeypatch, *words)
    assert cells(tmp_path / "a.csv")[1:] == [["ce", "0.0005", "250", "0.3064", "19.1658"]]


def test_the_parts_of_a_difference_are_paired_by_training(tmp_path, monkeypatch):
    trainings = {
        "tauldr": ["tauldr", "tauldr-2", "tauldr-3"],
        "tauldr-cosine": ["tauldr-cosine", "tauldr-cosine-2", "tauldr-cosine-3"],
        "sedd": ["sedd"],
    }
    (tmp_path / "comparison.json").write_text(json.dumps({"trainings": trainings}))
    for label, bits in {
        "tauldr": 3.0,
        "tauldr-3": 5.0,  # its second training failed
        "tauldr-cosine": 2.0,
        "tauldr-cosine-2": 9.0,
        "tauldr-cosine-3": 3.0,
        "sedd": 1.0,
    }.items():
        found = {"rows": {"model": {}}, "bits_per_element": {"model (upper bound)": bits}, "objects": 2}
        found |= {"settings": {"runs": 1, "steps": 8}, "sampling_seconds": 1.0}
        found |= {"trained": {"parameters": 3, "steps": 50, "minutes": 1.0}}
        (tmp_path / label).mkdir()
        (tmp_path / label / "comparison.json").write_text(json.dumps(found))
    call(STUDIES / "music-schedules" / "parts.py", monkeypatch, tmp_path, "--out", tmp_path / "parts.json")
    ((name, cells),) = json.loads((tmp_path / "parts.json").read_text())["references"].items()
    assert name == "tauLDR: constant rate less cosine"  # of the others one side is missing
    assert cells["bits_per_element"] == pytest.approx({"mean": 1.5, "std": 0.5**0.5})


def test_the_parts_are_differences_of_rows_of_the_study(tmp_path):
    study = (STUDIES / "music-schedules.yaml").read_text()
    for pair in script(STUDIES / "music-schedules" / "parts.py").PARTS.values():
        assert all(re.search(rf"(?<![\w-]){label}[:\s]", study) for label in pair)


def test_unigram_bits_are_those_of_the_frequencies_in_the_training_tokens():
    train, test = torch.tensor([[0, 0, 1]]), torch.tensor([[0, 1, 2]])
    dataset = Dataset("d", 3, Sequences(train), Sequences(test))
    bits = script(STUDIES / "images" / "unigram.py").unigram_bits(dataset)
    assert bits == pytest.approx(-np.log2([3 / 6, 2 / 6, 1 / 6]).mean())


def test_rests_are_counted_after_the_prefix():
    songs = torch.zeros(2, 40, dtype=torch.int64)
    songs[:, :32], songs[0, 32:34] = 128, 128
    assert script(STUDIES / "pop909" / "rests.py").share(songs) == "0.1250"
