"""Kinds by name, by import path, from model folders of every form."""

import json
import re
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from support.places import ROOT
from support.runs import tiny_recipe
from usd3.cli.compare_results import kept_references
from usd3.cli.main import main
from usd3.evaluation.comparison import read_references, read_row
from usd3.evaluation.settings import EvaluationSettings
from usd3.evaluation.tables import text_table
from usd3.kinds.array import Array
from usd3.kinds.board.kind import Board
from usd3.kinds.chorale.kind import Chorale
from usd3.kinds.image.kind import ImageTokens
from usd3.kinds.image.source import ImageSource
from usd3.kinds.melody.kind import Melody
from usd3.kinds.melody.midi import read_midi
from usd3.kinds.options import DataConfig
from usd3.kinds.registry import KINDS, kind_from, upgraded
from usd3.kinds.sequence.kind import LetterSequence
from usd3.kinds.table.categories import Categories
from usd3.kinds.table.form import TableForm
from usd3.kinds.table.kind import Table
from usd3.kinds.table.numbers import Grid, Numbers
from usd3.kinds.text.kind import Text
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.packaged import find_model
from usd3.pipeline.pipeline import Pipeline
from usd3.training.run import fit, pipeline_for

PAGE = (ROOT / "docs" / "adding-a-kind.md").read_text()
KIND, DATA, _ = re.findall(r"```python[^\n]*\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    line.partition("usd3 ")[2].split()
    for line in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)[0].strip().splitlines()
]
OLD = ROOT / "tests" / "pipeline" / "old_forms"
SOURCE = ImageSource("vqgan", "pictures", fingerprint="abc")
EARLY = [Array(5, (3, 4)), Melody(129, (16,)), ImageTokens(8, (2, 2), SOURCE)]
COLUMNS = (
    Categories("sex", "category", "str", common=("Male", "Female")),
    Numbers(
        "age", "number", "float64", grid=Grid(5, 5, 1), pieces=(1, 2), low=(0, 3, 9), high=(2, 5, 9), weight=(1, 2, 3)
    ),
)
MADE = [
    *EARLY,
    Board(4, (4, 4), "1234", "sudoku"),
    Chorale(129, (8, 4), from_files=True),
    LetterSequence(5, (12,), "ACGT", "dna", has_ends=True),
    Table(2, (2,), COLUMNS, TableForm(".csv", ";", names=("sex", "age"))),
    Text(4, (16,), "characters", "abc/"),
]


@pytest.mark.parametrize("kind", MADE, ids=lambda kind: kind.name)
def test_a_kind_survives_its_json(kind):
    saved = json.loads(json.dumps(kind.as_dict()))
    assert kind_from(saved, kind.num_classes, list(kind.shape)) == kind
    assert saved["name"] == kind.name


def test_every_kind_has_a_name_of_its_own_and_claims_its_sources_alone():
    assert {type(kind) for kind in MADE} == set(KINDS.values())
    for name, kind in KINDS.items():
        assert kind.name == name
        for source in kind.sources:
            assert [other for other in KINDS.values() if other.claims(DataConfig(source))] == [kind]


def test_music_in_an_array_is_a_melody():
    assert DataConfig("array", music=True).kind_class is DataConfig("array", kind="melody").kind_class is Melody
    assert DataConfig("array").kind_class is Array


@pytest.mark.parametrize("kind", EARLY, ids=lambda kind: kind.name)
def test_the_kind_is_that_of_a_config_written_before_there_were_kinds(kind):
    old = {
        "shape": [1],
        "music": kind.name == "melody",
        "source": asdict(SOURCE) if kind.name == "image_tokens" else None,
    }
    new = upgraded(old)
    assert kind_from(new["kind"], kind.num_classes, kind.shape) == kind
    assert set(new) == {"shape", "kind"}
    assert upgraded(new) == new


def test_data_of_another_kind_are_refused():
    with pytest.raises(ValueError, match="kind of data = array: expected melody"):
        MADE[1].require_same(MADE[0].as_dict(), "data")
    other = ImageTokens(8, (2, 2), ImageSource("other", "pictures", fingerprint="xyz"))
    with pytest.raises(ValueError, match=r"data = tokens of the VQGAN other \(xyz\): expected those of vqgan \(abc\)"):
        MADE[2].require_same(other.as_dict(), "data")


