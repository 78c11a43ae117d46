"""Networks that map (x_t, t) to logits: our default, the paper's, and the head that starts either near the answer."""

from usd3.nets.film_transformer import FilmTransformer
from usd3.nets.hollow import Hollow
from usd3.nets.transformer import Transformer

__all__ = ["FilmTransformer", "Hollow", "Transformer"]
