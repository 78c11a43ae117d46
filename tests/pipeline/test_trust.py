"""Recipes, runs and models of strangers run no code: what a file names is imported only with trust_code."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml

from support.runs import tiny_recipe
from usd3.cli import compare_jobs
from usd3.cli.main import main
from usd3.nets.options import ModelConfig
from usd3.pipeline.pipeline import Pipeline
from usd3.training.run import fit, pipeline_for

CODE = """
from pathlib import Path
import usd3

Path("imported").touch()

class Net(usd3.nets.Transformer):
    def __init__(self, num_classes, depth=1):
        super().__init__(num_classes, dim=16, depth=depth, heads=2, mlp=16, time_dim=8)

class Method(usd3.methods.USD3):
    pass
"""


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A folder with a module `stranger`, which leaves the file `imported` where it is imported, and some data."""
    (tmp_path / "stranger.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(asdict(tiny_recipe(tmp_path, steps=2, validate_every=0))))
    yield tmp_path
    sys.modules.pop("stranger", None)


@pytest.fixture
def in_this_process(monkeypatch):
    """The jobs of a comparison run here, which takes less time than a process for each."""

    def run_jobs(title, jobs, at_once):
        return {job.label: "failed" for job in jobs if main(job.arguments) != 0}

    monkeypatch.setattr(compare_jobs, "run_jobs", run_jobs)


def was_imported(folder: Path) -> bool:
    return (folder / "imported").exists() or "stranger" in sys.modules


def spec(touched: str = "ran") -> dict:
    return {"class_path": "os.system", "init_args": {"command": f"touch {touched}"}}


RECIPES = [
    {"model": {"options": {"a": spec()}}},
    {"model": {"options": {"a": [{"b": spec()}]}}},
    {"method": {"options": {"a": spec()}}},
    {"diffusion": {"schedule_options": {"a": spec()}}},
    {"model": spec()},
    {"model": {"options": {"a": {"class_path": "stranger.Net"}}}},
    {"model": {"class_path": "stranger.Net"}},
    {"training": {"class_path": "stranger.Net", "init_args": {}}},
    {"data": {"path": spec()}},
    {"config": "other.yaml"},
]


@pytest.mark.filterwarnings("ignore")  # as for a user: what the parser only warns of is done
@pytest.mark.parametrize(
    ("command", "recipe"),
    [*(("train", recipe) for recipe in RECIPES), ("compare", RECIPES[0]), ("cost", RECIPES[0])],
    ids=str,
)
def test_options_in_a_recipe_are_plain_data(command, recipe, stranger, capsys):
    (stranger / "mine.yaml").write_text(yaml.safe_dump(recipe))
    (stranger / "other.yaml").write_text(yaml.safe_dump({"model": {"options": {"a": spec()}}}))
    for words in (["base.yaml", "mine.yaml"], ["base.yaml", "--config", "mine.yaml"]):
        assert main([command, *words, *(["--methods", "usd3"] if command != "train" else [])]) != 0
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not (stranger / "ran").exists()
    assert not was_imported(stranger)


def test_a_section_that_is_a_word_is_not_imported(stranger, capsys):
    (stranger / "mine.yaml").write_text("evaluation: stranger.Net\n")
    assert main(["compare", "base.yaml", "mine.yaml", "--methods", "usd3"]) != 0
    assert not was_imported(stranger)


@pytest.mark.filterwarnings("ignore")
def test_options_on_the_command_line_are_plain_data_too(stranger, capsys):
    assert main(["train", "base.yaml", "--model.options", json.dumps({"a": spec()})]) != 0
    assert "model.options = {'a': {'class_path': 'os.system'" in capsys.readouterr().err
    assert not (stranger / "ran").exists()


@pytest.mark.parametrize("command", ["classifier", "vqgan"])
def test_a_file_of_options_is_plain_data(command, stranger, capsys):
    (stranger / "mine.yaml").write_text(yaml.safe_dump({"images": spec(), "run": spec("ran2")}))
    assert main([command, "--config", "mine.yaml"]) != 0
    assert not list(stranger.glob("ran*"))


@pytest.mark.parametrize("command", ["train", "compare", "cost"])
@pytest.mark.parametrize(
    ("section", "option"),
    [({"model": {"net": "stranger.Net"}}, "model.net"), ({"method": {"name": "stranger.Method"}}, "method.name")],
    ids=["network", "method"],
)
def test_what_a_recipe_names_is_not_imported(command, section, option, stranger, capsys):
    (stranger / "mine.yaml").write_text(yaml.safe_dump(section))
    words = (
        [command, "base.yaml", "--methods", "mine.yaml"] if command != "train" else ["train", "base.yaml", "mine.yaml"]
    )
    own = ["--model.net=film", "--method.name", "usd3", "--config", "mine.yaml"]  # what comes last holds
    for further in ([], own if command == "train" else []):
        assert main([*words, *further]) != 0
        error = capsys.readouterr().err
        assert f"{option} = stranger." in error
        assert "trust_code: true, which runs the code of the class" in error
    assert not was_imported(stranger)


def test_a_recipe_does_not_trust_itself(stranger, capsys):
    (stranger / "mine.yaml").write_text("model: {net: stranger.Net}\ntrust_code: true\n")
    for words in (["mine.yaml"], ["mine.yaml", "--trust_code", "false", "--config", "mine.yaml"]):
        assert main(["train", "base.yaml", *words]) != 0
        assert "trust_code in a file: expected it on the command line" in capsys.readouterr().err
    assert not was_imported(stranger)


@pytest.mark.parametrize(
    "words",
    [["mine.yaml", "--trust_code", "true"], ["mine.yaml", "--trust_code=true"], ["--model.net", "stranger.Net"]],
    ids=["trusted", "trusted with =", "typed"],
)
def test_what_is_trusted_or_typed_is_trained_and_resumed(words, stranger, capsys):
    (stranger / "mine.yaml").write_text("model: {net: stranger.Net}\n")
    assert main(["train", "base.yaml", *words, "--run", "run", "--progress=false"]) == 0, capsys.readouterr().err
    assert was_imported(stranger)
    (stranger / "imported").unlink()
    del sys.modules["stranger"]
    longer = ["train", "--resume", "run", "--training.steps", "3", "--progress=false"]
    assert main(longer) != 0
    assert "model.net = stranger.Net: expected one of" in capsys.readouterr().err
    assert not was_imported(stranger)
    assert main([*longer, *words[-2:]] if words[0] != "mine.yaml" else [*longer, "--trust_code", "true"]) == 0
    assert was_imported(stranger)


def test_a_resumed_run_does_not_import_what_its_config_names(stranger, capsys):
    """Its recipe is harmless, and nothing is left to train: the model that it has is not taken unseen."""
    fit(tiny_recipe(stranger, steps=2, validate_every=0), stranger / "run", progress=False)
    config = json.loads((stranger / "run" / "config.json").read_text())
    config["model"]["net"] = "stranger.Net"
    (stranger / "run" / "config.json").write_text(json.dumps(config))
    assert main(["train", "--resume", "run", "--progress=false"]) != 0
    assert "model.net = stranger.Net: expected one of" in capsys.readouterr().err
    assert not was_imported(stranger)


@pytest.mark.parametrize("command", ["sample", "evaluate", "compare", "info", "export"])
def test_what_a_model_names_is_not_imported(command, stranger, in_this_process, capsys):
    recipe = tiny_recipe(stranger)
    pipeline = pipeline_for(recipe, recipe.data.load())
    pipeline.config = replace(pipeline.config, model=ModelConfig(net="stranger.Net"))
    pipeline.save_pretrained("model")
    (stranger / "model" / "recipe.yaml").write_text(yaml.safe_dump(asdict(recipe)))
    words = {"compare": ["base.yaml", "--methods", "model"], "export": ["model", "--out", "out"]}.get(
        command, ["model"]
    )
    assert (main([command, *words]) == 0) is (command == "info")
    assert not was_imported(stranger)
    assert ("stranger.Net" in capsys.readouterr().out) is (command == "info")
    with pytest.raises(ValueError, match=r"model.net = stranger.Net: expected one of .* trust_code: true"):
        Pipeline.from_pretrained("model")
    assert not was_imported(stranger)


@pytest.mark.parametrize("own", [["--model.net", "stranger.Net"], ["--trust_code", "true"]], ids=["typed", "trusted"])
def test_a_comparison_trains_and_measures_what_was_typed_or_is_trusted(own, stranger, in_this_process, capsys):
    (stranger / "mine.yaml").write_text("model: {net: stranger.Net}\n")
    method = "mine:usd3" if own[0] == "--model.net" else "mine:mine.yaml"
    words = ["--methods", method, "--out", "out", "--evaluation.steps", "2", "--evaluation.baselines", "false"]
    assert main(["compare", "base.yaml", *words, *own]) == 0, capsys.readouterr().err
    assert json.loads(Path("out/mine/config.json").read_text())["model"]["net"] == "stranger.Net"
    assert "mine" in capsys.readouterr().out


def test_a_comparison_measures_no_other_code_than_it_trained(stranger, in_this_process, capsys):
    """The folder of a comparison may be a stranger's, too."""
    assert main(["train", "base.yaml", "--run", "out/usd3", "--progress=false"]) == 0
    Path("out/comparison.json").write_text("{}")
    config = json.loads(Path("out/usd3/config.json").read_text())
    config["method"]["name"] = "stranger.Method"
    Path("out/usd3/config.json").write_text(json.dumps(config))
    words = ["--methods", "usd3", "--out", "out", "--evaluation.steps", "2", "--evaluation.baselines", "false"]
    assert main(["compare", "base.yaml", *words]) != 0
    assert "trust_code: true, which runs the code of the class" in capsys.readouterr().err
    assert not was_imported(stranger)
