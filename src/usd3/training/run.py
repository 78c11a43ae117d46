"""One run: a folder with the recipe, the logs, the checkpoints, and at the end the trained model."""

import logging
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.strategies import ModelParallelStrategy

from usd3._internal.checks import require
from usd3._internal.interrupts import defer_interrupts
from usd3._internal.processes import leads_run
from usd3._internal.progress import say
from usd3._internal.random import seed_of
from usd3._internal.threads import waiting_asleep
from usd3.core.noise import Marginal
from usd3.kinds.dataset import Dataset
from usd3.kinds.fingerprints import fingerprint
from usd3.pipeline.pipeline import Pipeline, PipelineConfig
from usd3.pipeline.trust import foreign_classes, require_trusted
from usd3.training.callbacks import Ema, StopOnSignal, StopOnTime, TrainingProgress
from usd3.training.checkpoints import (
    AtomicCheckpointIO,
    Checkpoints,
    averaged_export,
    newest_whole,
    require_fitting,
    step_of,
)
from usd3.training.curves import loss_plot
from usd3.training.folder import begin, own_folder, read_recipe, require_same_data
from usd3.training.logs import run_logs
from usd3.training.module import SequenceData, Training
from usd3.training.options import Recipe, TrainingConfig

__all__ = ["default_prefix", "fit", "pipeline_for"]


def pipeline_for(recipe: Recipe, dataset: Dataset) -> Pipeline:
    """The untrained model of a recipe, its weights drawn from the recipe's seed."""
    config = _config_for(recipe, dataset)
    torch.manual_seed(seed_of(recipe.seed))
    return Pipeline(config, objective=recipe.training.objective)


def _config_for(recipe: Recipe, dataset: Dataset) -> PipelineConfig:
    marginal = None
    if recipe.diffusion.noise == "marginal":
        rows, pad = dataset.train.tokens.long(), dataset.train.pad
        rows = rows if pad is None else rows[~pad][:, None]
        marginal = Marginal.from_data(rows, dataset.num_classes).probs.tolist()
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
        prefix=default_prefix(recipe.training, torch.Size(dataset.shape).numel()),
        given=recipe.training.given,
        precision=recipe.training.precision,
        steps=recipe.training.steps,
    )


