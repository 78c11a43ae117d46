"""USD3 and the methods that the paper compares it with, all on the same diffusion, networks, data and metrics."""

from typing import TYPE_CHECKING

from usd3._internal.imports import Registry, lazily

if TYPE_CHECKING:
    from usd3.methods.base import Method
    from usd3.methods.d3pm import D3PM
    from usd3.methods.mdlm import MDLM
    from usd3.methods.rdm import RDM
    from usd3.methods.sddm import SDDM
    from usd3.methods.sedd import SEDD
    from usd3.methods.tauldr import TauLDR
    from usd3.methods.transitions import Transitions
    from usd3.methods.usd3 import USD3

METHODS: "Registry[Method]" = Registry(
    {
        "usd3": "usd3.methods.usd3.USD3",
        "d3pm": "usd3.methods.d3pm.D3PM",
        "rdm": "usd3.methods.rdm.RDM",
        "tauldr": "usd3.methods.tauldr.TauLDR",
        "sddm": "usd3.methods.sddm.SDDM",
        "sedd": "usd3.methods.sedd.SEDD",
        "mdlm": "usd3.methods.mdlm.MDLM",
    }
)
"""The methods by the names that recipes use. A method is imported on first use."""

_MODULES = {
    "D3PM": "usd3.methods.d3pm",
    "MDLM": "usd3.methods.mdlm",
    "Method": "usd3.methods.base",
    "RDM": "usd3.methods.rdm",
    "SDDM": "usd3.methods.sddm",
    "SEDD": "usd3.methods.sedd",
    "TauLDR": "usd3.methods.tauldr",
    "Transitions": "usd3.methods.transitions",
    "USD3": "usd3.methods.usd3",
}
__getattr__ = lazily(__name__, _MODULES)

__all__ = ["D3PM", "MDLM", "METHODS", "RDM", "SDDM", "SEDD", "USD3", "Method", "TauLDR", "Transitions"]