def test_a_model_folder_of_the_old_form_loads_and_draws_the_same(tmp_path):
    """The form of config.json before there were kinds, and recipes without `data.kind`."""
    recipe = tiny_recipe(tmp_path)
    dataset = recipe.data.load()
    pipeline_for(recipe, dataset).save_pretrained(tmp_path / "new")
    drawn = Pipeline.from_pretrained(tmp_path / "new").sample(3, num_steps=3)
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    old = {key: value for key, value in config.items() if key != "kind"} | {"music": False, "source": None}
    for name in ("kind", "options"):
        del old["data"][name]
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_text(json.dumps(old))
    (tmp_path / "old" / "model.safetensors").write_bytes((tmp_path / "new" / "model.safetensors").read_bytes())
    loaded = Pipeline.from_pretrained(tmp_path / "old")
    assert loaded.kind == dataset.kind
    assert torch.equal(loaded.sample(3, num_steps=3), drawn)


def test_a_folder_of_a_packaged_model_as_it_was_written_then_draws_the_same(tmp_path):
    """config.json of the packaged model of Bach, from before there were kinds."""
    packaged = find_model("bach")
    shutil.copy(OLD / "config.json", tmp_path / "config.json")
    (tmp_path / "model.safetensors").symlink_to(packaged / "model.safetensors")
    assert '"music": true' in (tmp_path / "config.json").read_text()
    old, new = (Pipeline.from_pretrained(folder, device="cpu") for folder in (tmp_path, packaged))
    assert old.kind == new.kind == Melody(129, (256,))
    assert torch.equal(old.sample(1, num_steps=2), new.sample(1, num_steps=2))


def test_the_data_of_an_old_recipe_are_melodies(tmp_path):
    """recipe.yaml of a run on POP909, from before there were kinds."""
    np.savez(tmp_path / "pop909.npz", train=np.full((4, 256), 60), test=np.full((2, 256), 62))
    data = DataConfig(**yaml.safe_load((OLD / "recipe.yaml").read_text())["data"])
    dataset = data.at(str(tmp_path / "pop909.npz")).load()
    assert dataset.kind == Melody(129, (256,))
    assert set(dataset.decoded(dataset.train.tokens.long()).unique().tolist()) == {60}


def test_reference_rows_of_an_old_comparison_are_used_again(tmp_path):
    """references.json then described the data without a kind."""
    data, settings = DataConfig("array", "data.npz"), EvaluationSettings(runs=2)
    described = {key: value for key, value in asdict(data).items() if key not in ("kind", "options")}
    stored = {"data": described, "settings": asdict(settings), "rows": {}}
    (tmp_path / "references.json").write_text(json.dumps(stored))
    assert kept_references(data, settings, tmp_path, lambda: pytest.fail("measured again")) == stored


def test_a_run_of_the_old_form_is_resumed(tmp_path):
    recipe = tiny_recipe(tmp_path, steps=2)
    fit(recipe, tmp_path / "run", progress=False)
    file = tmp_path / "run" / "recipe.yaml"
    lines = [line for line in file.read_text().splitlines() if not re.match(r"  (kind: null|options: \{\}$)", line)]
    file.write_text("\n".join(lines) + "\n")
    assert main(["train", "--resume", str(tmp_path / "run"), "--training.steps", "3"]) == 0
    assert PipelineConfig.read(tmp_path / "run").steps == 3


