"""Pictures of sequences: piano rolls, grids of categories, an animation of the denoising, the loss, and comparisons.

Given elements and generated ones have different colours, which colour-blind people can tell apart too. Every file
appears whole or not at all.
"""

from usd3.pictures.animation import animate_denoising
from usd3.pictures.comparison import metrics_plot, training_plot
from usd3.pictures.grids import token_grid
from usd3.pictures.losses import loss_plot
from usd3.pictures.rolls import piano_roll

__all__ = ["animate_denoising", "loss_plot", "metrics_plot", "piano_roll", "token_grid", "training_plot"]
