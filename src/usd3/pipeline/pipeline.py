"""A trained model with everything needed to use it: `Pipeline.from_pretrained(folder).sample(4)`."""

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from usd3._internal.checks import as_count, as_mask, as_tokens, require
from usd3._internal.compile import Compiled
from usd3._internal.device import device_named
from usd3._internal.files import write_whole, written_whole
from usd3._internal.graphs import as_captured
from usd3._internal.random import seed_of
from usd3._internal.threads import waiting_asleep
from usd3._internal.weights import load_weights
from usd3.core.coefficients import Times, is_grid
from usd3.core.logits import Adjust
from usd3.core.model import BoundKeywords, ignores_time
from usd3.core.samplers import CorrectorMoves, Sampler, Step
from usd3.core.step_costs import StepCosts
from usd3.methods.base import Method
from usd3.nets import Hollow, SelfConditioned
from usd3.nets.options import NETS, is_packaged
from usd3.pipeline.batches import in_batches
from usd3.pipeline.conditions import sample_where
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.encoded import Encoded, without_padding
from usd3.pipeline.filling import fill
from usd3.pipeline.grids import STEP_COSTS, measured_step_costs, read_step_costs, write_step_costs
from usd3.pipeline.inference import InferenceModel, Restricted, network_logits
from usd3.pipeline.labels import Labels, label_rows, split_where
from usd3.pipeline.packaged import results_folder, whole_model
from usd3.pipeline.prediction import predict, predict_label
from usd3.pipeline.trust import require_trusted

