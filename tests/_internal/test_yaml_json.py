"""YAML and JSON of strangers: what can be read is read, and the rest is refused at once."""

import json
from dataclasses import asdict

import pytest
import yaml

from support.runs import tiny_recipe
from usd3._internal.yaml_json import read_json, read_yaml
from usd3.cli.main import main

REFUSED = "with its aliases written out"


def bomb(levels: int = 7, inside: str = "x") -> str:
    """Few lines that say 10^levels values."""
    first = [f"a0: &a0 [{', '.join([inside] * 10)}]"]
    return "\n".join(first + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, levels)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb(9), REFUSED),
        (f"model: {json.dumps(bomb(9))}", REFUSED),
        ("base: &base {<<: *base}", "stands for nothing, or for itself"),
        ("[" * 100_000, "nested more than 50 deep"),
        ("a: [1, 2", "expected a YAML file"),
        ("x" * 2_000_000, "more than 1,048,576"),
        (bomb(4, "'" + 200 * "y" + "'"), REFUSED),
    ],
    ids=["aliases", "aliases in a text", "itself", "deep", "broken", "long", "texts"],
)
def test_yaml_that_cannot_be_read_is_refused_at_once(text, message, tmp_path):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ValueError, match=message) as seen:
        read_yaml(tmp_path / "x.yaml")
    assert "\n" not in str(seen.value)


def test_honest_aliases_are_read(tmp_path):
    (tmp_path / "x.yaml").write_text("base: &base {dim: 8}\nmodel: {<<: *base, depth: 1}\nabout: 'this & that * 2'\n")
    assert read_yaml(tmp_path / "x.yaml") == {
        "base": {"dim": 8},
        "model": {"dim": 8, "depth": 1},
        "about": "this & that * 2",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [("[" * 100_000, "nested too deeply"), ("{", "expected a JSON file"), (" " * (2**26 + 1), "more than 67,108,864")],
    ids=["deep", "broken", "long"],
)
def test_json_that_cannot_be_read_is_refused(text, message, tmp_path):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_json(tmp_path / "x.json")


@pytest.mark.parametrize("words", [["mine.yaml"], ["--config", "mine.yaml"], ["--model", "mine.yaml"]], ids=str)
@pytest.mark.parametrize("text", [bomb(), f"dim: {json.dumps(bomb())}"], ids=["aliases", "in a text"])
def test_no_way_to_name_a_recipe_reads_more_than_it_can(words, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(text)
    assert main(["train", *words]) != 0
    error = capsys.readouterr().err
    assert REFUSED in error
    assert len(error.splitlines()) == 1


def test_a_resumed_run_is_read_as_carefully(tmp_path, capsys):
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(asdict(tiny_recipe(tmp_path))) + bomb())
    for command in ("train", "vqgan"):
        assert main([command, "--resume", str(tmp_path)]) != 0
        assert REFUSED in capsys.readouterr().err


def test_a_section_may_be_in_a_file_of_its_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wide.yaml").write_text("dim: 32\n")
    for words in (["--model", "wide.yaml"], ["--model=wide.yaml"]):
        assert main(["train", "bach", *words, "--print_config"]) == 0, capsys.readouterr().err
        assert yaml.safe_load(capsys.readouterr().out)["model"]["dim"] == 32
