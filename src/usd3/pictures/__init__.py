"""Pictures of sequences and images: piano rolls, grids, animations of the denoising.

Given elements and generated ones have different colours, which colour-blind people can tell apart too. Every file
appears whole or not at all.
"""

from usd3.pictures.animation import animate_denoising
from usd3.pictures.grids import token_grid, token_maps
from usd3.pictures.image_animation import animate_images
from usd3.pictures.images import image_grid, image_rows, inpainting_grid, neighbour_grid, reconstruction_grid, with_hole
from usd3.pictures.rolls import piano_roll

__all__ = [
    "animate_denoising",
    "animate_images",
    "image_grid",
    "image_rows",
    "inpainting_grid",
    "neighbour_grid",
    "piano_roll",
    "reconstruction_grid",
    "token_grid",
    "token_maps",
    "with_hole",
]
