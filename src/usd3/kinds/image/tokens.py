"""Files of image tokens: `usd3 encode` writes them, and models are trained on them."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from usd3._internal.checks import as_count, require
from usd3._internal.files import written_whole
from usd3.kinds.array import MOST_CLASSES, sequences
from usd3.kinds.dataset import Dataset, compact
from usd3.kinds.image.kind import ImageTokens
from usd3.kinds.image.source import ImageSource
from usd3.kinds.labels import LABEL, labels_of, with_labels
from usd3.kinds.numpy_files import read_arrays

__all__ = ["about_tokens", "load_image_tokens", "write_image_tokens"]


def about_tokens(num_classes: int, source: ImageSource) -> NDArray[Any]:
    """The array `about` of a file of tokens: JSON that names the VQGAN and the images."""
    return np.array(json.dumps({"num_classes": num_classes, **asdict(source)}))


def write_image_tokens(
    path: str | os.PathLike[str],
    train: Tensor,
    test: Tensor,
    num_classes: int,
    source: ImageSource,
    labels: tuple[Tensor, Tensor] | None = None,
    classes: Sequence[str] = (),
) -> None:
    """Write the tokens of both splits into an .npz file.

    Args:
        path: the file to write.
        train: (N, h, w) the tokens of the training images.
        test: (M, h, w) the tokens of the test images.
        num_classes: number of different tokens.
        source: the VQGAN and the images.
        labels: (N,) and (M,) the classes of the images; None: they have none.
        classes: the names of the classes.
    """
    about = about_tokens(num_classes, source)
    train, test = (compact(split, num_classes).cpu() for split in (train, test))
    more: dict[str, Any] = {}
    if labels is not None:
        more = {"train_label": labels[0].cpu().numpy(), "test_label": labels[1].cpu().numpy()}
        more["label_classes"] = np.array(list(classes))
    with written_whole(Path(path)) as file:
        np.savez_compressed(file, about=about, train=train.numpy(), test=test.numpy(), **more)


def load_image_tokens(path: str | os.PathLike[str]) -> Dataset:
    """The tokens in a file that `usd3 encode` wrote. Their kind knows the VQGAN and the images."""
    path = Path(path)
    stored = read_arrays(path)
    parts = ("train", "test", "about")
    if not isinstance(stored, dict) or any(part not in stored for part in parts):
        raise ValueError(f"{path}: expected a file of image tokens, as `usd3 encode` writes it")
    try:
        about = json.loads(str(stored["about"]))
        flips, fingerprint = bool(about.get("flips", False)), about.get("fingerprint")
        source = ImageSource(str(about["vqgan"]), str(about["images"]), flips, fingerprint)
        num_classes = as_count(about["num_classes"], "num_classes", 2, MOST_CLASSES)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: its array about cannot be read ({error})") from None
    splits = {}
    for name in ("train", "test"):
        tokens = stored[name]
        require(tokens.dtype.kind in "iu", f"{path}[{name}].dtype", tokens.dtype, "integers")
        require(tokens.ndim == 3 and tokens.size > 0, f"{path}[{name}].shape", tokens.shape, "(N, h, w)")
        splits[name] = sequences(tokens, num_classes, name)
    kind = ImageTokens(num_classes, splits["train"].shape, source)
    labels, classes = labels_of(stored, list(splits), str(path))
    if labels is not None:
        splits = {name: with_labels(rows, values) for (name, rows), values in zip(splits.items(), labels)}
    named = {LABEL: classes} if classes else {}
    return Dataset(path.stem, num_classes, splits["train"], splits["test"], kind=kind, labels=named)
