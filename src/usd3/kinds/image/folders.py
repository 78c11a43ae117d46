"""Folders of the networks for images: config.json describes the network, model.safetensors has its weights."""

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any, TypeVar

from safetensors.torch import save_file
from torch import nn

from usd3._internal.checks import require
from usd3._internal.device import device_named
from usd3._internal.files import write_whole, written_whole
from usd3._internal.weights import load_weights, require_weights
from usd3._internal.yaml_json import read_json
from usd3._version import __version__
from usd3.kinds.image.classifier import Classifier
from usd3.kinds.image.vqgan import VQGAN

__all__ = ["about", "fingerprint", "load_classifier", "load_vqgan", "results", "save_network", "warn_unfinished"]

_NETWORKS: dict[str, type[nn.Module]] = {"vqgan": VQGAN, "classifier": Classifier}  # by the command that trains them
_WEIGHTS = "model.safetensors"
Network = TypeVar("Network", VQGAN, Classifier)


def save_network(folder: Path | str, network: VQGAN | Classifier, **about: Any) -> None:
    """Write a network into a folder; config.json also gets the entries `about`."""
    folder = Path(folder)
    name = next(name for name, network_class in _NETWORKS.items() if isinstance(network, network_class))
    weights = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    with written_whole(folder / _WEIGHTS) as temporary:  # first, so that a folder with a config.json is complete
        save_file(weights, temporary)
    content = {"kind": name, "model": network.config, **about, "usd3_version": __version__}
    write_whole(folder / "config.json", json.dumps(content, indent=2) + "\n")


def fingerprint(folder: Path | str) -> str:
    """A hash of the weights in a folder; 16 hexadecimal digits."""
    with (Path(folder) / _WEIGHTS).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def load_vqgan(folder: Path | str, device: str | None = None) -> VQGAN:
    """The VQGAN in a folder that `usd3 vqgan` wrote. `device` None: a GPU if there is one."""
    return _load(Path(folder), VQGAN, device)


def load_classifier(folder: Path | str, device: str | None = None) -> Classifier:
    """The classifier in a folder that `usd3 classifier` wrote. `device` None: a GPU if there is one."""
    return _load(Path(folder), Classifier, device)


def about(folder: Path | str, command: str) -> dict[str, Any]:
    """The content of the config.json in a folder that `command`, "vqgan" or "classifier", wrote."""
    folder = Path(folder)
    for name in ("config.json", _WEIGHTS):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name}: expected a folder that `usd3 {command}` made")
    content = read_json(folder / "config.json")
    network = content.get("kind", "diffusion model") if isinstance(content, dict) else type(content).__name__
    require(network == command, f"{folder}: kind", network, f"{command}, a folder that `usd3 {command}` made")
    return dict(content)


def results(folder: Path | str) -> dict[str, Any] | None:
    """The content of results.json, which is written at the end of the training; None: the training was stopped."""
    file = Path(folder) / "results.json"
    return dict(read_json(file)) if file.is_file() else None


def warn_unfinished(folder: Path | str, option: str) -> None:
    """Warn if the training of the network in a folder was stopped. `option` is the option that names the folder."""
    if results(folder) is None:
        warnings.warn(f"{option} = {folder} was not trained to its end: it has no results.json", stacklevel=3)


def _load(folder: Path, network_class: type[Network], device: str | None) -> Network:
    command = next(name for name, named_class in _NETWORKS.items() if named_class is network_class)
    config = about(folder, command)

    def build() -> Network:
        try:
            return network_class(**config["model"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{folder / 'config.json'}: {error}") from None

    require_weights(folder / _WEIGHTS, build)
    network = build()
    load_weights(network, folder / _WEIGHTS)
    return network.to(device_named(device)).eval()
