import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import usd3
from usd3.core.options import DiffusionConfig
from usd3.kinds.options import DataConfig
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline

MODEL = ModelConfig(dim=16, depth=1, heads=2, mlp=16, time_dim=8)


def made(**changes) -> Pipeline:
    torch.manual_seed(0)
    pipeline = Pipeline(PipelineConfig(**{"num_classes": 5, "shape": [6], "model": MODEL} | changes))
    for p in pipeline.model.parameters():
        nn.init.normal_(p, std=0.3)
    return pipeline


class Own(nn.Module):
    """A network of a user's own."""

    def __init__(self, num_classes: int, width: int = 4):
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(num_classes, width), nn.Linear(width, num_classes))

    def forward(self, x_t, t):
        return self.net(x_t)


def test_what_is_saved_comes_back(tmp_path):
    pipeline = made(
        decode=[4, 3, 2, 1, 0], diffusion=DiffusionConfig(noise="marginal"), marginal=[0.1, 0.1, 0.2, 0.2, 0.4]
    )
    pipeline.save_pretrained(tmp_path / "model")
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]
    loaded = Pipeline.from_pretrained(tmp_path / "model", device="cpu")
    assert loaded.config == pipeline.config
    assert torch.equal(loaded.sample(3, 5, seed=1), pipeline.sample(3, 5, seed=1))
    assert usd3.Pipeline is Pipeline


def test_samples_are_in_the_categories_of_the_data():
    decode = [3, 0, 4, 1, 2]
    plain, renamed = made(), made(decode=decode)
    tokens = torch.randint(5, (4, 6), generator=torch.Generator().manual_seed(0))
    given = torch.arange(6) < 3
    x = renamed.sample(tokens=tokens, given=given, num_steps=4)
    assert torch.equal(x[:, :3], tokens[:, :3])
    inner = plain.sample(tokens=renamed.encoded(tokens), given=given, num_steps=4)
    assert torch.equal(torch.tensor(decode)[inner], x)
    assert torch.equal(renamed.bound(tokens), plain.bound(renamed.encoded(tokens)))


def test_the_batch_size_follows_the_size_of_the_logits():
    assert made().batch_size(10) == 10
    large = made(num_classes=50_000, shape=[64])
    assert large.batch_size(1000) == 2**24 // (64 * 50_000)


def test_draws_depend_on_the_seed_alone():
    pipeline = made()
    torch.manual_seed(1)
    first = pipeline.sample(8, 4, seed=3)
    torch.manual_seed(2)
    assert torch.equal(first, pipeline.sample(8, 4, seed=3))
    assert not torch.equal(first, pipeline.sample(8, 4, seed=4))


