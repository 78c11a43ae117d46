"""Pictures of sequences and images: piano rolls, grids, maps, animations of the denoising.

Each function takes arrays and the path of the file to write. Given and generated elements have different colours,
chosen so that colour-blind readers can tell them apart. A file is written whole or not at all.
"""

from typing import TYPE_CHECKING

from usd3._internal.imports import lazily

if TYPE_CHECKING:
    from usd3.pictures.animation import animate_denoising, animate_roll
    from usd3.pictures.grids import token_grid, token_maps
    from usd3.pictures.image_animation import animate_images
    from usd3.pictures.images import (
        image_grid,
        image_rows,
        inpainting_grid,
        neighbour_grid,
        reconstruction_grid,
        with_hole,
    )
    from usd3.pictures.rolls import piano_roll

_MODULES = {  # imported on first use
    "usd3.pictures.animation": ("animate_denoising", "animate_roll"),
    "usd3.pictures.grids": ("token_grid", "token_maps"),
    "usd3.pictures.image_animation": ("animate_images",),
    "usd3.pictures.images": (
        "image_grid",
        "image_rows",
        "inpainting_grid",
        "neighbour_grid",
        "reconstruction_grid",
        "with_hole",
    ),
    "usd3.pictures.rolls": ("piano_roll",),
}
__getattr__ = lazily(__name__, {name: module for module, names in _MODULES.items() for name in names})

__all__ = [
    "animate_denoising",
    "animate_images",
    "animate_roll",
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
