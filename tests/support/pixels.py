"""A tune to draw, and what the tests ask of a picture."""

import numpy as np
from PIL import Image

from usd3.pictures.figures import rgb
from usd3.pictures.rolls import REST

_random = np.random.default_rng(3)
TUNE = np.where(_random.random((3, 16)) < 0.2, REST, _random.integers(55, 80, (3, 16))).repeat(2, axis=1)
GIVEN_MASK = np.arange(32) < 8


def pixels(path, frame=0):
    with Image.open(path) as image:
        image.seek(frame)
        return np.asarray(image.convert("RGB")).copy()


def is_colour(picture, colour):
    return (picture == rgb(colour)).all(-1)


def has(picture, colour):
    return bool(is_colour(picture, colour).any())


def as_drawn(image, scale):
    return image.permute(1, 2, 0).numpy().repeat(scale, 0).repeat(scale, 1)


def shows(picture, image, top, left, scale):
    """Whether the picture has the image at this place, and nothing but white just around it."""
    drawn = as_drawn(image, scale)
    height, width = drawn.shape[:2]
    around = picture[top - 1 : top + height + 1, left - 1 : left + width + 1].copy()
    inside = around[1:-1, 1:-1].copy()
    around[1:-1, 1:-1] = 255
    return np.array_equal(inside, drawn) and bool((around == 255).all())
