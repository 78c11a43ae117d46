"""Networks for images as folders: config.json says what it is, model.safetensors has the weights."""

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

_KINDS: dict[str, type[nn.Module]] = {"vqgan": VQGAN, "classifier": Classifier}
_WEIGHTS = "model.safetensors"
Network = TypeVar("Network", VQGAN, Classifier)


def save_network(folder: Path | str, network: VQGAN | Classifier, **told: Any) -> None:
    """Write a network and its config.json, which also has what is `told`."""
    folder, kind = Path(folder), next(name for name, known in _KINDS.items() if isinstance(network, known))
    weights = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    with written_whole(folder / _WEIGHTS) as temporary:  # first: a folder with a config.json is whole
        save_file(weights, temporary)
    content = {"kind": kind, "model": network.config, **told, "usd3_version": __version__}
    write_whole(folder / "config.json", json.dumps(content, indent=2) + "\n")


def fingerprint(folder: Path | str) -> str:
    """A short text by which the weights in a folder are known again."""
    with (Path(folder) / _WEIGHTS).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def load_vqgan(folder: Path | str, device: str | None = None) -> VQGAN:
    """The VQGAN in a folder that `usd3 vqgan` made, on a device; None: a GPU where there is one."""
    return _load(Path(folder), VQGAN, device)


def load_classifier(folder: Path | str, device: str | None = None) -> Classifier:
    """The classifier in a folder that `usd3 classifier` made, on a device; None: a GPU where there is one."""
    return _load(Path(folder), Classifier, device)


def about(folder: Path | str, kind: str) -> dict[str, Any]:
    """What the config.json of a folder says; it must be one of this kind, "vqgan" or "classifier"."""
    folder = Path(folder)
    for name in ("config.json", _WEIGHTS):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name}: expected a folder that `usd3 {kind}` made")
    found = read_json(folder / "config.json")
    seen = found.get("kind", "diffusion model") if isinstance(found, dict) else type(found).__name__
    require(seen == kind, f"{folder}: kind", seen, f"{kind}, a folder that `usd3 {kind}` made")
    return dict(found)


def results(folder: Path | str) -> dict[str, Any] | None:
    """What results.json says, which is written when a network is trained to its end; None before that."""
    file = Path(folder) / "results.json"
    return dict(read_json(file)) if file.is_file() else None


def warn_unfinished(folder: Path | str, option: str) -> None:
    """Warn of a network, the value of an option, whose training was stopped."""
    if results(folder) is None:
        warnings.warn(f"{option} = {folder} was not trained to its end: it has no results.json", stacklevel=3)


def _load(folder: Path, network: type[Network], device: str | None) -> Network:
    kind = next(name for name, known in _KINDS.items() if known is network)
    config = about(folder, kind)

    def make() -> Network:
        try:
            return network(**config["model"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{folder / 'config.json'}: {error}") from None

    require_weights(folder / _WEIGHTS, make)
    made = make()
    load_weights(made, folder / _WEIGHTS)
    return made.to(device_named(device)).eval()
