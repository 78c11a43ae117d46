"""Pictures of all kinds of data: piano rolls, letters, pages of text, grids, maps, animations of the denoising.

Each function takes arrays and the path of the file to write. Given and generated elements have different colours,
chosen so that colour-blind readers can tell them apart. A file is written whole or not at all.
"""

from typing import TYPE_CHECKING

from usd3._internal.imports import lazily

if TYPE_CHECKING:
    from usd3.pictures.animation import animate_denoising, animate_roll
    from usd3.pictures.boards import animate_boards, board_grid
    from usd3.pictures.chorales import animate_chorales, chorale_rolls
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
    from usd3.pictures.letters import letter_colours, letter_rows
    from usd3.pictures.rolls import piano_roll
    from usd3.pictures.tables import marginals_sheet, pair_maps, table_sheet, trend_map
    from usd3.pictures.texts import animate_text, text_page

_MODULES = {  # imported on first use
    "usd3.pictures.animation": ("animate_denoising", "animate_roll"),
    "usd3.pictures.boards": ("animate_boards", "board_grid"),
    "usd3.pictures.chorales": ("animate_chorales", "chorale_rolls"),
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
    "usd3.pictures.letters": ("letter_colours", "letter_rows"),
    "usd3.pictures.rolls": ("piano_roll",),
    "usd3.pictures.tables": ("marginals_sheet", "pair_maps", "table_sheet", "trend_map"),
    "usd3.pictures.texts": ("animate_text", "text_page"),
}
__getattr__ = lazily(__name__, {name: module for module, names in _MODULES.items() for name in names})

__all__ = [
    "animate_boards",
    "animate_chorales",
    "animate_denoising",
    "animate_images",
    "animate_roll",
    "animate_text",
    "board_grid",
    "chorale_rolls",
    "image_grid",
    "image_rows",
    "inpainting_grid",
    "letter_colours",
    "letter_rows",
    "marginals_sheet",
    "neighbour_grid",
    "pair_maps",
    "piano_roll",
    "reconstruction_grid",
    "table_sheet",
    "text_page",
    "token_grid",
    "token_maps",
    "trend_map",
    "with_hole",
]
