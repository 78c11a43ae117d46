"""The methods, each on the same diffusion, networks, data, training and metrics: the paper's competitors and USD3."""

from usd3.baselines.mdlm import MDLM
from usd3.baselines.sddm import SDDM
from usd3.baselines.sedd import SEDD
from usd3.method import USD3, Method

__all__ = ["MDLM", "METHODS", "SDDM", "SEDD", "USD3", "Method"]

METHODS: dict[str, type[Method]] = {
    "mdlm": MDLM,
    "sddm": SDDM,
    "sedd": SEDD,
    "usd3": USD3,
}
"""By the names that recipes use."""
