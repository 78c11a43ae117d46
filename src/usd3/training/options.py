"""A recipe, typed: how a network is trained, and the whole experiment.

A recipe is a YAML file with these fields; any of them can be set on the command line, as in `--model.dim 256`.
"""

import math
from dataclasses import dataclass, field, fields
from typing import Literal, Protocol

from usd3._internal.checks import as_count, as_number, as_share, require
from usd3._internal.fields import require_fields
from usd3.core.options import DiffusionConfig
from usd3.kinds.options import DataConfig
from usd3.methods.options import MethodConfig
from usd3.nets.options import ModelConfig

__all__ = ["LoopConfig", "Recipe", "TrainingConfig", "learning_rate"]

Decay = Literal["constant", "cosine", "linear", "halve"]


def learning_rate(
    step: int, steps: int, warmup: int, decay: Decay = "cosine", halve_every: int = 1, spent: float = 0.0
) -> float:
    """The learning rate at a step of `steps`, as a part of its peak.

    It rises over `warmup` steps, at most a quarter of all, and then falls as `decay` says. In a run with a limit of
    minutes, `spent` is the part of them that is over: the rate follows the clock where that is ahead of the steps.
    """
    rise_steps, rise_by_clock = min(warmup, steps // 4), 4 * spent
    if decay == "halve":  # counted in steps, however long the run is
        rise_steps, rise_by_clock = warmup, 0.0
    rise = min(1.0, max((step + 1) / rise_steps, rise_by_clock)) if rise_steps else 1.0
    done = min(1.0, max(max(0, step - rise_steps) / max(1, steps - rise_steps), spent))
    match decay:
        case "constant":
            return rise
        case "cosine":
            return rise * (0.5 + 0.5 * math.cos(math.pi * done))
        case "linear":
            return rise * (1 - done)
        case "halve":
            return rise * 0.5 ** (step // halve_every)


class LoopConfig(Protocol):
    """The settings that the training of every network has."""

    steps: int
    minutes: float | None
    precision: Literal["fp32", "bf16"]
    compile: bool
    cuda_graph: Literal["auto", "always", "never"]
    accelerator: Literal["auto", "cpu", "gpu"]
    log_every: int
    checkpoint_every: int
    keep: int

    def learning_rate(self, step: int, spent: float = 0.0) -> float:
        """The learning rate at a step, as a part of its peak."""
        ...


@dataclass
class TrainingConfig:
    """How the network is trained.

    Args:
        steps: optimiser steps.
        epochs: at most so many passes over the training objects, so that few objects have fewer `steps`; null: any
            number.
        minutes: end after so many minutes of training, where `steps` are not done before; null: no limit. Compilation
            and the capture of a CUDA graph do not count. How many steps these are differs from run to run. For one
            process.
        start_from: folder of a trained model, or the name of a packaged one: training begins with its weights and not
            with random ones. Its network and its kind of data must be the same, and noise with a mask or without;
            schedule and method may differ.
        batch_size: objects of one step, over all devices.
        least_batches: a pass over the training objects has at least about so many batches, so that few objects have
            smaller ones, by powers of two; 0: all batches are as large as `batch_size`.
        accumulate: parts into which a device splits its share of a batch, one after the other, to save memory.
        objective: of the method "usd3": "usd3", "usd3*", "vlb" or "ce".
        stratified: spread the times of a batch evenly, which lowers the variance.
        given: which elements stay clean in training. "none": unconditional; "prefix": always the first `prefix`;
            "random": sometimes nothing, sometimes a prefix, all but a gap (a box where objects have several
            dimensions), or scattered elements, so that one model serves generation, continuation and infilling.
            "data": the elements that the data name, such as the cells of puzzles beside their solutions.
        given_share: the share of objects whose elements are given by "data"; nothing is given of the others.
        prefix: elements given by "prefix"; also what `usd3 sample` and `usd3 evaluate` give by default.
        label_dropout: for data with labels: how often the label of an object is absent in training, so that one model
            draws with and without a label. Objects whose label is absent teach the network to predict it.
        label_weight: weight of one nat of that prediction in the loss, relative to one nat of a mean element.
        absent: how often the given elements of an object are absent in training, for guidance by given elements; with
            `given` prefix or random.
        optimizer: "adamw" or "adam".
        lr: peak learning rate.
        betas: decay rates of the optimiser's averages.
        weight_decay: of the matrices; biases and offsets have none.
        warmup: steps over which the learning rate rises from 0; at most a quarter of all steps, or of `minutes`, but
            with the decay "halve", which is counted in steps too, as many as it says.
        decay: after it: "constant", "cosine" or "linear" to 0 at the end, or "halve" every `halve_every` steps.
        halve_every: see `decay`.
        clip: largest norm of the gradient; null: no clipping.
        ema: decay of the moving average of the weights, ramped up as (1 + n) / (10 + n); 0: no average.
        precision: "fp32" or "bf16".
        impl: the code of the loss: "auto" (the fastest that runs here), "eager" (the reference), "chunked", "cpp"
            or "triton".
        compile: use torch.compile.
        compile_mode: its mode; "reduce-overhead" and "max-autotune" use CUDA graphs of their own, for the loss alone.
        cuda_graph: run a whole step as one CUDA graph, so that small networks need not wait for the host. "auto": where
            one process trains one of our networks on a GPU, with `accumulate` 1, `strategy` auto and no other
            `compile_mode` than "default", but for a projection with absorbing noise, which does less without; "always":
            also for a network of your own; "never".
        accelerator: "auto", "cpu" or "gpu".
        devices: how many; "auto": all GPUs, or one process on the CPU.
        nodes: number of machines.
        strategy: Lightning's, for example "auto", "ddp" or "fsdp".
        log_every: steps between two rows of the log.
        validate_every: steps between two estimates of the bound on held-out data; 0: never.
        validate_objects: held-out objects used for it.
        patience: end the run after so many estimates in a row that are no better than the best, and keep the model of
            the best one, so that a small data set is not learnt by heart; 0, or without estimates: train all steps and
            keep the last model.
        checkpoint_every: steps between two checkpoints.
        keep: how many checkpoints to keep.
    """

    steps: int = 20_000
    epochs: float | None = None
    minutes: float | None = None
    start_from: str | None = None
    batch_size: int = 64
    least_batches: int = 0
    accumulate: int = 1
    objective: Literal["usd3", "usd3*", "vlb", "ce"] = "usd3"
    stratified: bool = True
    given: Literal["none", "prefix", "random", "data"] = "random"
    given_share: float = 0.75
    prefix: int = 32
    label_dropout: float = 0.1
    label_weight: float = 0.1
    absent: float = 0.0
    optimizer: Literal["adamw", "adam"] = "adamw"
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.01
    warmup: int = 500
    decay: Decay = "cosine"
    halve_every: int = 47_000
    clip: float | None = 1.0
    ema: float = 0.999
    precision: Literal["fp32", "bf16"] = "fp32"
    impl: Literal["auto", "eager", "chunked", "cpp", "triton"] = "auto"
    compile: bool = False
    compile_mode: Literal["default", "reduce-overhead", "max-autotune"] = "default"
    cuda_graph: Literal["auto", "always", "never"] = "auto"
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    devices: int | Literal["auto"] = "auto"
    nodes: int = 1
    strategy: str = "auto"
    log_every: int = 50
    validate_every: int = 1000
    validate_objects: int = 64
    patience: int = 0
    checkpoint_every: int = 1000
    keep: int = 2

    def __post_init__(self) -> None:
        require_fields(self, "training")
        for name in ("steps", "batch_size", "accumulate", "halve_every", "nodes", "log_every", "validate_objects"):
            as_count(getattr(self, name), f"training.{name}", 1)
        for name in ("checkpoint_every", "keep"):
            as_count(getattr(self, name), f"training.{name}", 1)
        for name in ("least_batches", "prefix", "warmup", "validate_every", "patience"):
            as_count(getattr(self, name), f"training.{name}", 0)
        for name in ("minutes", "epochs"):
            if getattr(self, name) is not None:
                as_number(getattr(self, name), f"training.{name}", 0)
        if self.clip is not None:
            as_number(self.clip, "training.clip", 0)
        as_number(self.lr, "training.lr", 0)
        as_number(self.ema, "training.ema", 0, 1, closed=True)
        as_number(self.weight_decay, "training.weight_decay", 0, closed=True)
        as_number(self.label_dropout, "training.label_dropout", 0, 1)
        as_number(self.label_weight, "training.label_weight", 0, closed=True)
        as_number(self.absent, "training.absent", 0, 1, closed=True)
        as_share(self.given_share, "training.given_share", positive=True)
        has_given = self.absent == 0 or self.given != "none"
        require(has_given, "training.absent", self.absent, "0 with training.given none, or given prefix or random")
        for reason in self.graph_hindrances if self.cuda_graph == "always" else ():
            require(False, "training.cuda_graph", self.cuda_graph, f"auto or never with {reason}")

    @property
    def graph_hindrances(self) -> list[str]:
        """The settings with which a step cannot be one CUDA graph."""
        compiler_graphs = self.compile and self.compile_mode != "default"
        settings = {
            f"training.accelerator {self.accelerator}": self.accelerator == "cpu",
            f"training.accumulate {self.accumulate}": self.accumulate > 1,
            f"training.strategy {self.strategy}": self.strategy != "auto",
            f"training.devices {self.devices}": self.devices not in (1, "auto"),
            f"training.nodes {self.nodes}": self.nodes > 1,
            f"training.compile_mode {self.compile_mode}": compiler_graphs,
        }
        return [setting for setting, hinders in settings.items() if hinders]

    def learning_rate(self, step: int, spent: float = 0.0) -> float:
        """The learning rate at a step, as a part of its peak; `spent` is the part of `minutes` that is over."""
        return learning_rate(step, self.steps, self.warmup, self.decay, self.halve_every, spent)


@dataclass
class Recipe:
    """A whole experiment.

    Args:
        data: where the sequences come from.
        diffusion: noise, schedule and kind of time.
        method: USD3 or one of its competitors.
        model: the network.
        training: how it is trained.
        seed: seed of the weights and of every draw in training.
    """

    data: DataConfig = field(default_factory=DataConfig)
    diffusion: DiffusionConfig = field(default_factory=DiffusionConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    seed: int = 0

    @property
    def recipe(self) -> "Recipe":
        """The recipe alone, without the options that a command adds to it."""
        return Recipe(**{part.name: getattr(self, part.name) for part in fields(Recipe)})
