"""The methods, each on the same diffusion, networks, data, training and metrics: the paper's competitors and USD3."""

from usd3.baselines.d3pm import D3PM
from usd3.baselines.mdlm import MDLM
from usd3.baselines.sddm import SDDM
from usd3.baselines.sedd import SEDD
from usd3.baselines.transitions import Transitions
from usd3.method import USD3, Method

__all__ = ["D3PM", "MDLM", "METHODS", "SDDM", "SEDD", "USD3", "Method", "Transitions"]

METHODS: dict[str, type[Method]] = {
    "d3pm": D3PM,
    "mdlm": MDLM,
    "sddm": SDDM,
    "sedd": SEDD,
    "usd3": USD3,
}
"""By the names that recipes use."""
