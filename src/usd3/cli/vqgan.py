"""usd3 vqgan: train the network that turns images into tokens and back."""

import json
from dataclasses import dataclass

from usd3.cli.runs import RunOptions, trained_in
from usd3.training.vqgan import VQGANConfig, train_vqgan

__all__ = ["VQGANOptions", "vqgan"]


@dataclass
class VQGANOptions(RunOptions, VQGANConfig):
    """Train a VQGAN, which makes tokens of images and images of tokens.

    The folder of the run gets config.json, model.safetensors, results.json with the errors of reconstructions, and
    reconstructions.png.
    """


def vqgan(options: VQGANOptions) -> None:
    """Train a VQGAN, and print the errors of its reconstructions and the folder of the run."""
    folder = trained_in(options, "vqgan", VQGANConfig, train_vqgan)
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    print(f"perceptual loss: {results['perceptual']}")
    for split in ("train", "test"):
        row = results[split]
        print(
            f"{split:5}  {row['images']} images  L1 {row['l1']:.4f}  PSNR {row['psnr']:.2f} dB  "
            f"codes used {row['codes_used']:.1%}  perplexity {row['perplexity']:.1f}"
        )
    print(f"the VQGAN is in {folder}")
