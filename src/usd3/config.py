"""What a recipe says, typed: the fields, their defaults and what they build.

A recipe is a YAML file with these fields; any of them can be set on the command line, as in `--model.dim 256`.
"""

import importlib
import inspect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from usd3 import schedules
from usd3._checks import as_count, as_number, require
from usd3._fields import require_fields
from usd3.baselines import METHODS, USD3, Method
from usd3.data import Dataset, load_arrays, load_bach, load_image_tokens, load_lakh, load_midi, scramble
from usd3.data.arrays import read_arrays
from usd3.diffusion import Diffusion
from usd3.nets import FilmTransformer, Hollow, HollowTransformer, MaskedTransformer, SelfConditioned, Transformer
from usd3.noise import Absorbing, Marginal, Noise, Uniform

__all__ = ["DataConfig", "DiffusionConfig", "MethodConfig", "ModelConfig", "Recipe", "TrainingConfig"]

SCHEDULES: dict[str, type[schedules.Schedule]] = {
    "cosine": schedules.Cosine,
    "linear": schedules.Linear,
    "loglinear": schedules.LogLinear,
    "constant": schedules.Constant,
    "exponential": schedules.Exponential,
    "geometric": schedules.Geometric,
}
_MOST_STEPS = 1_000_000  # of discrete time
Kind = TypeVar("Kind")
_USUAL_STEPS = 100
NETS: dict[str, type[nn.Module]] = {
    "transformer": Transformer,
    "film": FilmTransformer,
    "hollow_transformer": HollowTransformer,
    "masked_transformer": MaskedTransformer,
}


@dataclass
class DataConfig:
    """Where the sequences come from.

    Args:
        source: "bach" (the Bach works in music21), "array" (an .npy or .npz file), "lakh" (a folder with train.npy,
            test.npy and descramble_key.txt), "midi" (a folder of MIDI files) or "image_tokens" (an .npz file that
            `usd3 encode` wrote).
        path: the file or folder; not for "bach".
        length: steps of a melody, 16th notes; only for "bach" and "midi". Longer ones are cut, shorter ones padded.
        num_classes: number of categories of an "array"; null: the largest token + 1, but it is asked for where that is
            more than 65,536 and ten times the number of tokens that occur.
        music: whether the tokens of an "array" are MIDI pitches 0..127 with 128 for a rest.
        pad_value: the token of an "array" that marks padding, for example -1; null: none.
        train_key: name of the training array in an .npz.
        test_key: name of the held-out array in an .npz; if there is none, a part of the training array is held out.
        test_fraction: the part that is held out where the source has no split of its own.
        seed: seed of that split.
        scramble: seed of a random renaming of the categories, as in the paper; null: none.
        transpose: in training move each melody by up to so many semitones up or down; only for music.
    """

    source: Literal["bach", "array", "lakh", "midi", "image_tokens"] = "bach"
    path: str | None = None
    length: int = 256
    num_classes: int | None = None
    music: bool = False
    pad_value: int | None = None
    train_key: str = "train"
    test_key: str = "test"
    test_fraction: float = 0.1
    seed: int = 0
    scramble: int | None = None
    transpose: int = 0

    def __post_init__(self) -> None:
        require_fields(self, "data")
        self.path = None if self.path is None else str(self.path)
        as_count(self.length, "data.length", 1)
        as_count(self.transpose, "data.transpose", 0, 24)
        as_number(self.test_fraction, "data.test_fraction", 0, 1)

    def with_test(self, key: str, option: str) -> "DataConfig":
        """These data with another array of the .npz held out; `option` is what named it."""
        stored = read_arrays(Path(str(self.path))) if self.source == "array" else None
        if not isinstance(stored, dict):
            raise ValueError(f"{option} = {key}: expected null, as the data are no .npz file")
        names = sorted(stored) if len(stored) > 1 else []
        listed = ", ".join(names) or "it has that of training alone"
        require(key in names, option, key, f"an array of {self.path}: {listed}")
        return replace(self, test_key=key)

    def load(self) -> Dataset:
        """Read the data."""
        split: dict[str, Any] = {"test_fraction": self.test_fraction, "seed": self.seed}
        if self.source == "bach":
            dataset = load_bach(self.length, **split)
        else:
            kinds = {
                "array": "an .npy or .npz file",
                "lakh": "the folder of the release",
                "midi": "a folder",
                "image_tokens": "a file that usd3 encode wrote",
            }
            require(
                self.path is not None, "data.path", self.path, f"{kinds[self.source]} for data.source {self.source}"
            )
            path = str(self.path)
            if self.source == "array":
                dataset = load_arrays(
                    path,
                    self.num_classes,
                    train=self.train_key,
                    test=self.test_key,
                    pad_value=self.pad_value,
                    music=self.music,
                    **split,
                )
            elif self.source == "image_tokens":
                dataset = load_image_tokens(path)
            else:
                dataset = load_lakh(path) if self.source == "lakh" else load_midi(path, self.length, **split)
        require(dataset.music or not self.transpose, "data.transpose", self.transpose, "0 for data that are not music")
        return dataset if self.scramble is None else scramble(dataset, self.scramble)


