"""USD3 and the methods that the paper compares it with, all on the same diffusion, networks, data and metrics."""

from usd3.methods.base import Method
from usd3.methods.d3pm import D3PM
from usd3.methods.mdlm import MDLM
from usd3.methods.rdm import RDM
from usd3.methods.sddm import SDDM
from usd3.methods.sedd import SEDD
from usd3.methods.tauldr import TauLDR
from usd3.methods.transitions import Transitions
from usd3.methods.usd3 import USD3

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
"""The methods by the names that recipes use."""