def default_prefix(config: TrainingConfig, length: int) -> int:
    """Elements given by default when the model is used."""
    return config.prefix if config.given == "prefix" else min(config.prefix, length // 2)


@waiting_asleep()
def fit(
    recipe: Recipe,
    folder: Path | str,
    resume: bool = False,
    progress: bool = True,
    callbacks: Sequence[pl.Callback] = (),
) -> Pipeline:
    """Train the recipe's model in a folder of its own; with `resume`, go on from its newest whole checkpoint.

    One process at a time has the folder, or those of one run. A run ends after its `steps`, or its `minutes`. Ctrl-C
    and SIGTERM end it after the current step with a checkpoint, and then raise KeyboardInterrupt. `callbacks` are
    Lightning's, besides our own.
    """
    folder = Path(folder)
    possible = recipe.training.accelerator != "gpu" or torch.cuda.is_available()
    require(possible, "training.accelerator", "gpu", "cpu or auto, as torch sees no GPU")
    alone = recipe.training.minutes is None or _world(recipe.training) == 1
    require(alone, "training.minutes", recipe.training.minutes, "null with several processes, or training.devices 1")
    with own_folder(folder, resume):
        return _fit(recipe, folder, resume, progress, callbacks)


def _fit(recipe: Recipe, folder: Path, resume: bool, progress: bool, callbacks: Sequence[pl.Callback]) -> Pipeline:
    """`fit` in a folder that is ours; what does not fit together is refused before anything is written."""
    if resume:
        _require_same(recipe, folder)
    dataset = recipe.data.load()
    told = _about(dataset)
    if resume:
        require_same_data(told, folder, str(recipe.data.path or f"the data {dataset.name}"))
    start = newest_whole(folder / "checkpoints") if resume else None
    done = 0 if start is None else step_of(start)
    require(
        recipe.training.steps >= done, "training.steps", recipe.training.steps, f"at least the {done} that are done"
    )
    if start is not None:
        _config_for(recipe, dataset).require_weights(folder)  # before a network of any size is made
    pipeline = pipeline_for(recipe, dataset)
    pipeline.diffusion.validate = False  # the data are checked, and a loss that is no number is noticed
    pipeline.diffusion.impl = recipe.training.impl
    pipeline.model.train()  # Lightning trains a network in the mode it finds
    module = Training(pipeline.model, pipeline.method, recipe.training, recipe.seed)
    if start is not None:
        require_fitting(start, module)
    if leads_run():
        begin(folder, asdict(recipe), told)
    data = SequenceData(dataset, recipe.training, recipe.seed, recipe.data)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning.*")
        further = [*callbacks, TrainingProgress()] if progress else [*callbacks]
        trainer = _trainer(recipe.training, folder, pipeline.config, further)
        with defer_interrupts():
            trainer.fit(module, data, ckpt_path=start, weights_only=True)
    if trainer.is_global_zero:
        _plot(folder)
    if trainer.global_step < recipe.training.steps and not module.clock.over:
        raise KeyboardInterrupt(f"stopped at step {trainer.global_step}")
    if start is not None and trainer.global_step == done:
        more = f"steps {2 * done}" if done >= recipe.training.steps else f"minutes {2 * (module.clock.limit or 1):g}"
        say(f"{folder} is finished, with {done} steps; for more: --resume {folder} --training.{more}")
    require_trusted(PipelineConfig.read(folder), foreign_classes(recipe))  # where nothing was left to train, it is old
    return Pipeline.from_pretrained(folder, device="cpu", trust_code=True)


def _about(dataset: Dataset) -> dict[str, Any]:
    """By what the data of a run are known again."""
    train = dataset.train
    known = {"num_classes": dataset.num_classes, "shape": list(dataset.shape), "train_objects": len(train)}
    return known | {"fingerprint": fingerprint(train.tokens, train.pad)}


def _require_same(recipe: Recipe, folder: Path) -> None:
    """What a run is about cannot change when it is resumed; how it is trained, and where its data are, can."""
    file = folder / "recipe.yaml"
    before, now, default = read_recipe(folder), asdict(recipe), asdict(Recipe())
    before["data"]["path"] = now["data"]["path"]
    for part in ("data", "diffusion", "method", "model"):
        for name, value in now[part].items():
            kept = before.get(part, {}).get(name, default[part][name])
            require(value == kept, f"{part}.{name}", value, f"{kept}, as in {file}; start a new run to change it")
    require(recipe.seed == before["seed"], "seed", recipe.seed, f"{before['seed']}, as in {file}")


def _trainer(config: TrainingConfig, folder: Path, pipeline: PipelineConfig, further: list[pl.Callback]) -> pl.Trainer:
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    table, ema = CSVLogger(folder, name="logs", flush_logs_every_n_steps=1), Ema(config.ema)
    export = averaged_export(folder, ema, pipeline)
    checkpoints = Checkpoints(folder, config.checkpoint_every, config.keep, export)
    callbacks = [ema, StopOnTime(), checkpoints, StopOnSignal(), *further]
    return pl.Trainer(
        default_root_dir=folder,
        max_steps=config.steps,
        max_epochs=-1,
        accumulate_grad_batches=config.accumulate,
        precision={"fp32": "32-true", "bf16": "bf16-mixed"}[config.precision],  # type: ignore[arg-type]
        accelerator=config.accelerator,
        devices=_devices(config),
        num_nodes=config.nodes,
        strategy=_strategy(config),
        logger=[table, TensorBoardLogger(folder, name="logs", version=table.version)],
        callbacks=callbacks,
        plugins=[AtomicCheckpointIO()],
        val_check_interval=config.validate_every * config.accumulate if config.validate_every else None,
        check_val_every_n_epoch=None,
        limit_val_batches=None if config.validate_every else 0,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


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


def _plot(folder: Path) -> None:
    """The loss plot; a run is not lost for want of a picture."""
    logs = run_logs(folder)
    if logs:
        with suppress(ValueError):
            loss_plot(logs, folder / "loss.png")
