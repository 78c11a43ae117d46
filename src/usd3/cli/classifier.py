"""usd3 classifier: train the network whose features measure images."""

import json
from dataclasses import dataclass

from usd3.cli.runs import RunOptions, trained_in
from usd3.training.classifier import ClassifierConfig, train_classifier

__all__ = ["ClassifierOptions", "classifier"]


@dataclass
class ClassifierOptions(RunOptions, ClassifierConfig):
    """Train a classifier of images, whose features serve metrics and the perceptual loss.

    Images without labels are turned, and it learns which way. The folder of the run has it as config.json and
    model.safetensors, and results.json with its accuracy on held-out images.
    """


def classifier(options: ClassifierOptions) -> None:
    """Train; prints where the run is and how well the classifier does."""
    folder = trained_in(options, "classifier", ClassifierConfig, train_classifier)
    found = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    if "test_accuracy" in found:
        what = (
            f"{found['classes']} classes" if found["learned"] == "labels" else "four rotations, as there are no labels"
        )
        print(f"accuracy {found['test_accuracy']:.2%} of {found['test_images']} held-out images, {what}")
    print(f"the classifier is in {folder}")
