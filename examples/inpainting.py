"""Fill a box of an image in several ways, with a trained model of image tokens and the VQGAN that made the tokens.

    python examples/inpainting.py runs/image runs/vqgan photo.png --rows 2:6 --columns 2:6 --out filled.png

The command `usd3 sample runs/image --prompt photo.png --fill 2:6,2:6` does the same.
"""

import argparse
from pathlib import Path

import usd3
from usd3.core.given import box_given
from usd3.kinds.image.files import read_image
from usd3.kinds.image.kind import ImageTokens
from usd3.kinds.image.opening import image_size, open_vqgan, side_of
from usd3.pictures import inpainting_grid, with_hole


def span(text: str) -> tuple[int, int]:
    """The two numbers of START:STOP."""
    start, _, stop = text.partition(":")
    if not (start.isdecimal() and stop.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text}: expected START:STOP, as in 2:6")
    return int(start), int(stop)


def main() -> None:
    """Read the options and fill the box."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a run of usd3 train on image tokens")
    parser.add_argument("vqgan", help="folder of the VQGAN that made the tokens")
    parser.add_argument("image", help="the image to fill; its central square is used")
    parser.add_argument("--rows", type=span, default=(2, 6), help="rows of tokens to fill, START:STOP")
    parser.add_argument("--columns", type=span, default=(2, 6), help="columns of tokens to fill, START:STOP")
    parser.add_argument("--num", type=int, default=4, help="how many ways to fill the box")
    parser.add_argument("--steps", type=int, default=100, help="sampling steps")
    parser.add_argument("--seed", type=int, default=0, help="seed of all draws")
    parser.add_argument("--out", default="filled.png", help="the picture to write")
    options = parser.parse_args()
    if Path(options.out).suffix != ".png" or Path(options.out).exists():
        parser.error(f"--out {options.out}: expected a .png file that does not exist")

    try:
        fill(options)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(f"{options.num} ways to fill {options.image} in {options.out}")


def fill(options: argparse.Namespace) -> None:
    """Encode the image, fill the box, decode and draw the results."""
    pipeline = usd3.Pipeline.from_pretrained(options.model)
    config, kind = pipeline.config, pipeline.kind
    if not isinstance(kind, ImageTokens):
        raise ValueError(f"{options.model}: expected a model of image tokens")
    vqgan = open_vqgan(kind.source, config.num_classes, options.vqgan, device=str(pipeline.device))
    image = read_image(options.image, side_of(image_size(vqgan, config.shape)))[None]
    tokens = vqgan.encode_images(image)
    given = box_given(config.shape, [options.rows, options.columns])
    copies = tokens.expand(options.num, -1, -1)
    filled = pipeline.sample(num_steps=options.steps, tokens=copies, given=given, seed=options.seed)
    with_box = with_hole(vqgan.decode_images(tokens), given)
    inpainting_grid(image, with_box, vqgan.decode_images(filled)[None], options.out)


if __name__ == "__main__":
    main()
