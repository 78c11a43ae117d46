"""Networks that map (x_t, t) to logits: our default, the paper's, SDDM's; and a head that starts near the answer.

For images, those that make tokens of them, judge them and name them.
"""

from usd3.nets.classifier import Classifier
from usd3.nets.codebook import Codebook
from usd3.nets.discriminator import Discriminator
from usd3.nets.film_transformer import FilmTransformer
from usd3.nets.hollow import Hollow
from usd3.nets.hollow_transformer import HollowTransformer
from usd3.nets.masked_transformer import MaskedTransformer
from usd3.nets.self_conditioned import SelfConditioned
from usd3.nets.transformer import Transformer
from usd3.nets.vqgan import VQGAN

__all__ = [
    "VQGAN",
    "Classifier",
    "Codebook",
    "Discriminator",
    "FilmTransformer",
    "Hollow",
    "HollowTransformer",
    "MaskedTransformer",
    "SelfConditioned",
    "Transformer",
]