def test_a_low_temperature_draws_what_is_likely():
    class Sure(nn.Module):
        def __init__(self):
            super().__init__()
            self.logits = nn.Parameter(torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0]))

        def forward(self, x_t, t):
            return self.logits.expand(*x_t.shape, -1)

    pipeline = Pipeline(PipelineConfig(num_classes=5, shape=[6]), Sure())
    cold, warm = (pipeline.sample(200, 3, temperature=t) for t in (0.1, 1.0))
    assert (cold == 1).float().mean() > 0.99
    assert (warm == 1).float().mean() == pytest.approx(2.718 / 6.718, abs=0.05)
    with pytest.raises(ValueError, match="temperature = 0"):
        pipeline.sample(1, temperature=0)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_two_processes_divide_the_work_and_both_get_all_of_it(tmp_path):
    pipeline = made()
    pipeline.save_pretrained(tmp_path)
    code = (
        "import sys, torch; from usd3 import Pipeline\n"
        "p = Pipeline.from_pretrained(sys.argv[1], device='cpu'); calls = []\n"
        "x = p.sample(10, 3, batch_size=3, callback=lambda s: calls.append(len(s.x_s)))\n"
        "torch.save((x, calls), sys.argv[2])"
    )
    environment = os.environ | {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "OMP_NUM_THREADS": "1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), str(tmp_path / f"{rank}.pt")],
            env=environment | {"RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert [p.wait(60) for p in processes] == [0, 0]
    (a, calls_a), (b, calls_b) = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    alone = pipeline.sample(10, 3, batch_size=3)
    assert torch.equal(a, alone)
    assert torch.equal(b, alone)
    assert (sum(calls_a), sum(calls_b)) == (3 * 6, 3 * 4)


def test_a_network_of_your_own_is_imported_only_on_request(tmp_path):
    name = f"{Own.__module__}.{Own.__qualname__}"
    pipeline = made(model=ModelConfig(net=name, options={"width": 3}))
    pipeline.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"model.net = .*Own: expected one of .* trust_code: true"):
        Pipeline.from_pretrained(tmp_path)
    for loaded in (
        Pipeline.from_pretrained(tmp_path, trust_code=True, device="cpu"),
        Pipeline.from_pretrained(
            tmp_path, model=ModelConfig(net=name, options={"width": 3}).build(pipeline.diffusion), device="cpu"
        ),
    ):
        assert torch.equal(loaded.sample(2, 3), pipeline.sample(2, 3))


@pytest.mark.parametrize(
    ("net", "options"), [("nope", {}), ("os.path.join", {}), ("missing.module.Net", {}), ("transformer", {"width": 1})]
)
def test_what_is_no_network_is_refused(net, options):
    with pytest.raises(ValueError, match=r"model\.(net|options) = .*: expected"):
        made(model=ModelConfig(net=net, options=options))


def test_broken_folders_are_refused_in_one_line(tmp_path):
    made().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    with pytest.raises(FileNotFoundError, match=r"expected a folder with config.json and model.safetensors"):
        Pipeline.from_pretrained(tmp_path / "nothing")
    for text, message in (
        ("{", "config.json"),
        (
            '{"kind": "vqgan", "model": {"num_codes": 8}}',
            "is a vqgan: expected the folder of a run or of a saved model",
        ),
        (json.dumps(config | {"surprise": 1}), "surprise"),
        (json.dumps(config | {"model": config["model"] | {"dim": 32}}), "expected the weights of its config"),
    ):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match=message):
            Pipeline.from_pretrained(tmp_path)
    whole = json.dumps(config, indent=2)
    for damaged, message in (
        (whole[: len(whole) // 2], "it ends or breaks off in line"),
        ("", "it is empty"),
        (b"\x80\x02\xff\x00", "it is no text"),
        ("[1, 2]", "config is a list: expected a mapping"),
        ("null", "config is a NoneType: expected a mapping"),
        ("{}", "config without = num_classes"),
        (json.dumps({key: value for key, value in config.items() if key != "shape"}), "config without = shape"),
        (json.dumps(config | {"shape": 6}), "shape is a int: expected a list, each a whole number"),
        (json.dumps(config | {"shape": [6, -1]}), "shape = -1: expected an integer >= 1"),
        (json.dumps(config | {"num_classes": "5"}), "num_classes is a str: expected a whole number"),
        (json.dumps(config | {"model": [1]}), "model is a list: expected a mapping"),
        (json.dumps(config | {"model": {"dept": 3}}), r"a field of model = dept: .* \(is depth meant\?\)"),
        (json.dumps(config | {"diffusion": {"noise": "unifrom"}}), r"diffusion.noise = unifrom: .*\(is uniform meant"),
        (json.dumps(config | {"data": {"path": 5}}), "data.path is a int: expected a text or null"),
        (json.dumps(config | {"decode": [0, 0, 1, 2, 3]}), "a permutation of 0..4"),
        (json.dumps(config | {"kind": {"name": "image_tokens", "source": {"vqgan": "x"}}}), "source without = images"),
        (json.dumps(config | {"kind": {"name": "image_tokens"}}), "source is a NoneType: expected an ImageSource"),
        (json.dumps(config | {"kind": {"name": "melody"}}), "num_classes = 5: expected 129 for melodies"),
        (json.dumps(config | {"kind": {"name": "aray"}}), r"kind.name = aray: .*\(is array meant\?\)"),
        (json.dumps(config | {"kind": {"name": "array", "size": 3}}), "a field of kind = size"),
        (json.dumps(config | {"kind": {}}), "kind is a dict: expected a mapping with a name"),
    ):
        (tmp_path / "config.json").write_bytes(damaged if isinstance(damaged, bytes) else damaged.encode())
        with pytest.raises(ValueError, match=message) as refused:
            Pipeline.from_pretrained(tmp_path)
        assert str(refused.value).startswith(f"{tmp_path / 'config.json'}: expected what usd3 wrote: restore the file")
        assert "\n" not in str(refused.value)
    (tmp_path / "config.json").write_text(json.dumps(config))
    content = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="expected the weights of its config"):
        Pipeline.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num": 0}, "num = 0"),
        ({"tokens": torch.zeros(2, 5, dtype=torch.long)}, r"tokens.shape = \(2, 5\)"),
        ({"tokens": torch.full((2, 6), 5)}, r"categories 0\.\.4"),
        ({"num": 3, "tokens": torch.zeros(2, 6, dtype=torch.long)}, "num = 3"),
        ({"tokens": [[1, 2], [3]]}, "^tokens is a list: expected integers, a tensor, an array or lists"),
        ({"tokens": np.zeros((2, 6))}, "^tokens is a torch.float64 tensor: expected integers"),
        ({"tokens": torch.zeros(2, 6)}, "^tokens is a torch.float32 tensor: expected integers"),
        ({"tokens": [["a"] * 6]}, "^tokens is a list: expected integers"),
        ({"tokens": 3}, r"^tokens.shape = \(\): expected"),
        ({"num": 2, "given": [1, 0, 0, 0, 0, 0]}, "^given is a torch.int64 tensor: expected booleans"),
        ({"num": 2, "pad": np.zeros(5, dtype=bool)}, r"^pad.shape = \(5,\): expected a shape that broadcasts"),
    ],
)
def test_bad_requests_are_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        made().sample(**arguments)


