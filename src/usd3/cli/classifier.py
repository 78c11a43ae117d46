"""usd3 classifier: train the network whose features measure images."""

import json
from dataclasses import dataclass

from usd3.cli.runs import RunOptions, trained_in
from usd3.training.classifier import ClassifierConfig, train_classifier

__all__ = ["ClassifierOptions", "classifier"]


@dataclass
class ClassifierOptions(RunOptions, ClassifierConfig):
    """Train a classifier of images, whose features serve metrics and the perceptual loss.

    If images have no labels, they are rotated, and the classifier learns the rotation. The folder of the run gets
    config.json, model.safetensors, and results.json with the accuracy on held-out images.
    """


def classifier(options: ClassifierOptions) -> None:
    """Train a classifier, and print its accuracy and the folder of the run."""
    folder = trained_in(options, "classifier", ClassifierConfig, train_classifier)
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    if "test_accuracy" in results:
        has_labels = results["learned"] == "labels"
        classes = f"{results['classes']} classes" if has_labels else "four rotations, as there are no labels"
        print(f"accuracy {results['test_accuracy']:.2%} of {results['test_images']} held-out images, {classes}")
    print(f"the classifier is in {folder}")
