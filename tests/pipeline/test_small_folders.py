"""Small folders and files of strangers take no more memory and time than their size allows."""

import json
import zipfile
from dataclasses import asdict, replace

import pytest
import torch
import yaml
from safetensors.torch import save_file

from support.runs import tiny_recipe
from usd3.core.options import DiffusionConfig
from usd3.kinds.image.classifier import Classifier
from usd3.kinds.image.folders import load_classifier, load_vqgan, save_network
from usd3.kinds.image.vqgan import VQGAN
from usd3.methods.options import MethodConfig
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline
from usd3.training.checkpoints import require_whole
from usd3.training.run import fit

SMALL = {"dim": 16, "depth": 1, "heads": 2, "mlp": 16, "time_dim": 8}
MANY = 10**9


def saved(folder, **changes):
    """A small model whose config.json then says something else, by dotted names."""
    nets = {"net": changes.pop("net")} if "net" in changes else {}
    Pipeline(PipelineConfig(5, [6], model=ModelConfig(**SMALL, **nets))).save_pretrained(folder)
    change(folder, changes)
    return folder


def change(folder, changes):
    values = json.loads((folder / "config.json").read_text())
    for name, value in changes.items():
        *parts, last = name.split(".")
        place = values
        for part in parts:
            place = place[part]
        place[last] = value
    (folder / "config.json").write_text(json.dumps(values))


@pytest.mark.parametrize(
    "changes",
    [
        {"model.depth": MANY},
        {"model.depth": MANY, "net": "film"},
        {"model.output_blocks": MANY, "net": "film"},
        {"model.depth": MANY, "net": "hollow_transformer"},
        {"model.depth": MANY, "net": "masked_transformer"},
        {"model.dim": 2 * MANY},
        {"model.dim": 2 * 10**30},
        {"model.mlp": MANY},
        {"model.time_dim": MANY},
        {"num_classes": 10**8},
        {"num_classes": 10**8, "diffusion.noise": "absorbing"},
        {"shape": [2**20], "net": "masked_transformer"},
    ],
    ids=str,
)
def test_a_model_is_not_built_larger_than_its_weights(changes, tmp_path):
    with pytest.raises(ValueError, match=r"model.safetensors: expected the weights of its config \(") as seen:
        Pipeline.from_pretrained(saved(tmp_path, **changes))
    assert "\n" not in str(seen.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": [MANY]}, r"shape = \(1000000000,\) of 5 categories: expected at most"),
        ({"shape": [2**11] * 8}, "expected at most"),
        ({"shape": []}, "expected the sides of an object"),
        ({"shape": [1.5]}, "shape is a list: expected a list, each a whole number"),
        ({"num_classes": 10**12}, "expected at most"),
        ({"num_classes": "many"}, "num_classes is a str"),
        ({"diffusion.num_steps": 10**12}, "num_steps = 1000000000000: expected"),
    ],
    ids=str,
)
def test_a_model_of_sizes_that_nothing_has_is_refused(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        Pipeline.from_pretrained(saved(tmp_path, **changes))


def test_the_matrices_of_d3pm_are_not_made_larger_than_anyone_can_use(tmp_path):
    method = MethodConfig("d3pm", {"transitions": "uniform"})
    config = PipelineConfig(129, [6], DiffusionConfig(num_steps=3), method, ModelConfig(**SMALL))
    Pipeline(config).save_pretrained(tmp_path)
    change(tmp_path, {"diffusion.num_steps": 10**5})
    with pytest.raises(ValueError, match=r"transitions = 100000 matrices of 129 x 129: expected at most"):
        Pipeline.from_pretrained(tmp_path)


def test_a_resumed_run_is_not_built_larger_than_its_weights(tmp_path):
    recipe = tiny_recipe(tmp_path, steps=1, validate_every=0)
    fit(recipe, tmp_path / "run", progress=False)
    wider = replace(recipe, model=replace(recipe.model, depth=MANY))
    (tmp_path / "run" / "recipe.yaml").write_text(yaml.safe_dump(asdict(wider)))
    with pytest.raises(ValueError, match="expected the weights of its config"):
        fit(wider, tmp_path / "run", resume=True, progress=False)


@pytest.mark.parametrize("kind", ["compressed", "told twice"])
def test_a_checkpoint_is_no_larger_than_its_file(kind, tmp_path):
    path = tmp_path / "step-1.ckpt"
    torch.save({"x": torch.zeros(2**18)}, path)
    require_whole(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if kind == "compressed" else zipfile.ZIP_STORED) as records:
        records.writestr("data", bytes(2**20))
        if kind == "told twice":
            records.filelist.append(records.filelist[0])
    with pytest.raises(ValueError, match=r"expected a whole checkpoint \([\d,]+ bytes when unpacked\)"):
        require_whole(path)


@pytest.mark.parametrize("head", [{"hollow": False}, {"self_conditioning": True}, {"net": "film"}], ids=str)
def test_a_model_with_the_right_weights_is_loaded(head, tmp_path):
    made = Pipeline(PipelineConfig(5, [2, 3], model=ModelConfig(**SMALL, **head)))
    made.save_pretrained(tmp_path)
    loaded = Pipeline.from_pretrained(tmp_path, device="cpu")
    for name, weight in made.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], weight)


def test_the_first_tensor_that_differs_is_named(tmp_path):
    saved(tmp_path)
    weights = Pipeline.from_pretrained(tmp_path, device="cpu").model.state_dict()
    for name, other, message in (
        ("module.embed.weight", torch.zeros(5, 8), r"module.embed.weight is 5 x 8, and 5 x 16 in the network"),
        ("module.extra", torch.zeros(()), r"module.extra is a number, and missing in the network"),
    ):
        save_file(weights | {name: other}, tmp_path / "model.safetensors")
        with pytest.raises(ValueError, match=message):
            Pipeline.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"model.blocks": MANY},
        {"model.num_codes": MANY},
        {"model.code_dim": MANY},
        {"model.filters": [8, MANY]},
        {"model.filters": [8] * 1000},
    ],
    ids=str,
)
def test_a_vqgan_is_not_built_larger_than_its_weights(changes, tmp_path):
    save_network(tmp_path, VQGAN(8, 4, (8, 8), 1), size=[8, 8])
    assert load_vqgan(tmp_path, "cpu").num_codes == 8
    change(tmp_path, changes)
    with pytest.raises(ValueError, match="expected the weights of its config"):
        load_vqgan(tmp_path, "cpu")


@pytest.mark.parametrize("name", ["num_classes", "width", "blocks"])
def test_a_classifier_is_not_built_larger_than_its_weights(name, tmp_path):
    save_network(tmp_path, Classifier(3, width=8, blocks=1), size=[8, 8])
    assert load_classifier(tmp_path, "cpu").head.out_features == 3
    change(tmp_path, {f"model.{name}": MANY})
    with pytest.raises(ValueError, match="expected the weights of its config"):
        load_classifier(tmp_path, "cpu")
