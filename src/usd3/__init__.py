"""Unified discrete diffusion for categorical data: one forward process, one exact backward step, any noise."""

from typing import TYPE_CHECKING

from usd3._lazy import lazily
from usd3._version import __version__
from usd3.diffusion import Diffusion
from usd3.kernels import Projection
from usd3.mixture import Mixture
from usd3.models import list_models
from usd3.noise import Absorbing, Marginal, Noise, Uniform
from usd3.objectives import LossOutput, LossTerms, Objective
from usd3.samplers import Corrector, Step
from usd3.schedules import Constant, Cosine, Exponential, Geometric, Linear, LogLinear, Schedule
from usd3.two_pass import partial_time_loss, two_pass_loss

if TYPE_CHECKING:
    from usd3.pipeline import Pipeline

# the core alone needs no safetensors
__getattr__ = lazily(__name__, {"Pipeline": "usd3.pipeline"})

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
