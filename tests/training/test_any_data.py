"""usd3.fit: data of any kind in one call."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import usd3
from support.runs import weights_of

TINY = {
    "model": {"dim": 16, "depth": 1, "heads": 2, "mlp": 16, "time_dim": 8},
    "training": {"steps": 4, "batch_size": 4, "warmup": 0, "accelerator": "cpu"},
    "progress": False,
}
ROWS = (np.arange(6) + np.arange(30)[:, None]) % 5


@pytest.mark.parametrize(
    "data", [ROWS, torch.from_numpy(ROWS), ROWS.astype(np.uint8), ROWS.tolist()], ids=lambda d: type(d).__name__
)
def test_arrays_tensors_and_lists_of_integers_are_arrays(data):
    pipeline = usd3.fit(data, **TINY)
    assert isinstance(pipeline, usd3.Pipeline)
    assert pipeline.kind.path() == "array"
    assert pipeline.config.shape == [6]
    drawn = pipeline.generate(3, num_steps=2)
    assert isinstance(drawn, np.ndarray)
    assert drawn.shape == (3, 6)


def test_a_data_frame_is_a_table_whose_rows_are_drawn_under_conditions():
    table = pd.DataFrame({"sex": ["Female", "Male", "Male"] * 20, "age": np.arange(60), "tall": [True, False] * 30})
    pipeline = usd3.fit(table, data={"table": {"columns": {"age": "number"}}}, **TINY)
    assert pipeline.kind.path() == "table"
    drawn = pipeline.generate(20, where={"sex": "Female", "age": (30, 40)})
    assert len(drawn) == 20
    assert dict(drawn.dtypes) == dict(table.dtypes)
    assert (drawn["sex"] == "Female").all()
    assert drawn["age"].between(30, 40).all()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (["ACGT", "CCGA", "GATT", "TTAC"] * 10, "sequence"),
        (pd.Series(["ACGT", "CCGA", "GATT", "TTAC"] * 10), "sequence"),
        ("the cat sat on the mat\n" * 200, "text"),
        ("the cat sat on the mat, " * 200, "text"),  # without lines, but too long for the name of a file
        ("the cat sat on the mat, " * 30, "text"),  # not too long, but of words
    ],
    ids=["list", "Series", "lines", "one line", "a short line"],
)
def test_strings_are_sequences_and_one_long_string_is_a_text(data, kind):
    pipeline = usd3.fit(data, **TINY)
    assert pipeline.kind.path() == kind
    drawn = pipeline.generate(2, num_steps=2)
    assert len(drawn) == 2
    assert all(isinstance(one, str) and set(one) <= set("".join(data)) for one in drawn)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("mine.npy", ROWS, "array"),
        ("mine.txt", "the cat sat on the mat\n" * 200, "text"),
        ("mine.fa", "".join(f">{i}\n{'ACGT' * 3}{'ACGT'[i % 4] * (1 + i)}\n" for i in range(20)), "sequence"),
        ("mine.csv", "sex,age\n" + "Female,30\nMale,40\n" * 20, "table"),
    ],
)
def test_a_path_is_read_as_the_kind_of_its_ending(name, content, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save(name, content) if kind == "array" else Path(name).write_text(content)
    path = name if kind in ("array", "table") else Path(name)
    config = usd3.fit(path, **TINY).config
    assert config.kind["name"] == kind
    assert config.data.path == str(tmp_path / name)


def test_the_run_is_kept_where_the_user_says_and_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    usd3.fit(ROWS, **TINY)
    assert list(tmp_path.iterdir()) == []
    usd3.fit(ROWS, run=tmp_path / "kept", **TINY)
    assert (tmp_path / "kept" / "model.safetensors").is_file()
    assert "steps: 4" in (tmp_path / "kept" / "recipe.yaml").read_text()
    with pytest.raises(ValueError, match=r"run = .*kept: expected a folder"):
        usd3.fit(ROWS, run=tmp_path / "kept", **TINY)


def test_recipes_and_options_overrule_the_defaults_in_order(tmp_path):
    Path(tmp_path / "mine.yaml").write_text("training: {lr: 0.5, ema: 0.25}\n")
    options = TINY | {"training": TINY["training"] | {"lr": 0.001}, "data": {"test_fraction": 0.3}}
    usd3.fit(ROWS, "absorbing", str(tmp_path / "mine.yaml"), run=tmp_path / "run", seed=3, **options)
    recipe = (tmp_path / "run" / "recipe.yaml").read_text()
    for line in ("noise: absorbing", "lr: 0.001", "ema: 0.25", "seed: 3", "given: random", "test_fraction: 0.3"):
        assert line in recipe


def test_the_same_seed_trains_the_same_model():
    first, second, other = (weights_of(usd3.fit(ROWS, seed=seed, **TINY)) for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, r"data is a int: expected an array \(N, \.\.\.\) of integers"),
        (np.zeros((3, 4)), r"data is an array \(3, 4\) of float64: expected an array \(N, \.\.\.\) of integers"),
        (np.zeros(3, dtype=int), r"data is an array \(3,\) of int64: expected an array \(N, \.\.\.\) of integers"),
        ([[1, 2, 3], [1, 2]], "data is a list: expected .*; rows must have the same length"),
        ({"a": [1, 2]}, r"data is a dict: expected .*; pandas\.DataFrame\(data\) makes one of a dict"),
        ("no file.csv", "data = no file.csv: no such file"),
        ("nothing.npy", "data = nothing.npy: no such file"),
        (ROWS[:1], r"objects of data = 1: expected at least 2"),
        (-ROWS, "token of data = -4: expected categories"),
    ],
    ids=str,
)
def test_what_is_no_data_is_refused(data, message):
    with pytest.raises((TypeError, ValueError, FileNotFoundError), match=message):
        usd3.fit(data, **TINY)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modell": {}}, r"option = modell: expected one of .* \(is model meant\?\)"),
        ({"model": {"dimm": 3}}, r"option = model\.dimm: expected one of .* \(is dim meant\?\)"),
        ({"model": 3}, "model is a int: expected a mapping"),
        ({"kind": "tabel"}, r"kind = tabel: expected one of .* \(is table meant\?\)"),
        ({"minutes": 0}, "minutes = 0: expected a number"),
    ],
    ids=str,
)
def test_options_that_do_not_exist_are_refused(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        usd3.fit(ROWS, **{**TINY, **options})


def test_a_file_of_an_unknown_ending_asks_for_its_kind(tmp_path):
    (tmp_path / "mine.xyz").write_text("1 2 3")
    with pytest.raises(ValueError, match="expected a file of a known ending, or `kind`"):
        usd3.fit(tmp_path / "mine.xyz", **TINY)


def test_importing_usd3_imports_neither_torch_nor_pandas():
    code = "import sys, usd3; assert not {'torch', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_code_of_a_strangers_recipe_runs_only_if_it_is_trusted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("strange_net.py").write_text("raise SystemExit('the code ran')\n")
    Path("nice.yaml").write_text("model: {net: strange_net.Net}\n")
    with pytest.raises(ValueError, match=r"model\.net = strange_net\.Net: expected .* trust_code"):
        usd3.fit(ROWS, "nice.yaml", progress=False, training=TINY["training"])
    with pytest.raises(SystemExit, match="the code ran"):
        usd3.fit(ROWS, "nice.yaml", progress=False, trust_code=True, training=TINY["training"])


def test_a_model_with_mixed_noise_is_trained_saved_loaded_sampled_and_measured(tmp_path):
    rows = np.random.default_rng(0).integers(0, 3, (64, 6))
    usd3.fit(rows, "mixed", run=tmp_path / "run", **TINY)
    pipeline = usd3.Pipeline.from_pretrained(tmp_path / "run", device="cpu")
    noise = pipeline.diffusion.noise
    assert repr(noise) == "Mixed(4, uniform=0.1, mask=3)"
    x = pipeline.sample(20, 5, seed=1)
    assert x.shape == (20, 6)
    assert (x < 3).all()
    bound = pipeline.bound(rows[:4], num_samples=8)
    assert ((bound > 0) & bound.isfinite()).all()
    given = np.zeros((4, 6), dtype=bool)
    given[:, :3] = True
    assert (pipeline.sample(tokens=rows[:4], given=given, num_steps=5)[:, :3].numpy() == rows[:4, :3]).all()
    np.testing.assert_allclose(pipeline.predict(rows[:4], given).sum(-1), 1, rtol=1e-5)
