"""Networks that map (x_t, t) to logits of x_0, and heads around them.

Each network is one module, named as in a recipe: `model.net: film` is the class in `usd3/nets/film.py`.
"""

from typing import TYPE_CHECKING

from usd3._internal.imports import lazily

if TYPE_CHECKING:
    from usd3.nets.film import FilmTransformer
    from usd3.nets.heads.hollow import Hollow
    from usd3.nets.heads.self_conditioned import SelfConditioned
    from usd3.nets.hollow_transformer import HollowTransformer
    from usd3.nets.masked_transformer import MaskedTransformer
    from usd3.nets.transformer import Transformer

_MODULES = {  # a network is imported on first use
    "FilmTransformer": "usd3.nets.film",
    "Hollow": "usd3.nets.heads.hollow",
    "HollowTransformer": "usd3.nets.hollow_transformer",
    "MaskedTransformer": "usd3.nets.masked_transformer",
    "SelfConditioned": "usd3.nets.heads.self_conditioned",
    "Transformer": "usd3.nets.transformer",
}
__getattr__ = lazily(__name__, _MODULES)

__all__ = [
    "FilmTransformer",
    "Hollow",
    "HollowTransformer",
    "MaskedTransformer",
    "SelfConditioned",
    "Transformer",
]
