"""Unified discrete diffusion for categorical data: one forward process, one exact backward step, any noise."""

from typing import TYPE_CHECKING

from usd3._internal.imports import lazily
from usd3._version import __version__

if TYPE_CHECKING:
    from usd3.core.classifier_guidance import ClassifierGuided
    from usd3.core.diffusion import Diffusion
    from usd3.core.guidance import Guided, StepGuided
    from usd3.core.logits import LogitOptions
    from usd3.core.mixture import Mixture
    from usd3.core.noise import Absorbing, Marginal, Mixed, Noise, Uniform
    from usd3.core.objectives import LossOutput, Objective
    from usd3.core.samplers import CertainFirst, Corrector, GibbsCorrector, Revision, Step, Trapezoidal
    from usd3.core.schedules import Constant, Cosine, Exponential, Geometric, Linear, LogLinear, Power, Schedule
    from usd3.core.step_costs import StepCosts
    from usd3.core.terms import LossTerms
    from usd3.core.two_pass import partial_time_loss, two_pass_loss
    from usd3.kernels import Projection
    from usd3.pipeline.packaged import list_models
    from usd3.pipeline.pipeline import Pipeline
    from usd3.training.any_data import fit
    from usd3.training.table_model import TableModel

_MODULES = {  # imported when first asked for: the command line chooses how threads wait before torch is there
    "usd3.core.classifier_guidance": ("ClassifierGuided",),
    "usd3.core.diffusion": ("Diffusion",),
    "usd3.core.guidance": ("Guided", "StepGuided"),
    "usd3.core.logits": ("LogitOptions",),
    "usd3.core.step_costs": ("StepCosts",),
    "usd3.kernels": ("Projection",),
    "usd3.core.mixture": ("Mixture",),
    "usd3.pipeline.packaged": ("list_models",),
    "usd3.core.noise": ("Absorbing", "Marginal", "Mixed", "Noise", "Uniform"),
    "usd3.core.objectives": ("LossOutput", "Objective"),
    "usd3.pipeline.pipeline": ("Pipeline",),
    "usd3.core.samplers": ("CertainFirst", "Corrector", "GibbsCorrector", "Revision", "Step", "Trapezoidal"),
    "usd3.core.schedules": (
        "Constant",
        "Cosine",
        "Exponential",
        "Geometric",
        "Linear",
        "LogLinear",
        "Power",
        "Schedule",
    ),
    "usd3.core.terms": ("LossTerms",),
    "usd3.core.two_pass": ("partial_time_loss", "two_pass_loss"),
    "usd3.training.any_data": ("fit",),
    "usd3.training.table_model": ("TableModel",),
}
__getattr__ = lazily(__name__, {name: module for module, names in _MODULES.items() for name in names})


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "Absorbing",
    "CertainFirst",
    "ClassifierGuided",
    "Constant",
    "Corrector",
    "Cosine",
    "Diffusion",
    "Exponential",
    "Geometric",
    "GibbsCorrector",
    "Guided",
    "Linear",
    "LogLinear",
    "LogitOptions",
    "LossOutput",
    "LossTerms",
    "Marginal",
    "Mixed",
    "Mixture",
    "Noise",
    "Objective",
    "Pipeline",
    "Power",
    "Projection",
    "Revision",
    "Schedule",
    "Step",
    "StepCosts",
    "StepGuided",
    "TableModel",
    "Trapezoidal",
    "Uniform",
    "__version__",
    "fit",
    "list_models",
    "partial_time_loss",
    "two_pass_loss",
]
