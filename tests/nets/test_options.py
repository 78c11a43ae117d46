"""The section `model` of a recipe, and the networks that it knows by name."""

import subprocess
import sys

import pytest
import torch

import usd3
import usd3.nets
from usd3.nets import HollowTransformer, MaskedTransformer, Transformer
from usd3.nets.options import NETS, ModelConfig, is_packaged
from usd3.pipeline.config import PipelineConfig

DIFFUSION = usd3.Diffusion(usd3.Uniform(3), usd3.Cosine())
SMALL = {"dim": 16, "depth": 1, "heads": 2, "mlp": 16, "time_dim": 8}

ONE_FILE = """
from torch import nn

__all__ = ["Bigram"]


class Bigram(nn.Module):
    def __init__(self, num_classes, length, dim, width=4):
        super().__init__()
        if width % 2:
            raise ValueError(f"width = {width}: expected an even number")
        self.length, self.width = length, width
        self.layers = nn.Sequential(nn.Embedding(num_classes, dim), nn.Linear(dim, num_classes))

    def forward(self, x_t, t, given=None, pad=None):
        return self.layers(x_t)
"""


@pytest.fixture
def bigram(tmp_path, monkeypatch):
    """A network that is added to the package by one file."""
    (tmp_path / "bigram.py").write_text(ONE_FILE)
    monkeypatch.setattr(usd3.nets, "__path__", [*usd3.nets.__path__, str(tmp_path)])
    yield "bigram"
    sys.modules.pop("usd3.nets.bigram", None)


def test_the_packaged_networks():
    assert sorted(NETS) == ["film", "hollow_transformer", "masked_transformer", "sudoku", "transformer", "voices"]
    assert len(NETS) == 6
    assert NETS["transformer"] is Transformer
    assert {name: getattr(kind, "is_hollow", False) for name, kind in NETS.items()} == {
        "film": False,
        "hollow_transformer": True,
        "masked_transformer": True,
        "sudoku": False,
        "transformer": False,
        "voices": False,
    }
    for other in ("options", "heads", "_time", "Transformer", "usd3.nets.film", ""):
        assert other not in NETS
        with pytest.raises(KeyError):
            NETS[other]


def test_what_counts_as_packaged():
    assert is_packaged(Transformer(3, **SMALL))
    assert not is_packaged(type("Own", (Transformer,), {})(3, **SMALL))
    assert not is_packaged(Transformer(3, **SMALL).layers[0])
    assert not is_packaged(ModelConfig(**SMALL).build(DIFFUSION))  # a head around the network


def test_one_file_adds_a_network_that_recipes_name(bigram, tmp_path):
    assert bigram in NETS
    config = ModelConfig(bigram, dim=8, options={"width": 6})
    net = config.build_bare(3, (2, 5))
    assert (net.length, net.width, is_packaged(net)) == (10, 6, True)
    pipeline = usd3.Pipeline(PipelineConfig(3, [4], model=config))
    pipeline.save_pretrained(tmp_path / "model")
    loaded = usd3.Pipeline.from_pretrained(tmp_path / "model", device="cpu")  # packaged, so it needs no trust
    assert torch.equal(loaded.sample(3, 4), pipeline.sample(3, 4))


def test_errors_of_a_network_name_the_option(bigram):
    with pytest.raises(ValueError, match=r"^model.options.width = 3: expected an even number$"):
        ModelConfig(bigram, options={"width": 3}).build(DIFFUSION, (4,))
    with pytest.raises(ValueError, match=r"^model.options = \{'depth': 3\}: expected only width for bigram$"):
        ModelConfig(bigram, options={"depth": 3}).build(DIFFUSION, (4,))
    with pytest.raises(ValueError, match=r"^model.timeless = True: expected false for bigram$"):
        ModelConfig(bigram, timeless=True).build(DIFFUSION, (4,))


def test_arguments_without_an_option_of_their_own():
    config = ModelConfig("hollow_transformer", **SMALL, hollow=False, options={"readout": "concat"})
    assert config.build(DIFFUSION, (4,)).plain
    config = ModelConfig("masked_transformer", **SMALL, hollow=False, options={"chunk": 5})
    assert config.build(DIFFUSION, (4,)).chunk == 5
    with pytest.raises(ValueError, match=r"^model.options.readout = sum: expected res_concat or concat"):
        ModelConfig("hollow_transformer", **SMALL, options={"readout": "sum"}).build(DIFFUSION, (4,))
    with pytest.raises(TypeError, match=r"^model.options.chunk is a str: expected an integer >= 1"):
        ModelConfig("masked_transformer", **SMALL, options={"chunk": "5"}).build(DIFFUSION, (4,))
    for name in ("dim", "length", "num_classes", "width"):
        with pytest.raises(ValueError, match=r"^model.options = .*: expected only readout for hollow_transformer$"):
            ModelConfig("hollow_transformer", **SMALL, options={name: 8}).build(DIFFUSION, (4,))


@pytest.mark.parametrize("net", ["transformer", "film", "hollow_transformer", "masked_transformer"])
@pytest.mark.parametrize(
    ("sizes", "shape", "message"),
    [
        ({"dim": 7, "heads": 6}, [8], "model.dim = 7: expected a multiple of 12, twice the number of heads"),
        ({"dim": 1, "heads": 1}, [8], "model.dim = 1: expected a multiple of 2, twice the number of heads"),
        ({"dim": 6, "heads": 2}, [2, 4], "model.dim = 6: expected a multiple of 4, twice the number of heads"),
    ],
)
def test_impossible_sizes_are_refused_in_the_names_of_the_options(net, sizes, shape, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        ModelConfig(net, depth=1, **sizes).build(DIFFUSION, shape)


def test_sizes_that_one_network_alone_cannot_have_are_refused():
    with pytest.raises(ValueError, match=r"^model.dim = 4: expected at least 8, 2 for each head and axis"):
        ModelConfig(dim=4, heads=2, depth=1).build(DIFFUSION, [2, 4])
    with pytest.raises(ValueError, match=r"^dim = 4: expected at least 8, 2 for each head and axis"):
        Transformer(3, dim=4, heads=2, axes=2)
    for net, kind in (("hollow_transformer", HollowTransformer), ("masked_transformer", MaskedTransformer)):
        with pytest.raises(ValueError, match=r"^model.dim = 2: expected an integer >= 4"):
            ModelConfig(net, dim=2, heads=1, depth=1).build(DIFFUSION, [4])
        with pytest.raises(ValueError, match=r"^dim = 2: expected an integer >= 4"):
            kind(3, 4, dim=2, heads=1)


def test_a_recipe_imports_only_the_network_that_it_names():
    code = "import sys; from usd3.nets.options import ModelConfig; ModelConfig(dim=16, heads=2, depth=1).build_bare(3);"
    code += "print(*sorted(name for name in sys.modules if name.startswith('usd3.nets.') and name.endswith('former')))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["usd3.nets.transformer"]
