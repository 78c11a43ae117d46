"""The methods, each on the same diffusion, networks, data, training and metrics: the paper's competitors and USD3."""

from usd3.baselines.d3pm import D3PM
from usd3.baselines.mdlm import MDLM
from usd3.baselines.rdm import RDM
from usd3.baselines.sddm import SDDM
from usd3.baselines.sedd import SEDD
from usd3.baselines.tauldr import TauLDR
from usd3.baselines.transitions import Transitions
from usd3.method import USD3, Method

__all__ = ["D3PM", "MDLM", "METHODS", "RDM", "SDDM", "SEDD", "USD3", "Method", "TauLDR", "Transitions"]

METHODS: dict[str, type[Method]] = {
    "usd3": USD3,
    "d3pm": D3PM,
    "rdm": RDM,
    "tauldr": TauLDR,
    "sddm": SDDM,
    "sedd": SEDD,
    "mdlm": MDLM,
}
"""By the names that recipes use."""
