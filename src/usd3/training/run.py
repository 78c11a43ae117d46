"""One run of a diffusion model: a folder with the recipe, the logs, the checkpoints, and the trained model."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.nn import functional as F

from usd3._internal.checks import require
from usd3._internal.random import seed_of
from usd3._internal.weights import load_weights
from usd3.kinds.dataset import Dataset
from usd3.kinds.fingerprints import fingerprint_of_rows
from usd3.kinds.frequencies import frequencies, frequencies_of_elements
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.packaged import whole_model
from usd3.pipeline.pipeline import Pipeline, save_config, save_pretrained
from usd3.pipeline.trust import foreign_classes, require_trusted
from usd3.training.curves import loss_plot
from usd3.training.data import SequenceData
from usd3.training.diffusion import DiffusionTraining
from usd3.training.early_stop import KeepBest
from usd3.training.ema import Ema
from usd3.training.fitting import TrainingRun, callbacks_of
from usd3.training.logs import run_logs
from usd3.training.options import Recipe, TrainingConfig
from usd3.training.sizes import sized

__all__ = ["default_prefix", "fit", "pipeline_for"]


def pipeline_for(recipe: Recipe, dataset: Dataset) -> Pipeline:
    """The untrained model of a recipe, its weights drawn from the recipe's seed."""
    config = _config_for(recipe, dataset)
    torch.manual_seed(seed_of(recipe.seed))
    pipeline = Pipeline(config, objective=recipe.training.objective)
    if recipe.model.own_vocabulary:
        extra = pipeline.diffusion.noise.num_classes - dataset.num_classes  # the mask
        pipeline.bare_network.start_from(F.pad(frequencies_of_elements(dataset).flatten(0, -2), (0, extra)))
    return pipeline


def _config_for(recipe: Recipe, dataset: Dataset) -> PipelineConfig:
    marginal: Any = None
    if recipe.diffusion.noise == "marginal":
        has_support = dataset.kind.support is not None
        marginal = (frequencies_of_elements(dataset) if has_support else frequencies(dataset)).tolist()
    return PipelineConfig(
        num_classes=dataset.num_classes,
        shape=list(dataset.shape),
        diffusion=recipe.diffusion,
        method=recipe.method,
        model=recipe.model,
        data=recipe.data,
        kind=dataset.kind.as_dict(),
        decode=None if dataset.decode is None else dataset.decode.tolist(),
        marginal=marginal,
        labels=_class_names(dataset),
        absent=recipe.training.absent > 0,
        prefix=default_prefix(recipe.training, torch.Size(dataset.shape).numel()),
        given=recipe.training.given,
        precision=recipe.training.precision,
        steps=sized(recipe.training, len(dataset.train)).steps,
    )


def _class_names(dataset: Dataset) -> dict[str, list[str]]:
    """The names of the classes of each label, as JSON has them."""
    return {name: list(classes) for name, classes in dataset.labels.items()}


