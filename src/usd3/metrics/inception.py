"""The Inception network of published scores. The user provides the file of its weights."""

import importlib
import os
import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Inception", "load_inception"]

_NAME, _OUTPUTS = "inception-v3-compat", ["2048", "logits_unbiased"]
_WEIGHTS = "the Inception weights of torch-fidelity or pytorch-fid, ...inception-2015-12-05-6726825d.pth"


class Inception(nn.Module):
    """Pooled features and logits of images uint8 (N, 3, H, W), concatenated: (N, 2048 + 1008)."""

    num_features = 2048

    def __init__(self, extractor: nn.Module):
        super().__init__()
        self.extractor = extractor

    def forward(self, images: Tensor) -> Tensor:
        """Features and logits (N, 2048 + 1008); the images are resized as for published scores."""
        return torch.cat(self.extractor(images), dim=1)


def load_inception(path: str | os.PathLike[str], device: torch.device | str | None = None) -> Inception:
    """The Inception network with the weights of a file. Nothing is downloaded."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected {_WEIGHTS}")
    extractor = _extractor_class()
    try:
        # torch-fidelity would run any code in the file; a file that loads here holds only tensors
        torch.load(path, map_location="cpu", weights_only=True)
        network = extractor(_NAME, _OUTPUTS, feature_extractor_weights_path=str(path))
    except (RuntimeError, TypeError, EOFError, KeyError, pickle.UnpicklingError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ValueError(f"{path}: expected {_WEIGHTS} ({reason})") from None
    return Inception(network).to(device).eval()


def _extractor_class() -> Any:
    """torch-fidelity's class of the network; ImportError with a hint if it cannot be imported."""
    try:
        return importlib.import_module("torch_fidelity").FeatureExtractorInceptionV3
    except ModuleNotFoundError:
        raise ImportError("FID and Inception score need torch-fidelity: pip install 'usd3[inception]'") from None
    except (ImportError, RuntimeError) as error:  # torchvision and torch do not fit together
        raise ImportError(f"torch-fidelity cannot be imported: {str(error).splitlines()[0]}") from None
