"""Fill a box of an image in several ways, with a trained model of image tokens and the VQGAN of its tokens.

    python examples/inpainting.py runs/image runs/vqgan photo.png --rows 2:6 --columns 2:6 --out filled.png

The command `usd3 sample runs/image --prompt photo.png --fill 2:6,2:6` does the same.
"""

import argparse
from pathlib import Path

import torch

import usd3
from usd3.conditioning import box_given
from usd3.data import read_image
from usd3.images import load_vqgan
from usd3.pictures import inpainting_grid, with_hole


def ends(text: str) -> tuple[int, int]:
    """START:STOP as two numbers."""
    start, _, stop = text.partition(":")
    return int(start), int(stop)


def main() -> None:
    """Encode, fill, decode, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a run of usd3 train on image tokens")
    parser.add_argument("vqgan", help="folder of the VQGAN that made the tokens")
    parser.add_argument("image", help="the image to fill; its middle square is taken")
    parser.add_argument("--rows", type=ends, default=(2, 6), help="rows of tokens to fill, START:STOP")
    parser.add_argument("--columns", type=ends, default=(2, 6), help="columns of tokens to fill, START:STOP")
    parser.add_argument("--num", type=int, default=4, help="how many ways")
    parser.add_argument("--steps", type=int, default=100, help="sampling steps")
    parser.add_argument("--seed", type=int, default=0, help="seed of all draws")
    parser.add_argument("--out", default="filled.png", help="the picture")
    options = parser.parse_args()
    if Path(options.out).exists():
        parser.error(f"--out {options.out}: expected a name that is not taken")

    pipeline = usd3.Pipeline.from_pretrained(options.model)
    vqgan = load_vqgan(options.vqgan, str(pipeline.device))
    size = vqgan.decode_images(torch.zeros(1, *pipeline.config.shape, dtype=torch.long)).shape[2]
    image = read_image(options.image, size)[None]
    tokens = vqgan.encode_images(image).expand(options.num, -1, -1)
    given = box_given(pipeline.config.shape, [options.rows, options.columns])
    filled = pipeline.sample(num_steps=options.steps, tokens=tokens, given=given, seed=options.seed)
    inpainting_grid(image, with_hole(image, given), vqgan.decode_images(filled)[None], options.out)
    print(f"{options.num} ways to fill {options.image} in {options.out}")


if __name__ == "__main__":
    main()