def default_prefix(config: TrainingConfig, length: int) -> int:
    """Elements given by default when the model is used."""
    return config.prefix if config.given == "prefix" else min(config.prefix, length // 2)


def fit(
    recipe: Recipe,
    folder: Path | str,
    resume: bool = False,
    progress: bool = True,
    callbacks: Sequence[pl.Callback] = (),
    dataset: Dataset | None = None,
) -> Pipeline:
    """Train the recipe's model in a folder of its own; with `resume`, go on from its newest whole checkpoint.

    One process at a time has the folder, or those of one run. A run ends after its `steps`, its `minutes`, or where the
    bound on held-out objects no longer improves (`patience`). Ctrl-C and SIGTERM end it after the current step with a
    checkpoint, and then raise KeyboardInterrupt. `callbacks` are Lightning's, besides our own. `dataset` are the data,
    where they are in memory; None: those that the recipe names.
    """
    folder, config = Path(folder), recipe.training
    possible = config.accelerator != "gpu" or torch.cuda.is_available()
    require(possible, "training.accelerator", "gpu", "cpu or auto, as torch sees no GPU")
    alone = config.minutes is None or _world(config) == 1
    require(alone, "training.minutes", config.minutes, "null with several processes, or training.devices 1")
    DiffusionRun(recipe, dataset).fit(folder, resume, progress, callbacks)
    # a run in which nothing was left to train keeps its old config.json
    require_trusted(PipelineConfig.read(folder), foreign_classes(recipe))
    return Pipeline.from_pretrained(folder, device="cpu", trust_code=True)


class DiffusionRun(TrainingRun):
    """The run of a recipe."""

    prefix = "training."

    def __init__(self, recipe: Recipe, dataset: Dataset | None = None):
        super().__init__(recipe.training)
        self._recipe, self._given_dataset, self.ema = recipe, dataset, Ema(recipe.training.ema)

    def recipe(self) -> dict[str, Any]:
        """The whole recipe."""
        return asdict(self._recipe)

    def fixed_settings(self, recipe: dict[str, Any]) -> dict[str, Any]:
        """Data, diffusion, method, model and seed; an older recipe has the defaults of settings that it lacks."""
        default = asdict(Recipe())
        parts = {part: default[part] | recipe.get(part, {}) for part in ("data", "diffusion", "method", "model")}
        settings = {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
        del settings["data.path"]  # data may be moved
        has_absent = recipe.get("training", {}).get("absent", 0) > 0  # then the network has a vector for it
        return settings | {"training.absent above 0": has_absent, "seed": recipe["seed"]}

    def load_data(self) -> dict[str, Any]:
        """The recipe's data; facts on the training objects."""
        self.dataset = self._recipe.data.load() if self._given_dataset is None else self._given_dataset
        recipe = self._recipe
        says = recipe.training.given != "data" or self.dataset.train.given is not None
        expected = "none, prefix or random, as the data do not say what is given (a column of puzzles, or train_given)"
        require(says, "training.given", recipe.training.given, expected)
        self.config = self._training = sized(recipe.training, len(self.dataset.train))
        self.patience = self._training.patience
        self.judged_every = self._training.validate_every if self.patience else 0
        self.data_name = str(recipe.data.path or f"the data {self.dataset.name}")
        self.data = SequenceData(self.dataset, self._training, recipe.seed, recipe.data)
        train = self.dataset.train
        return {
            "num_classes": self.dataset.num_classes,
            "shape": list(self.dataset.shape),
            "train_objects": len(train),
            "fingerprint": fingerprint_of_rows(train),
            **({"labels": _class_names(self.dataset)} if self.dataset.labels else {}),
        }

    def about_data(self) -> list[str]:
        """How many objects there are, what they are, and what their kind has found."""
        dataset = self.dataset
        counts = f"{len(dataset.train):,} to train on, {len(dataset.test):,} held out"
        labels = [f"{name}: {', '.join(classes)}" for name, classes in dataset.labels.items()]
        details = (f"  {line}" for line in (*dataset.kind.details(), *labels))
        return [f"{dataset.name}: {dataset.kind.describe()}, {counts}", *details]

    def build(self, resumed: Path | None) -> DiffusionTraining:
        """The network and its method, in training mode."""
        recipe = self._recipe
        if resumed is not None:
            _config_for(recipe, self.dataset).require_weights(resumed)  # before a network, which may be huge, is built
        pipeline = pipeline_for(recipe, self.dataset)
        if resumed is None and recipe.training.start_from is not None:
            _start_from(recipe.training.start_from, pipeline)
        pipeline.diffusion.validate = False  # the data are checked, and a loss that is not finite is noticed
        pipeline.diffusion.impl = recipe.training.impl
        pipeline.model.train()  # Lightning keeps the mode of a network
        self._pipeline_config = pipeline.config
        return DiffusionTraining(pipeline.model, pipeline.method, self._training, recipe.seed)

    def more_steps(self, done: int) -> str:
        """More epochs, if these are what ends the run."""
        training = self._recipe.training
        more = training.epochs is not None and done < training.steps
        return f"epochs {2 * (training.epochs or 1):g}" if more else super().more_steps(done)

    def trainer_options(self) -> dict[str, Any]:
        """Precision, processes and validation."""
        config = self._training
        return {
            "accumulate_grad_batches": config.accumulate,
            "precision": {"fp32": "32-true", "bf16": "bf16-mixed"}[config.precision],
            "devices": _devices(config),
            "num_nodes": config.nodes,
            "strategy": _strategy(config),
            "val_check_interval": config.validate_every * config.accumulate if config.validate_every else None,
            "check_val_every_n_epoch": None,
            "limit_val_batches": None if config.validate_every else 0,
        }

    def export(self, folder: Path, trainer: pl.Trainer, module: Any) -> None:
        """Write the averaged model; with `patience`, the one with the best bound on held-out objects."""
        assert self.ema is not None
        done = trainer.global_step
        planned = self._training.steps if self._training.steps < self._recipe.training.steps else None
        config = replace(self._pipeline_config, steps=done, planned=planned, minutes=module.clock.minutes)
        best = next((callback for callback in callbacks_of(trainer) if isinstance(callback, KeepBest)), None)
        if best is not None:
            config = replace(config, best_step=best.step, stopped_early=best.is_over)
        if best is not None and best.step is not None and not best.is_new:
            if trainer.is_global_zero:
                save_config(folder, config)
            return
        weights = self.ema.state(trainer, module)
        if trainer.is_global_zero:
            save_pretrained(folder, config, {name.removeprefix("model."): value for name, value in weights.items()})

    def finish(self, folder: Path) -> None:
        """Plot the loss; without numbers in the log there is no picture."""
        logs = run_logs(folder)
        if logs:
            with suppress(ValueError):
                loss_plot(logs, folder / "loss.png")


def _start_from(name: str, pipeline: Pipeline) -> None:
    """Give an untrained model the weights of a trained one, whose integers must mean the same."""
    folder, config = whole_model(name), pipeline.config
    other = PipelineConfig.read(folder)
    for part in ("kind", "shape", "labels", "decode"):
        same = getattr(other, part) == getattr(config, part)
        require(same, f"training.start_from {name}: {part}", getattr(other, part), f"{getattr(config, part)}, as here")
    try:
        config.require_weights(folder)
    except ValueError as error:
        network = "a model with the same network, and noise that adds as many categories"
        raise ValueError(f"training.start_from {name}: expected {network} ({error})") from None
    load_weights(pipeline.model, folder / "model.safetensors")


def _devices(config: TrainingConfig) -> Any:
    """`auto` is every GPU, but one process on the CPU."""
    on_cpu = config.accelerator == "cpu" or not torch.cuda.is_available()
    return 1 if config.devices == "auto" and on_cpu else config.devices


def _world(config: TrainingConfig) -> int:
    """How many processes train."""
    devices = _devices(config)
    return int(config.nodes * (torch.cuda.device_count() if devices == "auto" else devices))


def _strategy(config: TrainingConfig) -> Any:
    """Lightning's by its name; "fsdp" is the sharding of torch's `fully_shard`, which also works on CPUs."""
    if config.strategy != "fsdp":
        return config.strategy
    return ModelParallelStrategy(_world(config), tensor_parallel_size=1, save_distributed_checkpoint=False)
