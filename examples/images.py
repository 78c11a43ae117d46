"""Images from start to end, at a small size: classifier, VQGAN, tokens, diffusion, samples, inpainting, scores.

    python examples/images.py

The script draws the images itself: discs, squares and crosses in three colours. It prints each command before it runs
it, so you can run the commands by hand, also with your own images. About a minute on two CPU cores.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from usd3._internal.files import new_folder
from usd3.cli.main import main as usd3

SIDE = 16
COLOURS = np.array([[214, 64, 69], [46, 134, 193], [244, 208, 63]])
SHAPES = ("disc", "square", "cross")


def draw_shapes(count: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (N, 16, 16, 3), each with one shape on a grey background, and labels 0..8 of the shape and its colour."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(len(SHAPES) * len(COLOURS), size=count)
    centre, radius = rng.choice([5.5, 9.5], (2, count, 1, 1)), rng.choice([3.5, 5], (count, 1, 1))
    down, right = (np.arange(SIDE).reshape(shape) - c for shape, c in zip(((1, -1, 1), (1, 1, -1)), centre))
    square = np.maximum(abs(down), abs(right)) < 0.9 * radius
    inside = np.stack([down**2 + right**2 < radius**2, square, square & (np.minimum(abs(down), abs(right)) < 1.2)])
    shape = inside[labels // len(COLOURS), np.arange(count)]
    background = rng.choice([20, 90], (count, 1, 1, 1))
    images = np.where(shape[..., None], COLOURS[labels % len(COLOURS)][:, None, None], background)
    return images.astype(np.uint8), labels


def main() -> int:
    """Draw the images and run the commands; all results go into a new folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="runs", help="where the new folder is created")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of training steps")
    options = parser.parse_args()
    began, out = time.monotonic(), new_folder(options.runs, "images")
    (train, labels), (test, test_labels) = draw_shapes(2000, seed=0), draw_shapes(500, seed=1)
    classes = [f"{c} {s}" for s in SHAPES for c in ("red", "blue", "yellow")]
    pictures, tokens = str(out / "shapes.npz"), str(out / "tokens.npz")
    np.savez(pictures, train=train, test=test, train_labels=labels, test_labels=test_labels, classes=classes)

    def steps(count: int) -> str:
        return str(max(2, round(count * options.scale)))

    looks, judge, vqgan, model = (str(out / name) for name in ("looks", "judge", "vqgan", "model"))
    fit = f"--images {pictures} --batch_size 64 --warmup 10 --crop 0"
    judging = f"{fit} --width 8 --blocks 1 --steps {steps(120)} --lr 5e-3"
    small = "--model.dim 48 --model.depth 3 --training.batch_size 64 --training.given random"
    commands = [
        f"classifier --run {looks} {judging}",  # for the perceptual loss
        f"classifier --run {judge} {judging} --seed 1",  # for the scores: the VQGAN never sees it
        f"vqgan --run {vqgan} {fit} --num_codes 64 --code_dim 16 --filters [16,24,32] --blocks 1"
        f" --perceptual {looks} --gan_weight 0.02 --discriminator_width 8 --steps {steps(500)} --lr 3e-3",
        f"encode {vqgan} --images {pictures} --out {tokens}",
        f"train vqcifar10 small --data.path {tokens} --run {model} {small} --training.steps {steps(600)}",
        f"sample {model} --steps 32 --num 64 --animate true --neighbours 3 --out {out / 'drawn'}",
        f"sample {model} --steps 32 --prompt test --num 8 --fill 1:3,1:3 --out {out / 'filled'}",
        f"decode {vqgan} --tokens {out / 'drawn' / 'samples.npz'} --out {out / 'decoded.png'}",
        f"evaluate {model} --steps 32 --images.num 500 --images.classifier {judge} --runs 1 --bound_samples 8",
    ]
    for command in commands:
        print(f"\n$ usd3 {command}", flush=True)
        status = usd3(command.split())
        if status:
            return status
    print(f"\n{time.monotonic() - began:.0f} seconds. Look at:")
    for path in sorted([*Path(out).rglob("*.png"), *Path(out).rglob("*.gif")]):
        if path.parent.parent == out or path.parent == out:  # not each single image
            print(f"  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