@dataclass
class DiffusionConfig:
    """Noise, schedule and kind of time.

    Args:
        noise: "uniform", "absorbing" (masked diffusion: one more category, the mask) or "marginal" (the frequencies
            of the training data).
        schedule: how fast the noise comes in.
        schedule_options: arguments of the schedule, for example {"beta": 3.87} for "constant".
        num_steps: null: continuous time; a number, for example 1000: discrete time.
        t_min: lower cut of continuous time.
    """

    noise: Literal["uniform", "absorbing", "marginal"] = "uniform"
    schedule: Literal["cosine", "linear", "loglinear", "constant", "exponential", "geometric"] = "cosine"
    schedule_options: dict[str, float] = field(default_factory=dict)
    num_steps: int | None = None
    t_min: float = 1e-3

    def __post_init__(self) -> None:
        require_fields(self, "diffusion")
        as_count(self.num_steps or 1, "diffusion.num_steps", 1, _MOST_STEPS)

    @property
    def usual_steps(self) -> int:
        """Sampling steps where nothing says how many: 100, or all that discrete time has."""
        return min(_USUAL_STEPS, self.num_steps or _USUAL_STEPS)

    def build(self, num_classes: int, marginal: list[float] | None = None) -> Diffusion:
        """The diffusion on `num_classes` data categories; `marginal` are their frequencies."""
        noise: Noise
        if self.noise == "uniform":
            noise = Uniform(num_classes)
        elif self.noise == "absorbing":
            noise = Absorbing(num_classes + 1)
        else:
            require(marginal is not None, "marginal", marginal, "the frequencies of the categories")
            noise = Marginal(torch.tensor(marginal, dtype=torch.float64))
        try:
            schedule = SCHEDULES[self.schedule](**self.schedule_options)
        except TypeError as error:
            raise ValueError(f"diffusion.schedule_options = {self.schedule_options}: {error}") from None
        ends = float(schedule.alpha_bar(torch.tensor(1.0, dtype=torch.float64))) == 0
        fits = ends or not noise.has_zeros
        require(fits, "diffusion.schedule", self.schedule, f"cosine or linear, which end at 0, with {self.noise} noise")
        return Diffusion(noise, schedule, num_steps=self.num_steps, t_min=self.t_min)


