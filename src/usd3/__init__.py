"""Unified discrete diffusion for categorical data: one forward process, one exact backward step, any noise."""

from typing import TYPE_CHECKING

from usd3._lazy import lazily
from usd3._version import __version__

if TYPE_CHECKING:
    from usd3.diffusion import Diffusion
    from usd3.kernels import Projection
    from usd3.mixture import Mixture
    from usd3.models import list_models
    from usd3.noise import Absorbing, Marginal, Noise, Uniform
    from usd3.objectives import LossOutput, LossTerms, Objective
    from usd3.pipeline import Pipeline
    from usd3.samplers import Corrector, Step
    from usd3.schedules import Constant, Cosine, Exponential, Geometric, Linear, LogLinear, Schedule
    from usd3.two_pass import partial_time_loss, two_pass_loss

_MODULES = {  # imported when first asked for: the command line chooses how threads wait before torch is there
    "usd3.diffusion": ("Diffusion",),
    "usd3.kernels": ("Projection",),
    "usd3.mixture": ("Mixture",),
    "usd3.models": ("list_models",),
    "usd3.noise": ("Absorbing", "Marginal", "Noise", "Uniform"),
    "usd3.objectives": ("LossOutput", "LossTerms", "Objective"),
    "usd3.pipeline": ("Pipeline",),
    "usd3.samplers": ("Corrector", "Step"),
    "usd3.schedules": ("Constant", "Cosine", "Exponential", "Geometric", "Linear", "LogLinear", "Schedule"),
    "usd3.two_pass": ("partial_time_loss", "two_pass_loss"),
}
__getattr__ = lazily(__name__, {name: module for module, names in _MODULES.items() for name in names})


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "Absorbing",
    "Constant",
    "Corrector",
    "Cosine",
    "Diffusion",
    "Exponential",
    "Geometric",
    "Linear",
    "LogLinear",
    "LossOutput",
    "LossTerms",
    "Marginal",
    "Mixture",
    "Noise",
    "Objective",
    "Pipeline",
    "Projection",
    "Schedule",
    "Step",
    "Uniform",
    "__version__",
    "list_models",
    "partial_time_loss",
    "two_pass_loss",
]