@pytest.fixture
def words(tmp_path, monkeypatch):
    """A folder with the kind of the documentation, its data, and the folder on the import path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("words.py").write_text(KIND)
    exec(compile(DATA, "docs", "exec"), {})
    yield tmp_path
    sys.modules.pop("words", None)


def test_the_kind_of_the_documentation_trains_draws_and_fills(words):
    train, free, filled, _ = COMMANDS
    small = ["--model.dim", "16", "--model.depth", "1", "--model.heads", "2", "--training.validate_every", "0"]
    assert main([*train, *small, "--training.steps", "2"]) == 0
    assert Pipeline.from_pretrained("runs/words", trust_code=True).kind.describe() == "words of at most 6 letters"
    assert main([*free, "--steps", "2"]) == 0
    assert {file.name for file in Path("runs/words/new").iterdir()} == {"samples.npz", "samples.png", "words.txt"}
    assert main([*filled, "--steps", "2"]) == 0
    lines = Path("runs/words/filled/words.txt").read_text().splitlines()
    assert len(lines) == 5
    assert all(re.fullmatch("ba.*mi", line) for line in lines)
    assert np.load("runs/words/filled/samples.npz")["given"].tolist() == [True, True, False, False, True, True]


def test_a_kind_that_is_not_ours_is_not_imported_unless_it_is_trusted(words, capsys):
    Path("words.py").write_text("raise SystemExit('imported')")
    config = PipelineConfig(5, [6], kind={"name": "words.Words", "alphabet": " abcd"})
    for values in (config, PipelineConfig(5, [6], data=DataConfig(kind="words.Words"))):
        Path("model").mkdir(exist_ok=True)
        Path("model/config.json").write_text(json.dumps(asdict(values)))
        Path("model/model.safetensors").touch()
        for command in (["sample", "model"], ["evaluate", "model"], ["compare", "--methods", "model"]):
            assert main(command) == 1
            assert f"words.Words: expected one of {sorted(KINDS)}, or trust_code" in capsys.readouterr().err
    Path("recipe.yaml").write_text("data: {kind: words.Words, path: words.txt}\n")
    assert main(["train", "recipe.yaml"]) == 1
    assert "data.kind = words.Words: expected one of" in capsys.readouterr().err
    assert "words" not in sys.modules


def test_objects_are_written_from_python(tmp_path):
    tunes = torch.randint(60, 72, (2, 16), generator=torch.Generator().manual_seed(0))
    kind = Melody(129, (16,))
    kind.write(tunes, tmp_path / "all")
    assert {file.name for file in (tmp_path / "all").iterdir()} == {
        "samples.npz",
        "samples.png",
        "sample-01.mid",
        "sample-02.mid",
    }
    kind.write(tunes, tmp_path / "tokens.npz")
    assert np.array_equal(np.load(tmp_path / "tokens.npz")["tokens"], tunes)
    kind.write(tunes[:1], tmp_path / "one.mid")
    assert np.array_equal(read_midi(tmp_path / "one.mid")[0], tunes[0])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("two.mid", r"num = 2: expected 1 where `out` is one \.mid file"),
        ("tune.wav", r"a folder or a file that ends with \.npz, \.mid, \.png, \.gif"),
        ("taken.npz", "a name that is not taken"),
    ],
)
def test_what_cannot_be_written_is_refused(name, message, tmp_path):
    (tmp_path / "taken.npz").write_bytes(b"mine")
    with pytest.raises(ValueError, match=message):
        Melody(129, (16,)).write(torch.zeros(2, 16, dtype=torch.long), tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == ["taken.npz"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "banana"}, "data.source = banana: expected one of array, bach"),
        ({"source": "banana", "kind": "melody"}, "data.source = banana: expected one of array, bach"),
        ({"source": "array", "kind": "aray"}, r"data.kind = aray: .*\(is array meant\?\)"),
        ({"source": "midi", "kind": "array"}, "data.kind = array: expected melody, as data.source is midi"),
        ({"source": "array", "kind": "array", "music": True}, "data.kind = array: expected melody, as data.music"),
        (
            {"source": "array", "options": {"x": 1}},
            "data.options = {'x': 1}: expected {}, as the kind array takes none",
        ),
    ],
)
def test_data_that_contradict_themselves_are_refused(options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        DataConfig(**options)


def test_the_metrics_of_a_kind_of_ones_own_reach_the_tables(words, capsys):
    """Also of a comparison, whose process knows the results alone."""
    own = """

    def structure(self, runs, pad=None):
        share = float((runs == 0).float().mean())
        return {"blanks": Summary(share, 0.0)}
"""
    code = KIND.replace('    plural = "words"\n', '    plural = "words"\n    columns = {"blanks": Metric("blanks")}\n')
    code = code.replace("    def describe(self):", own.lstrip("\n") + "\n    def describe(self):")
    more = "from usd3.metrics.summary import Metric, Summary"
    Path("words.py").write_text(code.replace("import torch\n", f"import torch\n\n{more}\n"))
    small = ["--model.dim", "16", "--model.depth", "1", "--model.heads", "2", "--training.validate_every", "0"]
    assert main([*COMMANDS[0], *small, "--training.steps", "1"]) == 0
    fast = ["--steps", "2", "--limit", "5", "--runs", "1", "--bound_samples", "0", "--trust_code", "true"]
    assert main(["evaluate", "runs/words", "--prefix", "2", *fast, "--out", "found.json"]) == 0
    assert "blanks" in capsys.readouterr().out
    results = json.loads(Path("found.json").read_text())
    table = text_table([read_row("model", results)], read_references(results))
    assert "blanks ↓" in table
    assert re.search(r"^Markov chain .*", table, re.MULTILINE)