@dataclass
class MethodConfig:
    """How the network is trained and how objects are drawn from it.

    Args:
        name: "usd3", one of its competitors (usd3 info lists them), or the import path of a class of your own, as in
            "mypackage.methods.MyMethod": a usd3.method.Method, made as MyMethod(diffusion, **options).
        options: arguments of the method, for example {"posterior": "joint"} for "d3pm".
        sampler: which of its samplers is used by default, for example "euler" for "sddm"; null: its own choice.
    """

    name: str = "usd3"
    options: dict[str, Any] = field(default_factory=dict)
    sampler: str | None = None

    def __post_init__(self) -> None:
        require_fields(self, "method")

    @property
    def kind(self) -> type[Method]:
        """The class of that name."""
        if self.name in METHODS:
            return METHODS[self.name]
        return _imported(self.name, Method, "method.name", METHODS)  # type: ignore[type-abstract]

    def build(self, diffusion: Diffusion, objective: str = "usd3") -> Method:
        """The method on a diffusion; `objective` is that of USD3."""
        kind, options = self.kind, dict(self.options)
        if issubclass(kind, USD3):
            twice = "objective" in options
            require(not twice, "method.options", options, "no objective, which training.objective says")
            options["objective"] = objective
        else:
            own = f"usd3, its default, as {self.name} has a loss of its own"
            require(objective == "usd3", "training.objective", objective, own)
        try:
            method = kind(diffusion, **options)
        except TypeError as error:
            names = [name for name in inspect.signature(kind).parameters if name not in ("diffusion", "objective")]
            taken = f"expected {', '.join(names) if names else 'none'} ({error})"
            raise ValueError(f"method.options = {self.options} for {self.name}: {taken}") from None
        if self.sampler is not None:
            method.prefer(self.sampler, "method.sampler")
        return method


@dataclass
class ModelConfig:
    """The network.

    Args:
        net: "transformer" (our default), "film" (the paper's), "hollow_transformer" or "masked_transformer" (SDDM's),
            or the import path of a class of your own, as in "mypackage.nets.MyNet": it is made as
            MyNet(num_classes=..., **options) and called as model(x_t, t).
        dim: width.
        depth: number of layers.
        heads: attention heads.
        mlp: hidden width of the MLPs; null: 4 dim.
        dropout: dropout rate.
        time_dim: size of the time features; SDDM's networks have `dim` of them.
        output_blocks: residual blocks before the logits; not for "transformer".
        projection: give hidden states and the output layer to the loss in place of logits, which are then never held
            at once. For very many categories.
        hollow: complete the logits by what the element itself shows. Much easier to train in continuous time.
        timeless: for absorbing noise: the network does not see the time; sampling then skips network calls for
            objects that did not change.
        self_conditioning: tell the network what it said in the step before; about 30 % more time in training. Only for
            "transformer", and for methods that read its output as p(x_0 | x_t).
        options: arguments of a class of your own.
    """

    net: str = "transformer"
    dim: int = 192
    depth: int = 8
    heads: int = 6
    mlp: int | None = None
    dropout: float = 0.0
    time_dim: int = 128
    output_blocks: int = 1
    hollow: bool = True
    timeless: bool = False
    projection: bool = False
    self_conditioning: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_fields(self, "model")
        for name in ("dim", "depth", "heads"):
            as_count(getattr(self, name), f"model.{name}", 1)
        as_count(4 if self.mlp is None else self.mlp, "model.mlp", 1)
        as_count(self.output_blocks, "model.output_blocks", 0)
        even = as_count(self.time_dim, "model.time_dim", 4) % 2 == 0
        require(even, "model.time_dim", self.time_dim, "an even number >= 4")
        as_number(self.dropout, "model.dropout", 0, 1, closed=True)
        for name in ("timeless", "projection") if self.self_conditioning else ():
            require(not getattr(self, name), f"model.{name}", True, "false with model.self_conditioning")

    def build(self, diffusion: Diffusion, shape: Sequence[int] = ()) -> nn.Module:
        """The network for this diffusion on objects of `shape`, freshly initialised."""
        net = self.build_bare(diffusion.noise.num_classes, shape)
        net = Hollow(net, diffusion) if self.hollow else net
        return SelfConditioned(net) if self.self_conditioning else net

    def build_bare(self, num_classes: int, shape: Sequence[int] = ()) -> nn.Module:
        """The network alone, whose weights in a file have the word "module" before them for each head around it."""
        if self.net in NETS:
            require(not self.options, "model.options", self.options, f"nothing for model.net {self.net!r}")
            takes = inspect.signature(NETS[self.net]).parameters
            for name in ("timeless", "projection", "self_conditioning"):
                require(name in takes or not getattr(self, name), f"model.{name}", True, f"false for {self.net}")
            sizes = {name: getattr(self, name) for name in vars(self) if name in takes}
            sizes["mlp"] = 4 * self.dim if self.mlp is None else self.mlp
            if "length" in takes:
                sizes["length"] = math.prod(shape)
            if "axes" in takes:
                sizes["axes"] = max(1, len(shape))
            self._require_sizes(sizes.get("axes", 1), 4 if "length" in takes else 1)
            return NETS[self.net](num_classes, **sizes)
        else:
            own = f"false for {self.net}: a network of your own says so itself, by an attribute ignores_time"
            require(not self.timeless, "model.timeless", self.timeless, own)
            own = f"false for {self.net}: a network of your own returns a usd3.Projection by itself"
            require(not self.projection, "model.projection", self.projection, own)
            own = f"false for {self.net}: a network of your own is wrapped in usd3.nets.SelfConditioned"
            require(not self.self_conditioning, "model.self_conditioning", True, own)
            return _imported(self.net, nn.Module, "model.net", NETS)(num_classes=num_classes, **self.options)

    def _require_sizes(self, axes: int, least: int) -> None:
        """Refuse sizes that a network of ours cannot have; it says so itself, but not in the names of options."""
        heads = f"model.heads {self.heads}"
        require(self.dim % (2 * self.heads) == 0, "model.dim", self.dim, f"a multiple of {2 * self.heads} with {heads}")
        require(self.dim >= least, "model.dim", self.dim, f"at least {least} for {self.net}")
        fits = self.dim >= 2 * self.heads * axes
        objects = f"on objects of {axes} dimensions"
        require(fits, "model.dim", self.dim, f"at least {2 * self.heads * axes} with {heads}, {objects}")


