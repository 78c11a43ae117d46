"""The command line, called as a user calls it."""

import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

import usd3
from support.places import ROOT
from support.runs import tiny_recipe
from usd3 import pictures
from usd3.cli import sample
from usd3.cli.commands import COMMANDS
from usd3.cli.main import main
from usd3.cli.output import show_plainly
from usd3.kinds.array import load_arrays
from usd3.kinds.melody.midi import read_midi
from usd3.pipeline.pipeline import Pipeline
from usd3.recipes import list_recipes
from usd3.training.options import Recipe
from usd3.training.run import fit, pipeline_for


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trained run on sequences that count up modulo 5."""
    folder = tmp_path_factory.mktemp("runs")
    fit(tiny_recipe(folder, steps=2), folder / "run", progress=False)
    return folder / "run"


@pytest.fixture(scope="module")
def tune(tmp_path_factory):
    """A saved model about music, of length 64, and a file of melodies."""
    folder = tmp_path_factory.mktemp("tune")
    melodies = 60 + (np.arange(64) // 4 + np.arange(20)[:, None]) % 12
    melodies[:, ::16] = 128
    np.savez(folder / "melodies.npz", train=melodies[:15], test=melodies[15:])
    recipe = tiny_recipe(folder)
    recipe.data.path, recipe.data.music, recipe.data.scramble = str(folder / "melodies.npz"), True, 1
    pipeline_for(recipe, recipe.data.load()).save_pretrained(folder / "model")
    return folder / "model"


def error_of(capsys, *arguments: str) -> str:
    """The one line that a wrong command ends with."""
    assert main(list(arguments)) != 0
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1, captured.err
    assert lines[0].startswith(f"usd3 {arguments[0]}: error: ")
    return lines[0]


def test_typos_are_asked_about(capsys):
    assert "(is sample meant?)" in error_of(capsys, "sapmle")
    assert "(is bach-small meant?)" in error_of(capsys, "train", "bach-smal")


def test_every_public_name_is_there():
    assert dir(usd3) == sorted(usd3.__all__)
    assert all(getattr(usd3, name) is not None for name in usd3.__all__)


def test_the_command_line_starts_without_torch_and_lets_threads_sleep():
    code = "import sys, os; from usd3.cli.main import main; main([]); "
    code += "print('torch' in sys.modules, os.environ['OMP_WAIT_POLICY'])"
    free = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    for own, expected in (({}, "False PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "False ACTIVE")):
        said = subprocess.run([sys.executable, "-c", code], env=free | own, capture_output=True, text=True, check=True)
        assert said.stdout.splitlines()[-1] == expected


def test_help_explains_every_option(capsys):
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert name in overview
        assert main([name, "--help"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert command.example in text
        for field in command.options.__dataclass_fields__:
            assert f"--{field}" in text
        assert text.count(" (type: ") >= len(command.options.__dataclass_fields__) - 4
        options = [
            word for word in text.split() if word.startswith("--") and word.strip("-") in command.options.__doc__
        ]
        assert options
    assert main(["train", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for part in ("data", "diffusion", "model", "training"):
        for name in getattr(Recipe(), part).__dataclass_fields__:
            assert f"--{part}.{name} " in text


def test_version_and_the_installed_command(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("usd3 ")
    found = subprocess.run([sys.executable, "-m", "usd3", "--help"], capture_output=True, text=True, timeout=300)
    assert found.returncode == 0
    assert "usd3 COMMAND" in found.stdout


@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_is_valid_and_explained(name, capsys):
    assert main(["train", name, "--print_config"]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    assert set(asdict(Recipe())) <= set(config)
    assert len(list_recipes()[name]) > 10
    assert main(["info", name]) == 0
    own = yaml.safe_load(capsys.readouterr().out)
    assert contains(config, own)


def contains(whole, part):
    """Whether nested mappings have all that another one has."""
    if isinstance(part, dict):
        return all(contains(whole[key], value) for key, value in part.items())
    return whole == part


def test_recipes_combine_and_options_win(capsys):
    assert main(["train", "pop909", "paper-small", "continuous", "ce", "--model.dim", "256", "--print_config"]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["data"]["source"] == "array"
    assert (config["model"]["net"], config["model"]["dim"], config["model"]["mlp"]) == ("film", 256, 1024)
    assert config["diffusion"]["num_steps"] is None
    assert config["training"]["objective"] == "ce"
    assert config["training"]["given"] == "prefix"


def test_the_default_recipe_is_bach(capsys):
    assert main(["train", "--print_config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["data"]["source"] == "bach"


def test_train_sample_evaluate_info_one_after_the_other(tmp_path, monkeypatch, capsys):
    recipe = tiny_recipe(tmp_path, steps=4)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(asdict(recipe)))
    monkeypatch.chdir(tmp_path)
    for expected in ("runs/mine", "runs/mine-2"):
        assert main(["train", "mine.yaml", "--training.steps=2", "--training.validate_every", "2"]) == 0
        captured = capsys.readouterr()
        assert f"the trained model is in {expected}" in captured.out
        assert "training 2/2" in captured.err
    assert yaml.safe_load((tmp_path / "runs/mine/recipe.yaml").read_text())["training"]["steps"] == 2
    assert main(["train", "--resume", "runs/mine", "--training.steps", "4", "--progress", "false"]) == 0
    assert json.loads((tmp_path / "runs/mine/config.json").read_text())["steps"] == 4
    capsys.readouterr()
    assert main(["sample", "runs/mine", "--num", "3", "--steps", "5"]) == 0
    assert "sampling 5/5" in capsys.readouterr().err
    assert main(["evaluate", "runs/mine", "--runs", "2", "--steps", "3", "--limit", "5"]) == 0
    text = capsys.readouterr().out
    for row in ("model", "Markov chain", "another held-out object", "the truth itself", "bits per element"):
        assert row in text
    found = json.loads((tmp_path / "runs/mine/evaluation.json").read_text())
    assert found["objects"] == 5
    assert found["trained"]["steps"] == 4
    assert found["sampling_seconds"] > 0
    assert found["rows"]["the truth itself"]["3g_hellinger"]["mean"] == 0
    assert found["parroting"]["1g Hellinger"]["to_train"] >= 0
    assert main(["info", "runs/mine"]) == 0
    assert "5 categories" in capsys.readouterr().out
    assert main(["info"]) == 0
    assert "bach-small" in capsys.readouterr().out


def test_samples_of_music_come_as_arrays_midi_and_pictures(tune, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = [
        "sample",
        str(tune),
        "--prompt",
        "test",
        "--prefix",
        "16",
        "--steps",
        "5",
        "--num",
        "2",
        "--animate",
        "true",
    ]
    assert main([*arguments, "--out", str(out)]) == 0
    names = {"samples.npz", "samples.png", "denoising.gif", "sample-01.mid", "sample-02.mid"}
    assert {p.name for p in out.iterdir()} == names
    held_out = np.load(tune.parent / "melodies.npz")["test"][:2]
    with np.load(out / "samples.npz") as found:
        tokens, given = found["tokens"], found["given"]
    assert (tokens[:, :16] == held_out[:, :16]).all()
    assert given.tolist() == [True] * 16 + [False] * 48
    for i, row in enumerate(tokens):
        (melody,) = read_midi(out / f"sample-{i + 1:02d}.mid")
        assert (melody == row).all()
    with Image.open(out / "denoising.gif") as animation:
        assert animation.n_frames == 5


def test_filling_a_gap_keeps_the_rest(tune, tmp_path):
    assert (
        main(
            [
                "sample",
                str(tune),
                "--prompt",
                "test",
                "--fill",
                "20:40",
                "--steps",
                "3",
                "--out",
                str(tmp_path / "x.npz"),
            ]
        )
        == 0
    )
    held_out = np.load(tune.parent / "melodies.npz")["test"][:4]
    tokens = np.load(tmp_path / "x.npz")["tokens"]
    outside = (np.arange(64) < 20) | (np.arange(64) >= 40)
    assert (tokens[:, outside] == held_out[:, outside]).all()
    assert (tokens != held_out).any()


@pytest.mark.parametrize("option", [["--fill", "0:20;26:40;39:41"], ["--given", "20:26;41:64"]])
def test_several_gaps_are_filled_and_the_rest_is_kept(tune, tmp_path, option):
    arguments = ["--prompt", "test", *option, "--steps", "3", "--out", str(tmp_path / "x.npz")]
    assert main(["sample", str(tune), *arguments]) == 0
    held_out = np.load(tune.parent / "melodies.npz")["test"][:4]
    found = np.load(tmp_path / "x.npz")
    stays = np.isin(np.arange(64), [*range(20, 26), *range(41, 64)])
    assert (found["given"] == stays).all()
    assert (found["tokens"][:, stays] == held_out[:, stays]).all()
    assert (found["tokens"] != held_out)[:, ~stays].mean() > 0.5


def test_several_boxes_of_objects_with_two_dimensions_are_filled(tmp_path):
    rows = np.random.default_rng(0).integers(5, size=(12, 4, 4))
    np.savez(tmp_path / "maps.npz", train=rows[:8], test=rows[8:])
    recipe = tiny_recipe(tmp_path)
    recipe.data.path = str(tmp_path / "maps.npz")
    pipeline_for(recipe, recipe.data.load()).save_pretrained(tmp_path / "model")
    arguments = ["--prompt", "test", "--fill", "2:4,2:4;0:1,0:2", "--steps", "2", "--out", str(tmp_path / "x.npz")]
    assert main(["sample", str(tmp_path / "model"), *arguments]) == 0
    drawn = [[0, 0], [0, 1], [2, 2], [2, 3], [3, 2], [3, 3]]
    assert np.argwhere(~np.load(tmp_path / "x.npz")["given"]).tolist() == drawn


def test_a_midi_file_can_be_continued(tune, tmp_path):
    first, second = tmp_path / "first.mid", tmp_path / "second.mid"
    assert main(["sample", str(tune), "--num", "1", "--steps", "3", "--out", str(first)]) == 0
    (start,) = read_midi(first)
    assert (
        main(
            [
                "sample",
                str(tune),
                "--num",
                "1",
                "--steps",
                "3",
                "--prompt",
                str(first),
                "--prefix",
                "24",
                "--out",
                str(second),
                "--seed",
                "5",
            ]
        )
        == 0
    )
    (melody,) = read_midi(second)
    assert (melody[:24] == start[:24]).all()
    assert (melody[24:] != start[24:]).any()


def test_one_midi_file_holds_one_melody(tune, capsys, tmp_path):
    assert "num = 4: expected 1" in error_of(
        capsys, "sample", str(tune), "--num", "4", "--out", str(tmp_path / "x.mid")
    )


def test_one_file_of_each_kind(tune, tmp_path, run):
    for kind in ("npz", "mid", "png", "gif"):
        out = tmp_path / f"x.{kind}"
        extra = ["--animate", "true"] if kind == "gif" else []
        assert main(["sample", str(tune), "--num", "1", "--steps", "2", "--out", str(out), *extra]) == 0
        assert out.stat().st_size > 0
    assert (
        main(["sample", str(run), "--num", "2", "--steps", "2", "--out", str(tmp_path / "y"), "--animate", "true"]) == 0
    )
    assert {p.name for p in (tmp_path / "y").iterdir()} == {"samples.npz", "samples.png", "denoising.gif"}


@pytest.mark.parametrize(("shape", "kind"), [((4, 5), "token_maps"), ((1, 20), "token_grid")])
def test_objects_of_two_dimensions_are_drawn_as_maps_unless_they_are_too_long(shape, kind, tmp_path, monkeypatch):
    rows = ((np.arange(20) + np.arange(30)[:, None]) % 5).reshape(30, *shape)
    np.savez(tmp_path / "data.npz", train=rows[:20], test=rows[20:])
    fit(tiny_recipe(tmp_path, steps=1, validate_every=0, given="prefix"), tmp_path / "run", progress=False)
    drawn, draw = [], getattr(pictures, kind)
    monkeypatch.setattr(pictures, kind, lambda *given, **named: (drawn.append(given[3]), draw(*given, **named)))
    words = ["--num", "3", "--steps", "2", "--prompt", "test", "--prefix", "6", "--out", str(tmp_path / "out")]
    assert main(["sample", str(tmp_path / "run"), *words]) == 0
    assert [int(given.sum()) for given in drawn] == [6]
    assert (tmp_path / "out" / "samples.png").stat().st_size > 1000


def test_the_corrector_and_other_samplers_are_there(run, tmp_path):
    def tokens(name: str, *extra: str):
        out = tmp_path / f"{name}.npz"
        assert main(["sample", str(run), "--num", "50", "--steps", "5", "--out", str(out), *extra]) == 0
        return np.load(out)["tokens"]

    plain = tokens("plain")
    assert (plain == tokens("again")).all()
    for name, extra in {
        "corrected": ["--corrector.num_steps", "2", "--corrector.step_size", "0.1", "--corrector.last", "null"],
        "euler": ["--sampler", "euler"],
        "cold": ["--temperature", "0.3"],
        "seed": ["--seed", "1"],
    }.items():
        assert (plain != tokens(name, *extra)).any()


@pytest.mark.parametrize(("steps", "num", "batch"), [(20, 2, 2), (9, 5, 2), (9, 3, 2)])
def test_an_animation_ends_with_the_samples(run, tmp_path, monkeypatch, steps, num, batch):
    shown = []
    monkeypatch.setattr(pictures, "animate_denoising", lambda frames, path, *_, **__: shown.extend(frames))
    monkeypatch.setattr(sample, "_MOST_FRAMES", 8)
    arguments = ["--steps", str(steps), "--num", str(num), "--batch_size", str(batch), "--animate", "true"]
    assert main(["sample", str(run), *arguments, "--out", str(tmp_path / "out")]) == 0
    tokens = np.load(tmp_path / "out" / "samples.npz")["tokens"]
    assert (shown[-1].numpy() == tokens[: min(num, batch)]).all()
    assert 3 <= len(shown) <= 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prefix", "6"], "prefix = 6: expected an integer 0..5"),
        (["--runs", "0"], "runs = 0"),
        (["--bound_samples=-1"], "bound_samples = -1"),
        (["--test_key", "typo"], "test_key = typo: expected an array of"),
        (["--save_samples", "kept"], "save_samples = kept: expected a .npz file"),
        (["--data_path", "nothing.npz"], "nothing.npz"),
    ],
)
def test_wrong_evaluations_end_before_any_work(run, arguments, message, capsys):
    assert message in error_of(capsys, "evaluate", str(run), *arguments)


def test_evaluations_with_different_seeds_share_no_draws(run, tmp_path):
    kept = {}
    for seed in ("0", "1"):
        out = tmp_path / f"{seed}.npz"
        arguments = ["--seed", seed, "--steps", "3", "--limit", "6", "--save_samples", str(out)]
        assert (
            main(["evaluate", str(run), *arguments, "--baselines", "false", "--out", str(tmp_path / f"{seed}.json")])
            == 0
        )
        kept[seed] = np.load(out)["tokens"]
    assert not any((a == b).all() for a in kept["0"] for b in kept["1"])
    bits = [json.loads((tmp_path / f"{seed}.json").read_text())["bits_per_element"] for seed in ("0", "1")]
    assert bits[0] != bits[1]


def test_samples_can_be_kept_and_measured_again(run, tmp_path, capsys):
    kept = tmp_path / "kept.npz"
    arguments = ["evaluate", str(run), "--steps", "3", "--runs", "2", "--limit", "4"]
    assert main([*arguments, "--save_samples", str(kept), "--out", str(tmp_path / "a.json")]) == 0
    assert main([*arguments, "--samples", str(kept), "--out", str(tmp_path / "b.json")]) == 0
    a, b = (json.loads((tmp_path / name).read_text())["rows"]["model"] for name in ("a.json", "b.json"))
    assert a == b
    one = ["--prompt", "test", "--num", "4", "--steps", "3", "--out", str(tmp_path / "one.npz")]
    assert main(["sample", str(run), *one]) == 0
    assert main([*arguments, "--samples", str(tmp_path / "one.npz"), "--out", str(tmp_path / "c.json")]) == 0
    found = json.loads((tmp_path / "c.json").read_text())
    assert found["objects"] == 4
    assert "edit_diversity" not in found["rows"]["model"]  # there is one run
    capsys.readouterr()
    fewer = error_of(capsys, "evaluate", str(run), "--samples", str(kept), "--limit", "3")
    assert "shape of the samples = (2, 4, 8): expected (runs, 3, 8)" in fewer
    kept.write_text("nothing")
    assert "expected a .npy or .npz file" in error_of(capsys, "evaluate", str(run), "--samples", str(kept))
    for bad, message in ((np.zeros((2, 4, 8)), "integers"), (np.full((2, 4, 8), 9), "categories 0..4")):
        np.savez(kept, tokens=bad)
        assert message in error_of(capsys, "evaluate", str(run), "--samples", str(kept))
    np.savez(kept, other=np.zeros((2, 4, 8), dtype=int))
    assert 'expected an .npz with "tokens"' in error_of(capsys, "evaluate", str(run), "--samples", str(kept))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "nope"], "recipe = nope: expected"),
        (["train", "--modle.dim", "3"], "--modle.dim"),
        (["train", "--model.dim", "wide"], "model.dim"),
        (["train", "--model.dim", "7", "--data.source", "array"], "data.path"),
        (["train", "--training.steps", "0"], "training.steps = 0: expected"),
        (["train", "--training.objective", "best"], "training.objective"),
        (["train", "--resume", "nothing"], "resume = nothing: expected the folder of a run"),
        (["train", "array", "--data.path", "nothing.npz"], "nothing.npz"),
        (["train", "lakh", "--data.path", "nothing"], "nothing"),
        (["train", "--training.clip=-1"], "training.clip = -1"),
        (["train", "--model.heads", "0"], "model.heads = 0"),
        (["train", "--model.time_dim", "9"], "model.time_dim = 9: expected an even number"),
        (["train", "--diffusion.noise", "absorbing", "--diffusion.schedule", "loglinear"], "which end at 0"),
        (["train", "--trainin.steps", "3"], "--trainin.steps"),
        (["train", "--resum", "runs"], "--resum"),
        (["train", "ce", "--resume", "runs"], "expected no recipe"),
        pytest.param(
            ["train", "--training.accelerator", "gpu"],
            "as torch sees no GPU",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
        (["train", "--training.step", "3"], "(is --training.steps meant?)"),
        (["train", "--zzz", "3"], "(--help shows all options)"),
        (["train", "--training.steps", "3", "small"], "(words come before the options"),
        (["train", "--training.lr", "fast"], "error: training.lr = fast: expected a number"),
        (["train", "--training.compile", "maybe"], "error: training.compile = maybe: expected true or false"),
        (
            ["train", "--diffusion.noise", "pink"],
            "diffusion.noise = pink: expected one of uniform, absorbing, mixed, marginal",
        ),
        (["evaluate", "a", "--limit", "eight"], "error: limit = eight: expected a whole number or null"),
        (["sample", "a", "--corrector.step_size", "big"], "corrector.step_size = big: expected a number or auto"),
        (["sample"], "model"),
        (["sample", "nothing"], "nothing has no config.json: expected a folder"),
        (["sample", "a", "b"], "one word too many"),
        (["evaluate"], "model"),
        (["info", "nothing"], "recipe = nothing: expected"),
    ],
)
def test_wrong_commands_end_in_one_clear_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in error_of(capsys, *arguments)
    assert not list(tmp_path.iterdir())


def test_an_unknown_command(capsys):
    assert main(["paint"]) == 1
    assert (
        "there is no command 'paint': expected one of train, sample, studio, evaluate, frontier, grid, compare, info"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("model:\n  width: 3\n", "width"),
        ("modle:\n  dim: 3\n", "modle"),
        ("training:\n  lr: fast\n", "training.lr"),
        ("data: [1, 2]\n", "data"),
        ("training: 5\n", "training in mine.yaml = 5"),
        ("model: {dim: 3\n", "mine.yaml"),
        ("config: other.yaml\n", "config in mine.yaml = "),
        ("config: {a: 1}\n", "config in mine.yaml = "),
    ],
    ids=["unknown key", "unknown section", "wrong type", "a list", "a number", "no YAML", "a file", "no file"],
)
def test_wrong_recipes_end_in_one_clear_line(content, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(content)
    for words in (["mine.yaml"], ["--config", "mine.yaml"], ["--config=mine.yaml"]):
        assert message in error_of(capsys, "train", *words)


def test_bad_data_end_in_one_clear_line(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cases = {
        "empty": (np.zeros((0, 8), dtype=int), "--data.num_classes=5", "empty"),
        "outside": (np.full((20, 8), 7), "--data.num_classes=5", "7"),
        "floats": (np.zeros((20, 8)), "--data.num_classes=5", "integer"),
        "negative": (np.full((20, 8), -1), "--data.num_classes=5", "-1"),
        "objects": (np.array([[None]]), "--data.num_classes=5", "objects.npy"),
    }
    for name, (rows, option, message) in cases.items():
        np.save(tmp_path / f"{name}.npy", rows, allow_pickle=name == "objects")
        assert message in error_of(capsys, "train", "array", "--data.path", f"{name}.npy", option)
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("content", ["", "{}", "[" * 10**5, "text"], ids=["empty", "a mapping", "deep", "text"])
def test_info_about_a_damaged_model_is_one_line_that_names_the_file(run, capsys, tmp_path, file, content):
    damaged = tmp_path / "damaged"
    shutil.copytree(run, damaged)
    (damaged / file).write_text(content)
    told = error_of(capsys, "info", str(damaged))
    assert f"{damaged / file}: expected" in told
    assert "USD3_DEBUG" not in told


def test_nothing_is_overwritten(run, capsys, tmp_path):
    out = tmp_path / "x.npz"
    out.write_text("mine")
    assert "a name that is not taken" in error_of(capsys, "sample", str(run), "--out", str(out))
    assert "a name that is not taken" in error_of(capsys, "sample", str(run), "--out", str(tmp_path))
    (tmp_path / "x.json").write_text("mine")
    assert "does not exist" in error_of(capsys, "evaluate", str(run), "--out", str(tmp_path / "x.json"))
    recipe = run / "recipe.yaml"
    before = recipe.read_text()
    assert "expected a folder that is new or empty" in error_of(
        capsys, "train", str(recipe), "--run", str(run), "--progress=false"
    )
    assert (out.read_text(), recipe.read_text()) == ("mine", before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fill", "2:4"], "prompt = None"),
        (["--prompt", "nothing.npy"], "prompt = nothing.npy: no such file; expected"),
        (["--prompt", "test", "--fill", "4"], "fill = 4: expected START:STOP"),
        (["--prompt", "test", "--fill", "4:2"], "fill = 4:2"),
        (["--prompt", "test", "--fill", "0:2;"], "fill = 0:2;: expected START:STOP"),
        (["--prompt", "test", "--fill", "0:2;6:9"], "fill = 0:2;6:9: expected 0 <= START < STOP <= 8, not 6:9"),
        (["--prompt", "test", "--fill", "0:2", "--given", "4:6"], "fill = 0:2: expected null where `given` is set"),
        (["--prompt", "test", "--prefix", "2", "--given", "4:6"], "prefix = 2: expected null where `given` is set"),
        (["--prompt", "test", "--given", "0:5;5:8"], "given = 0:5;5:8: expected fewer than all elements"),
        (["--given", "2:4"], "prompt = None"),
        (["--prompt", "test", "--prefix", "99"], "prefix = 99"),
        (["--prompt", "test", "--prefix", "8"], "prefix = 8: expected fewer than all"),
        (["--prompt", "test", "--first", "99"], "first = 99"),
        (["--out", "x.wav"], "out = x.wav"),
        (["--out", "x.mid"], "out = x.mid"),
        (["--steps", "0"], "steps = 0: expected an integer 1..20"),
        (["--steps", "21"], "steps = 21: expected an integer 1..20"),
        (["--num", "0"], "num = 0"),
        (["--sampler", "magic"], "sampler"),
        (["--temperature", "0"], "temperature = 0"),
        (["--first", "1"], "prompt = None"),
        (["--batch_size", "0"], "batch_size = 0"),
        (["--device", "cuda:99"], "device = cuda:99"),
        (["--device", "magic"], "device = magic"),
    ],
)
def test_wrong_requests_for_samples(run, arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in error_of(capsys, "sample", str(run), *arguments)
    assert not list(tmp_path.iterdir())


def test_one_prompt_is_answered_as_often_as_asked(run, tmp_path):
    np.save(tmp_path / "one.npy", np.arange(8) % 5)
    arguments = ["--prompt", str(tmp_path / "one.npy"), "--prefix", "3", "--num", "6", "--steps", "3"]
    assert main(["sample", str(run), *arguments, "--out", str(tmp_path / "x.npz")]) == 0
    tokens = np.load(tmp_path / "x.npz")["tokens"]
    assert (tokens[:, :3] == [0, 1, 2]).all()
    assert len(np.unique(tokens, axis=0)) > 1


def test_padded_prompts_are_those_of_training(tmp_path, capsys):
    rows = (np.arange(8) + np.arange(40)[:, None]) % 5
    rows[::2, 6:] = -1
    np.savez(tmp_path / "padded.npz", train=rows[:30], test=rows[30:])
    recipe = tiny_recipe(tmp_path)
    recipe.data.path, recipe.data.pad_value = str(tmp_path / "padded.npz"), -1
    pipeline_for(recipe, recipe.data.load()).save_pretrained(tmp_path / "model")
    for prompt in ("test", str(tmp_path / "padded.npz")):
        out = tmp_path / f"out-{len(prompt)}"
        arguments = ["--prompt", prompt, "--prefix", "3", "--steps", "3", "--out", str(out)]
        assert main(["sample", str(tmp_path / "model"), *arguments]) == 0
        with np.load(out / "samples.npz") as found:
            assert (found["pad"] == (rows[30:34] == -1)).all()
            assert (found["tokens"][:, :3] == rows[30:34, :3]).all()
            assert ((found["tokens"] == -1) == found["pad"]).all()  # as in the data
            tokens = found["tokens"]
    again = tmp_path / "again.npz"
    arguments = ["--prompt", str(out / "samples.npz"), "--prefix", "7", "--steps", "3", "--out", str(again)]
    assert main(["sample", str(tmp_path / "model"), *arguments]) == 0
    assert (np.load(again)["tokens"][:, :7] == tokens[:, :7]).all()
    data = load_arrays(again, train="tokens", pad_value=-1, num_classes=5)
    assert bool(data.train.pad.any())
    kept, result = str(tmp_path / "kept.npz"), str(tmp_path / "a.json")
    measure = ["evaluate", str(tmp_path / "model"), "--prefix", "2", "--bound_samples", "0"]
    assert main([*measure, "--steps", "2", "--save_samples", kept, "--out", result]) == 0
    assert main([*measure, "--samples", kept, "--out", str(tmp_path / "b.json")]) == 0
    first, second = (json.loads((tmp_path / name).read_text())["rows"] for name in ("a.json", "b.json"))
    assert first == second
    broken = np.load(kept)["tokens"]
    broken[:, :, 3] = -1
    np.savez(kept, tokens=broken)
    capsys.readouterr()
    assert "samples = padding where" in error_of(capsys, *measure, "--samples", kept)


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
SHORT = ["--runs", "2", "--steps", "2", "--bound_samples", "0"]


def test_an_evaluation_is_written_before_it_is_printed_and_prints_in_any_locale(run, tmp_path):
    out = tmp_path / "x.json"
    command = [sys.executable, "-m", "usd3", "evaluate", str(run), *SHORT, "--out", str(out)]
    done = subprocess.run(command, env=os.environ | ASCII, capture_output=True, text=True, encoding="ascii")
    assert done.returncode == 0, done.stderr
    assert " +- " in done.stdout
    assert out.is_file()


def test_a_reader_that_leaves_is_no_error_and_loses_no_result(run, tmp_path):
    out = tmp_path / "x.json"
    command = [sys.executable, "-m", "usd3", "evaluate", str(run), *SHORT, "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()  # as `head` does, only earlier
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert "rror" not in said
    assert out.is_file()


def test_a_closed_pipe_is_quiet_also_where_nothing_was_written_yet():
    for command in (["--help"], ["--version"]):
        process = subprocess.Popen([sys.executable, "-m", "usd3", *command], stdout=subprocess.PIPE, stderr=-1)
        process.stdout.close()
        said = process.stderr.read()
        process.stderr.close()
        assert (process.wait(), said) == (141, b"")


def test_every_sign_that_an_ascii_terminal_does_not_have_is_shown_plainly(monkeypatch):
    for encoding, expected in (("ascii", b"0.1 +- 0.2 v^-> Dn abar beta pi e ? \xe9"), ("utf-8", None)):
        shown = io.BytesIO()
        text = "0.1 ± 0.2 ↓↑→ Δn ᾱ β π é 音 \udce9"
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding=encoding, write_through=True))
        show_plainly()
        print(text, end="")
        assert shown.getvalue() == (expected or text.encode("utf-8", "surrogateescape"))


def test_texts_with_other_signs_are_read_and_shown_in_an_ascii_locale():
    commands = [["info"], ["info", "bach"], ["paper", "show", "music"]]
    code = f"from usd3.cli.main import main; print(*map(main, {commands}))"
    folder, env = ROOT, os.environ | ASCII
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=folder, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 0 0", done.stderr
    assert done.stdout.isascii()


def test_a_model_with_few_steps_is_sampled_and_measured_without_saying_how_many(run, tmp_path, capsys):
    assert main(["sample", str(run), "--num", "1", "--out", str(tmp_path / "x.npz")]) == 0
    measure = ["--runs", "1", "--limit", "2", "--bound_samples", "0", "--baselines", "false"]
    assert main(["evaluate", str(run), *measure, "--out", str(tmp_path / "x.json")]) == 0
    assert json.loads((tmp_path / "x.json").read_text())["settings"]["steps"] == 20


def test_a_damaged_model_ends_in_one_clear_line(tune, tmp_path, capsys):
    broken = tmp_path / "broken"
    Pipeline.from_pretrained(tune, device="cpu").save_pretrained(broken)
    content = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(content[:100])
    assert "expected the weights of its config" in error_of(capsys, "sample", str(broken))


def test_prompts_longer_and_shorter_than_the_model(run, tmp_path):
    for length in (4, 30):
        prompt = (np.arange(length) + np.arange(3)[:, None]) % 5
        np.save(tmp_path / f"{length}.npy", prompt)
        out = tmp_path / f"{length}.npz"
        arguments = ["--prompt", str(tmp_path / f"{length}.npy"), "--prefix", "4", "--steps", "2", "--out", str(out)]
        assert main(["sample", str(run), *arguments]) == 0
        tokens = np.load(out)["tokens"]
        assert tokens.shape == (3, 8)
        assert (tokens[:, :4] == prompt[:, :4]).all()
