"""Networks for images: a VQGAN, which makes tokens of them, and a classifier, whose features measure them."""

from typing import TYPE_CHECKING

from usd3._lazy import lazily
from usd3.images.folders import load_classifier, load_vqgan, save_network
from usd3.images.perceptual import Perceptual, load_perceptual
from usd3.images.reports import accuracy, reconstruction_report, usage

if TYPE_CHECKING:
    from usd3.images.classifier_training import ClassifierConfig, train_classifier
    from usd3.images.fitting import FitConfig
    from usd3.images.vqgan_training import VQGANConfig, train_vqgan

_TRAINING = {  # it brings Lightning, which using a network does not need
    "ClassifierConfig": "usd3.images.classifier_training",
    "FitConfig": "usd3.images.fitting",
    "VQGANConfig": "usd3.images.vqgan_training",
    "train_classifier": "usd3.images.classifier_training",
    "train_vqgan": "usd3.images.vqgan_training",
}
__getattr__ = lazily(__name__, _TRAINING)

__all__ = [
    "ClassifierConfig",
    "FitConfig",
    "Perceptual",
    "VQGANConfig",
    "accuracy",
    "load_classifier",
    "load_perceptual",
    "load_vqgan",
    "reconstruction_report",
    "save_network",
    "train_classifier",
    "train_vqgan",
    "usage",
]