__all__ = ["Pipeline", "save_config", "save_pretrained"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_ONE_BY_ONE = "first_hitting"  # the sampler that draws one element a call
_LOGITS_AT_ONCE = {"cpu": 2**24, "cuda": 2**28}  # logits of the largest batch, by type of device


def _without_gradients(
    method: Callable[Concatenate["Pipeline", Arguments], Result],
) -> Callable[Concatenate["Pipeline", Arguments], Result]:
    """A method of `Pipeline` that runs without gradients.

    A compiled network runs in the mode of CUDA graph captures: in inference mode a capture would compile it again.
    """

    @functools.wraps(method)
    def without_gradients(self: "Pipeline", /, *args: Arguments.args, **options: Arguments.kwargs) -> Result:
        with waiting_asleep(), as_captured() if self.compile else torch.inference_mode():
            return method(self, *args, **options)

    return without_gradients


class Pipeline:
    """A network, its method and its kind of data. Tokens are the categories of the data, on the way in and out.

    If `compile` is True, the first call of `sample` or `bound` compiles the network.

    Args:
        config: the content of config.json.
        model: the network; None: a new one with random weights, as `config.model` describes it.
        objective: the training objective of USD3.
    """

    compile = False

    def __init__(self, config: PipelineConfig, model: nn.Module | None = None, objective: str = "usd3"):
        self.config, self.kind = config, config.build_kind()
        self.diffusion = config.build_diffusion(self.kind.support)
        self.method = config.method.build(self.diffusion, objective)
        one_by_one = self.kind.draws_one_by_one and self.diffusion.noise.is_absorbing
        if config.method.sampler is None and one_by_one and _ONE_BY_ONE in self.method.samplers:
            self.method.prefer(_ONE_BY_ONE, "method.sampler")
        _require_usable_network(self.method, config)
        self.model = (config.build_network(self.diffusion) if model is None else model).eval()
        self._step_costs: StepCosts | Path | None = None  # a file is read when it is asked for

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(iter(self.model.parameters()), torch.empty(0)).device

    def to(self, device: torch.device | str) -> "Pipeline":
        """Move the network to a device; returns the pipeline."""
        self.model.to(device)
        return self

    # ---- files --------------------------------------------------------------------------------------------------

    @classmethod
    def from_pretrained(
        cls,
        folder: Path | str,
        model: nn.Module | None = None,
        trust_code: bool = False,
        device: str | None = None,
        compile: bool = False,
    ) -> "Pipeline":
        """The pipeline in a model folder, from its `config.json` and `model.safetensors`.

        Args:
            folder: the folder, or the name of a packaged model.
            model: the network; None: the one that config.json names. Its weights are loaded, as float32.
            trust_code: import a kind, network or method that is not ours. This runs its code.
            device: "cpu" or "cuda"; None: a GPU if there is one.
            compile: compile the network for sampling and bounds. The first call then takes up to a minute longer.
        """
        folder = whole_model(folder)
        config = PipelineConfig.read(folder)
        if not trust_code:
            require_trusted(config, () if model is None else (config.model.net,))
        if model is None:
            config.require_weights(folder)
        pipeline = cls(config, model)
        pipeline.compile = compile
        load_weights(pipeline.model, folder / "model.safetensors")
        places = (folder / STEP_COSTS, results_folder(folder) / STEP_COSTS)
        pipeline._step_costs = next((file for file in places if file.is_file()), None)
        return pipeline.to(device_named(device))

    def save_pretrained(self, folder: Path | str) -> None:
        """Write `config.json` and `model.safetensors`, and `step_costs.json` if step costs are known."""
        save_pretrained(Path(folder), self.config, self.model.state_dict())
        self.save_step_costs(Path(folder))

    def save_step_costs(self, folder: Path) -> None:
        """Write `step_costs.json`, if the step costs of this model are known; otherwise remove that of another one."""
        try:
            costs = self.step_costs
        except ValueError:  # of an earlier training step, or no step costs
            costs = None
        if costs is None:
            (folder / STEP_COSTS).unlink(missing_ok=True)
        else:
            write_step_costs(folder / STEP_COSTS, costs, self.config.steps)

    def __repr__(self) -> str:
        size = sum(weight.numel() for weight in self.model.parameters())
        return f"Pipeline({self.config.method.name}, {self.kind.describe()}, {size:,} parameters, on {self.device})"

    # ---- use ----------------------------------------------------------------------------------------------------

    @_without_gradients
    def sample(
        self,
        num: int | None = None,
        num_steps: int | Times | None = None,
        tokens: ArrayLike | None = None,
        given: ArrayLike | None = None,
        pad: ArrayLike | None = None,
        corrector: CorrectorMoves | None = None,
        sampler: str | Sampler | None = None,
        temperature: float = 1.0,
        seed: int = 0,
        batch_size: int | None = None,
        callback: Callable[[Step], None] | None = None,
        where: Mapping[str, Any] | str | Tensor | None = None,
        labels: Labels | None = None,
        top_k: int | None = None,
        top_p: float = 1.0,
        bias: ArrayLike | None = None,
        adjust: Adjust | None = None,
        guidance_scale: float = 1.0,
        guidance: Literal["f", "step"] = "f",
    ) -> Tensor:
        """Objects drawn from the model, (N, ...) int64.

        The work is done in batches, which become smaller if memory runs out. If a launcher started several processes,
        they share the work, and each returns all objects. The objects depend on `seed` and on the batch size.
        `tokens`, `given` and `pad` may be tensors, NumPy arrays or lists; the masks broadcast. What a prompt makes
        impossible (`Kind.possible`), such as the end of a sequence before a given letter, is not drawn.

        Args:
            num: number of objects, N; by default 1, or the number of rows of `tokens`.
            num_steps: sampling steps; by default 100, or all steps of a model with fewer in discrete time. Or a grid of
                times that decrease to 0, such as `best_grid` finds.
            tokens: (N, ...) a prompt for each object. The pad value of the data, if it has one, marks padding.
            given: (N, ...) True where an element keeps its value in `tokens`.
            pad: (N, ...) True where an element is padding. In the result it has the pad value of the data.
            corrector: MCMC corrector.
            sampler: one of the method's samplers, or a function `(run, grid) -> step`; None: the method's default.
            temperature: divides the logits. Below 1 the draws are closer to what the model finds likely.
            seed: seed of the draws.
            batch_size: number of objects in a batch; None: chosen by memory.
            callback: called with each `Step`.
            where: draw from p(object | condition): {"sex": "Female", "age": (30, 40)} or "sex=Female,age=30..40" for
                a kind whose elements have names, such as tables; or the share of each category that is allowed,
                (..., K) in [0, 1]. A model of data with labels takes their names in the same way: {"label": "cat"} or
                "label=cat". Without a label, objects of any class are drawn.
            labels: the label of each object, (N,) names or numbers of classes, or (N, J) numbers if an object has
                several; -1: absent. As `where` for a label, but each object may have its own.
            top_k: draw only from the k likeliest categories of each element; None: from all.
            top_p: draw only from the fewest likeliest categories with this total probability.
            bias: soft wishes, added to the logits, (K,) or (..., K) for each element, in the categories of the data.
            adjust: `adjust(logits, x_t, t)` returns other logits (B, ..., K), in the categories of the network.
            guidance_scale: how closely to follow the given elements and the labels: 1 as p(object | given, label) does,
                above 1 closer.
            guidance: "f" tilts p(x_0 | x_t), for every sampler; "step" tilts the exact steps.
        """
        how = dict[str, Any](temperature=temperature, top_k=top_k, top_p=top_p, adjust=adjust)
        how |= {"guidance_scale": guidance_scale, "guidance": guidance}
        if where is not None:
            named, where = split_where(where, self.config.labels, self.kind)
            require(named is None or labels is None, "labels", labels, "None where `where` names a label")
            labels = labels if named is None else named
        if where is not None:
            same = labels is None or isinstance(labels, Mapping | str)
            require(same, "labels", labels, "None, or one for all objects, as in {'label': 'cat'}, with a condition")
            require(pad is None, "pad", pad, "None where a condition is given")
            options = dict[str, Any](num_steps=num_steps, corrector=corrector, sampler=sampler, callback=callback)
            options |= {"batch_size": batch_size, "bias": bias, "labels": labels, **how}
            return sample_where(self, where, num, tokens, given, seed, options)
        shape, prompt = tuple(self.config.shape), None if tokens is None else as_tokens(tokens)
        steps = self._steps(num_steps)
        if prompt is not None:
            require(tuple(prompt.shape[1:]) == shape, "tokens.shape", tuple(prompt.shape), f"(N, *{shape})")
            require(num in (None, len(prompt)), "num", num, f"None or the number of rows of tokens, {len(prompt)}")
            num = len(prompt)
        if num is None and labels is not None and not isinstance(labels, Mapping | str) and np.ndim(labels) > 0:
            num = len(labels)  # type: ignore[arg-type]
        num = as_count(1 if num is None else num, "num", 1)
        label = label_rows(labels, self.config.labels, num)
        given, pad = (as_mask(m, (num, *shape), name) for m, name in ((given, "given"), (pad, "pad")))
        objects = None
        if prompt is not None:
            objects, pad = without_padding(prompt, pad, self.config.data.pad_value)
            prompt = self.encoded(objects)
        if guidance_scale != 1:
            follows = (given is not None and bool(given.any())) or (label is not None and bool((label >= 0).any()))
            expected = "1 where nothing is given and no label is set: there is no condition to follow"
            require(follows, "guidance_scale", guidance_scale, expected)
        how["bias"] = None if bias is None else self.encoded_bias(bias)
        calls = 1 if guidance_scale in (0, 1) else 2  # rows of the network for each object
        # a packaged network does the same in every call: a CUDA graph can replay it
        repeatable = adjust is None and is_packaged(self.bare_network)

        def draw(rows: slice) -> Tensor:
            given_rows, prompt_rows, pad_rows = (
                None if part is None else part[rows].to(self.device) for part in (given, prompt, pad)
            )
            labels_here = None if label is None else label[rows]
            model, graph = self.model_for(calls * (rows.stop - rows.start), labels_here), repeatable
            if objects is not None and given is not None:
                possible = self._possible(objects[rows], given[rows])
                graph = graph and (possible is None or not ignores_time(model))
                model = model if possible is None else Restricted(model, possible)
            return self.method.sample(
                model,
                (rows.stop - rows.start, *shape),
                steps,
                corrector=corrector,
                sampler=sampler,
                given=given_rows,
                given_tokens=prompt_rows,
                pad=pad_rows,
                generator=self.generator(seed, rows),
                callback=callback,
                device=self.device,
                graph=graph,
                **how,
            ).cpu()

        size = max(1, self.batch_size(calls * num) // calls) if batch_size is None else batch_size
        x = self.decoded(in_batches(draw, num, size))
        value = self.config.data.pad_value
        return x if pad is None or value is None else x.masked_fill(pad.cpu(), value)

    def _possible(self, tokens: Tensor, given: Tensor) -> Tensor | None:
        """`Kind.possible` in the categories of the network's output, on its device."""
        possible = self.kind.possible(tokens.cpu(), given.cpu())
        if possible is None:
            return None
        possible = possible if self.config.decode is None else possible[..., torch.tensor(self.config.decode)]
        more = self.diffusion.noise.num_classes - possible.shape[-1]  # the mask
        return F.pad(possible, (0, more), value=True).to(self.device)

    def encoded_bias(self, bias: ArrayLike) -> Tensor:
        """A bias (..., K) in the categories of the data as one of the network's output, on its device."""
        K, shape = self.config.num_classes, tuple(self.config.shape)
        tensor = torch.as_tensor(bias)
        fits = tuple(tensor.shape) in ((K,), (*shape, K))
        require(fits, "bias.shape", tuple(tensor.shape), f"{(K,)} or {(*shape, K)}, one for each category of the data")
        tensor = tensor.to(torch.get_default_dtype())
        bad = bool((tensor.isnan() | (tensor == torch.inf)).any())
        require(not bad, "bias", "nan or inf", "numbers, or -inf for a category that must not be drawn")
        tensor = tensor if self.config.decode is None else tensor[..., torch.tensor(self.config.decode)]
        return F.pad(tensor, (0, self.diffusion.noise.num_classes - K)).to(self.device)

    def _steps(self, num_steps: int | Times | None) -> int | Times:
        return self.config.diffusion.usual_steps if num_steps is None else num_steps

    def num_moves(self, num_steps: int | Times | None = None, sampler: str | Sampler | None = None) -> int:
        """How many steps the sampler takes for `num_steps`: some methods add a last one. Default as in `sample`."""
        times = self._steps(num_steps)
        if not callable(sampler):
            times = self.method.grid(times, self.method.samplers[0] if sampler is None else sampler)
        return len(times) - 1 if is_grid(times) else int(times)  # type: ignore[arg-type]

    def require_where(self, where: Mapping[str, Any] | str) -> None:
        """Raise an error unless a condition names labels, classes, elements and values that the model has."""
        named, rest = split_where(where, self.config.labels, self.kind)
        label_rows(named, self.config.labels, 1, "where")
        if rest is not None and not isinstance(rest, Tensor):
            self.kind.weights(rest)

    @property
    def step_costs(self) -> StepCosts | None:
        """What the steps of the sampler lose, as `usd3 grid` measured it on this model; None: not measured."""
        if isinstance(self._step_costs, Path):
            self._step_costs = read_step_costs(self._step_costs, self.config.steps)
        return self._step_costs

    @step_costs.setter
    def step_costs(self, costs: StepCosts | None) -> None:
        self._step_costs = costs

    def best_grid(self, num_steps: int | None = None) -> list[float]:
        """The times of `num_steps` sampling steps that lose least, for `sample`; needs `step_costs`.

        More steps than the costs know have no best grid. Default as in `sample`, or all that the costs know.
        """
        costs = self.step_costs
        expected = "a model with step_costs.json, which `usd3 grid MODEL` writes"
        require(costs is not None, "grid", "best", expected)
        assert costs is not None
        usual = min(costs.most_steps, self.config.diffusion.usual_steps)
        return costs.best_grid(usual if num_steps is None else num_steps)

    def denoiser(self, num: int | None = None) -> Callable[..., Tensor]:
        """The network as the sampler calls it: on a GPU in bfloat16 if it was trained in bfloat16.

        If `self.compile` is True, the network is compiled, except the masked one: it is a loop over many parts, and
        each part would be compiled.

        Args:
            num: batch size to compile for; None: every batch size that occurs. Each takes time to compile.
        """
        half, compiled = self.config.precision == "bf16", None
        if self.compile and getattr(self.bare_network, "can_compile", True):
            self.diffusion.noise.probs_on(self.device)  # if a call created them, the next call would compile again
            compiled = self._compiled
        return InferenceModel(self.model, self.device, half, compiled, num)

    def model_for(self, num: int | None = None, label: Tensor | None = None) -> Callable[..., Tensor]:
        """The network as the sampler calls it, bound to the labels of its objects.

        Args:
            num: batch size to compile for, see `denoiser`.
            label: (num, J) int64 the class of each label, -1: absent; None: all are absent.
        """
        model = self.denoiser(num)
        return model if label is None else BoundKeywords(model, label.to(self.device))

    def generator(self, seed: int, rows: slice) -> torch.Generator:
        """The generator of the draws for a batch, on the network's device."""
        return torch.Generator(self.device).manual_seed(seed_of(seed, rows.start))

    @property
    def bare_network(self) -> Any:
        """The network without its heads."""
        net: Any = self.model
        while isinstance(net, Hollow | SelfConditioned):
            net = net.module
        return net

    @functools.cached_property
    def _compiled(self) -> Callable[..., Tensor]:
        """`network_logits`, compiled."""
        return Compiled(network_logits)

    def batch_size(self, num: int) -> int:
        """The default batch size for `num` objects."""
        logits = torch.Size(self.config.shape).numel() * self.diffusion.noise.num_classes
        return max(1, min(num, _LOGITS_AT_ONCE.get(self.device.type, 2**24) // logits))

    def fill(self, tokens: ArrayLike, given: ArrayLike, seed: int = 0, **options: Any) -> Tensor:
        """Objects (N, ...) with all that is not given drawn, as the kind fills holes: never with a missing value.

        Args:
            tokens: (N, ...) the prompts.
            given: (N, ...) True where an element keeps its value.
            seed: seed of the draws.
            options: further arguments of `sample`.
        """
        defaults = {"num_steps": None, "corrector": None, "sampler": None, "callback": None}
        return fill(self, tokens, given, seed, {**defaults, "temperature": 1.0, "batch_size": None, **options})

    def generate(self, num: int | None = None, seed: int = 0, **options: Any) -> Any:
        """Objects drawn from the model as the user knows them: a DataFrame, a list of strings, an array.

        Args:
            num: number of objects.
            seed: seed of the draws.
            options: further arguments of `sample`, such as `where`.
        """
        x = self.sample(num, seed=seed, **options)
        where = options.get("where")
        if where is not None:  # labels do not change how objects are shown
            _, where = split_where(where, self.config.labels, self.kind)
        extra = {} if where is None or isinstance(where, Tensor) else {"where": where}
        return self.kind.objects(x, seed, **extra)

    predict = _without_gradients(predict)
    predict_label = _without_gradients(predict_label)
    measured_step_costs = _without_gradients(measured_step_costs)

    @_without_gradients
    def bound(
        self,
        tokens: ArrayLike,
        given: ArrayLike | None = None,
        pad: ArrayLike | None = None,
        num_samples: int | None = None,
        seed: int = 0,
        batch_size: int | None = None,
        labels: Labels | None = None,
    ) -> Tensor:
        """Upper bound on -log p(free elements | given elements, labels) of each object, (N,) in nats.

        Args:
            tokens: (N, ...) the objects.
            given: (N, ...) True where an element is given, as in `sample`.
            pad: (N, ...) True where an element is padding, as in `sample`.
            num_samples: number of times at which the bound is estimated; None: the default of the method.
            seed: seed of the draws.
            batch_size: number of objects in a batch; None: chosen by memory.
            labels: the label of each object, as in `sample`; None: the bound of objects whose label is not known.
        """
        objects = Encoded.of(self, tokens, given, pad, labels)

        def nats(rows: slice) -> Tensor:
            part = objects.on(self.device, rows)
            model, generator = self.model_for(len(part), part.label), self.generator(seed, rows)
            return self.method.bound(model, part.tokens, num_samples, part.given, part.pad, generator).cpu()

        return in_batches(nats, len(objects), self.batch_size(len(objects)) if batch_size is None else batch_size)

    # ---- categories ---------------------------------------------------------------------------------------------

    def decoded(self, tokens: Tensor) -> Tensor:
        """Categories of the data for `tokens` in the network's categories, int64 of the same shape."""
        return tokens.long() if self.config.decode is None else torch.tensor(self.config.decode)[tokens.long()]

    def encoded(self, tokens: Tensor) -> Tensor:
        """The network's categories for `tokens` in the categories of the data, int64 of the same shape."""
        tokens, top = as_tokens(tokens), self.config.num_classes - 1
        bad = tokens[(tokens < 0) | (tokens > top)]
        require(not len(bad), "tokens", f"... {bad[:1].tolist()} ...", f"categories 0..{top}")
        return tokens if self.config.decode is None else torch.tensor(self.config.decode).argsort()[tokens]


def _require_usable_network(method: Method, config: PipelineConfig) -> None:
    """Raise an error if the method cannot use the network that `config` describes."""
    name, model = config.method.name, config.model
    output = f"false for {name}, which reads the network's output in its own way"
    require(method.reads == "full" or not model.hollow, "model.hollow", True, output)
    prediction = f"false for {name}, whose network does not say p(x_0 | x_t)"
    require(method.reads == "full" or not model.self_conditioning, "model.self_conditioning", True, prediction)
    if method.needs_hollow and model.net in NETS:
        hollow = sorted(name for name, net in NETS.items() if getattr(net, "is_hollow", False))
        expected = f"{' or '.join(hollow)} for {name}, which learns nothing from a network that sees the element"
        require(model.net in hollow, "model.net", model.net, expected)
    require(method.fuses or not model.projection, "model.projection", True, f"false for {name}, which needs the logits")


def save_pretrained(folder: Path, config: PipelineConfig, weights: dict[str, Tensor]) -> None:
    """Write `config.json` and `model.safetensors` into a folder.

    Args:
        folder: the folder; created if it does not exist.
        config: the content of config.json.
        weights: the state dict of the network.
    """
    with written_whole(folder / "model.safetensors") as temporary:
        save_file({name: value.detach().cpu().contiguous() for name, value in weights.items()}, temporary)
    save_config(folder, config)


def save_config(folder: Path, config: PipelineConfig) -> None:
    """Write `config.json` into a folder."""
    write_whole(folder / "config.json", json.dumps(asdict(config), indent=2) + "\n")
