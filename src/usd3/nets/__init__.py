"""Networks that map (x_t, t) to logits: our default, the paper's, SDDM's; and heads that start near the answer."""

from usd3.nets.film_transformer import FilmTransformer
from usd3.nets.hollow import Hollow
from usd3.nets.hollow_transformer import HollowTransformer
from usd3.nets.masked_transformer import MaskedTransformer
from usd3.nets.self_conditioned import SelfConditioned
from usd3.nets.transformer import Transformer

__all__ = [
    "FilmTransformer",
    "Hollow",
    "HollowTransformer",
    "MaskedTransformer",
    "SelfConditioned",
    "Transformer",
]
