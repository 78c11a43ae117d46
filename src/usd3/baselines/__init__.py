"""The methods, each on the same diffusion, networks, data, training and metrics: the paper's competitors and USD3."""

from usd3.baselines.rdm import RDM
from usd3.baselines.tauldr import TauLDR
from usd3.method import USD3, Method

__all__ = ["METHODS", "RDM", "USD3", "Method", "TauLDR"]

METHODS: dict[str, type[Method]] = {
    "rdm": RDM,
    "tauldr": TauLDR,
    "usd3": USD3,
}
"""By the names that recipes use."""
