"""usd3 vqgan: train the network that makes tokens of images."""

import json
from dataclasses import dataclass

from usd3.cli.runs import RunOptions, trained_in
from usd3.training.vqgan import VQGANConfig, train_vqgan

__all__ = ["VQGANOptions", "vqgan"]


@dataclass
class VQGANOptions(RunOptions, VQGANConfig):
    """Train a VQGAN, which makes tokens of images and images of tokens.

    The folder of the run has it as config.json and model.safetensors, results.json with the errors of its
    reconstructions, and reconstructions.png.
    """


def vqgan(options: VQGANOptions) -> None:
    """Train; prints where the run is and how well the VQGAN does."""
    folder = trained_in(options, "vqgan", VQGANConfig, train_vqgan)
    found = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    print(f"perceptual loss: {found['perceptual']}")
    for split in ("train", "test"):
        row = found[split]
        print(
            f"{split:5}  {row['images']} images  L1 {row['l1']:.4f}  PSNR {row['psnr']:.2f} dB  "
            f"codes used {row['codes_used']:.1%}  perplexity {row['perplexity']:.1f}"
        )
    print(f"the VQGAN is in {folder}")