def test_without_a_number_of_steps_a_model_takes_those_it_has():
    few, many = (made(diffusion=DiffusionConfig(num_steps=n)) for n in (7, 1000))
    for pipeline, count in ((few, 7), (many, 100), (made(), 100)):
        steps = []
        pipeline.sample(callback=steps.append)
        assert len(steps) == pipeline.num_moves() == count


@pytest.mark.parametrize("kind", [np.asarray, np.int16, np.ndarray.tolist, lambda x: x[::-1][::-1]])
def test_arrays_and_lists_are_as_welcome_as_tensors(kind):
    rows = np.arange(18).reshape(3, 6) % 5
    rows.setflags(write=False)
    given, pad, pipeline = np.arange(6) < 3, np.arange(6) == 5, made()
    masks = {"given": torch.tensor(given), "pad": torch.tensor(pad)}
    others = {"given": given.tolist(), "pad": pad}
    expected = pipeline.sample(tokens=torch.tensor(rows), num_steps=3, **masks)
    assert torch.equal(pipeline.sample(tokens=kind(rows), num_steps=3, **others), expected)
    expected = pipeline.bound(torch.tensor(rows), num_samples=2, **masks)
    assert torch.equal(pipeline.bound(kind(rows), num_samples=2, **others), expected)


def test_padding_goes_in_and_comes_out_as_the_pad_value_of_the_data():
    rows = np.array([[1, 2, 3, -1, -1, -1], [4, 3, 2, 1, 0, 1]])
    given, pad = np.arange(6) < 2, rows == -1
    zeros = {"tokens": np.where(pad, 0, rows), "pad": pad, "given": given, "num_steps": 3}
    plain = made().sample(**zeros)
    padded = made(data=DataConfig(source="array", pad_value=-1))
    for x in (padded.sample(tokens=rows, given=given, num_steps=3), padded.sample(**zeros)):
        assert (x.numpy() == np.where(pad, -1, plain)).all()
    assert torch.equal(padded.bound(rows, given), made().bound(zeros["tokens"], given, pad))


def test_a_folder_from_before_networks_knew_places_draws_as_it_did(tmp_path):
    """Weights without places are those of a network whose places have weight 0."""
    pipeline = made()
    nn.init.zeros_(pipeline.model.module.place.weight)
    pipeline.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["module.place.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    loaded = Pipeline.from_pretrained(tmp_path, device="cpu")
    assert torch.equal(loaded.sample(4, num_steps=5), pipeline.sample(4, num_steps=5))