def _imported(path: str, kind: type[Kind], option: str, known: Iterable[str]) -> type[Kind]:
    """The class at an import path, which must be of this kind."""
    module, _, name = path.rpartition(".")
    expected = f"one of {sorted(known)} or the import path of a class derived from {kind.__module__}.{kind.__name__}"
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        reason = f" ({error})" if module else ""
        raise ValueError(f"{option} = {path}: expected {expected}{reason}") from None
    require(isinstance(found, type) and issubclass(found, kind), option, path, expected)
    return found  # type: ignore[no-any-return]


@dataclass
class TrainingConfig:
    """How the network is trained.

    Args:
        steps: optimiser steps.
        minutes: end after so many minutes of training, where `steps` are not done before; null: no limit. Compilation
            and the capture of a CUDA graph do not count. How many steps these are differs from run to run. For one
            process.
        batch_size: objects of one step, over all devices.
        accumulate: parts into which a device splits its share of a batch, one after the other, to save memory.
        objective: of the method "usd3": "usd3", "usd3*", "vlb" or "ce".
        stratified: spread the times of a batch evenly, which lowers the variance.
        given: which elements stay clean in training. "none": unconditional; "prefix": always the first `prefix`;
            "random": sometimes nothing, sometimes a prefix, all but a gap (a box where objects have several
            dimensions), or scattered elements, so that one model serves generation, continuation and infilling.
        prefix: elements given by "prefix"; also what `usd3 sample` and `usd3 evaluate` give by default.
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
        impl: the code of the loss: "auto" (the fastest that runs here), "eager" (the reference), "chunked" or "triton".
        compile: use torch.compile.
        compile_mode: its mode; "reduce-overhead" and "max-autotune" use CUDA graphs of their own, for the loss alone.
        cuda_graph: run a whole step as one CUDA graph, so that small networks need not wait for the host. "auto": where
            one process trains one of our networks on a GPU, with `accumulate` 1, `strategy` auto and no other
            `compile_mode` than "default"; "always": also for a network of your own; "never".
        accelerator: "auto", "cpu" or "gpu".
        devices: how many; "auto": all GPUs, or one process on the CPU.
        nodes: number of machines.
        strategy: Lightning's, for example "auto", "ddp" or "fsdp".
        log_every: steps between two rows of the log.
        validate_every: steps between two estimates of the bound on held-out data; 0: never.
        validate_objects: held-out objects used for it.
        checkpoint_every: steps between two checkpoints.
        keep: how many checkpoints to keep.
    """

    steps: int = 20_000
    minutes: float | None = None
    batch_size: int = 64
    accumulate: int = 1
    objective: Literal["usd3", "usd3*", "vlb", "ce"] = "usd3"
    stratified: bool = True
    given: Literal["none", "prefix", "random"] = "random"
    prefix: int = 32
    optimizer: Literal["adamw", "adam"] = "adamw"
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.01
    warmup: int = 500
    decay: Literal["constant", "cosine", "linear", "halve"] = "cosine"
    halve_every: int = 47_000
    clip: float | None = 1.0
    ema: float = 0.999
    precision: Literal["fp32", "bf16"] = "fp32"
    impl: Literal["auto", "eager", "chunked", "triton"] = "auto"
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
    checkpoint_every: int = 1000
    keep: int = 2

    def __post_init__(self) -> None:
        require_fields(self, "training")
        for name in ("steps", "batch_size", "accumulate", "halve_every", "nodes", "log_every", "validate_objects"):
            as_count(getattr(self, name), f"training.{name}", 1)
        for name in ("checkpoint_every", "keep"):
            as_count(getattr(self, name), f"training.{name}", 1)
        for name in ("prefix", "warmup", "validate_every"):
            as_count(getattr(self, name), f"training.{name}", 0)
        if self.minutes is not None:
            as_number(self.minutes, "training.minutes", 0)
        if self.clip is not None:
            as_number(self.clip, "training.clip", 0)
        as_number(self.lr, "training.lr", 0)
        as_number(self.ema, "training.ema", 0, 1, closed=True)
        as_number(self.weight_decay, "training.weight_decay", 0, closed=True)
        for reason in self.graph_hindrances if self.cuda_graph == "always" else ():
            require(False, "training.cuda_graph", self.cuda_graph, f"auto or never with {reason}")

    @property
    def graph_hindrances(self) -> list[str]:
        """The settings with which a step cannot be one CUDA graph."""
        own_graphs = self.compile and self.compile_mode != "default"
        found = {
            f"training.accelerator {self.accelerator}": self.accelerator == "cpu",
            f"training.accumulate {self.accumulate}": self.accumulate > 1,
            f"training.strategy {self.strategy}": self.strategy != "auto",
            f"training.devices {self.devices}": self.devices not in (1, "auto"),
            f"training.nodes {self.nodes}": self.nodes > 1,
            f"training.compile_mode {self.compile_mode}": own_graphs,
        }
        return [setting for setting, hinders in found.items() if hinders]

    def learning_rate(self, step: int, spent: float = 0.0) -> float:
        """The learning rate at a step, as a part of the peak; `spent` is the part of `minutes` that is behind us."""
        warmup, hurried = min(self.warmup, self.steps // 4), 4 * spent
        if self.decay == "halve":  # counted in steps, however long the run is
            warmup, hurried = self.warmup, 0.0
        rise = min(1.0, max((step + 1) / warmup, hurried)) if warmup else 1.0
        done = max(max(0.0, step - warmup) / max(1, self.steps - warmup), spent)
        fall = {
            "constant": 1.0,
            "cosine": 0.5 + 0.5 * math.cos(math.pi * min(1.0, done)),
            "linear": 1 - min(1.0, done),
            "halve": 0.5 ** (step // self.halve_every),
        }
        return rise * fall[self.decay]


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
