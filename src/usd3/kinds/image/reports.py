"""How good a VQGAN and a classifier are, on training and on held-out images."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from usd3._internal.pixels import as_floats
from usd3._internal.progress import counted
from usd3.kinds.image.augment import turned
from usd3.kinds.image.classifier import Classifier
from usd3.kinds.image.images import Images, spread
from usd3.kinds.image.vqgan import VQGAN

__all__ = ["accuracy", "reconstruction_report", "usage"]

_MOST_IMAGES = 10_000  # of each split


def usage(tokens: Tensor, num_codes: int) -> tuple[float, float]:
    """The fraction of codes that occur, and the perplexity of the tokens: `num_codes` if all are equally frequent."""
    counts = torch.bincount(tokens.flatten(), minlength=num_codes).double()
    share = counts / counts.sum()
    return (counts > 0).double().mean().item(), torch.exp(torch.special.entr(share).sum()).item()


def reconstruction_report(
    vqgan: VQGAN, images: Images, batch_size: int = 256, progress: bool = False
) -> dict[str, Any]:
    """For each split: number of images, L1 in -1..1, PSNR in dB, fraction of codes used, and perplexity.

    At most 10,000 images of a split are measured.

    Args:
        vqgan: the VQGAN.
        images: the images.
        batch_size: number of images in a batch.
        progress: show progress.
    """
    both = {"train": images.train, "test": images.test}
    splits = {name: spread(split, _MOST_IMAGES).split(batch_size) for name, split in both.items()}
    report: dict[str, Any] = {}
    batches = sum(len(parts) for parts in splits.values())
    with counted("measuring", batches) if progress else nullcontext(lambda _: None) as advance:
        for name, parts in splits.items():
            tokens, errors = [], []
            for part in parts:
                tokens.append(vqgan.encode_images(part, batch_size))
                errors.append(_errors(part, vqgan.decode_images(tokens[-1], batch_size)))
                advance(part)
            l1, psnr = torch.cat(errors).mean(0).tolist()
            share, perplexity = usage(torch.cat(tokens), vqgan.num_codes)
            count = sum(len(part) for part in parts)
            report[name] = {"images": count, "l1": l1, "psnr": psnr, "codes_used": share, "perplexity": perplexity}
    return report


def _errors(images: Tensor, decoded: Tensor) -> Tensor:
    """L1 in -1..1 and PSNR of each image, (N, 2)."""
    gaps = (images.float() - decoded.float()).flatten(1) / 255
    psnr = -10 * torch.log10(gaps.square().mean(1).clamp(min=1e-10))
    return torch.stack([2 * gaps.abs().mean(1), psnr], 1).double()


@torch.inference_mode()
def accuracy(classifier: Classifier, images: Tensor, labels: Tensor | None, batch_size: int = 500) -> float:
    """The fraction of images that are classified correctly.

    Args:
        classifier: the classifier.
        images: (N, 3, H, W) uint8.
        labels: (N,) the true classes; None: each image is rotated in all four ways, and the rotation is the class.
        batch_size: number of images in a batch.
    """
    device, training = classifier.head.weight.device, classifier.training
    classifier.eval()
    correct = torch.zeros((), dtype=torch.int64, device=device)
    for i in range(0, len(images), batch_size):
        part = as_floats(images[i : i + batch_size].to(device))
        if labels is not None:
            correct += (classifier(part).argmax(1) == labels[i : i + batch_size].to(device)).sum()
        else:
            for quarters in range(4):
                rotation = torch.full((len(part),), quarters, device=device)
                correct += (classifier(turned(part, rotation)).argmax(1) == rotation).sum()
    classifier.train(training)
    return correct.item() / (len(images) * (1 if labels is not None else 4))
