"""A trained model with everything needed to use it, and the models that come with the package."""

from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.packaged import find_model, list_models
from usd3.pipeline.pipeline import Pipeline

__all__ = ["Pipeline", "PipelineConfig", "find_model", "list_models"]
