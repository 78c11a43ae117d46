"""A trained model with everything needed to use it: `Pipeline.from_pretrained(folder).sample(4)`."""

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

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
from usd3._internal.messages import suggestion
from usd3._internal.random import seed_of
from usd3._internal.threads import waiting_asleep
from usd3._internal.weights import load_weights
from usd3.core.coefficients import is_grid
from usd3.core.model import Cached, Wrapper, ignores_time, logits_of
from usd3.core.samplers import Corrector, Step
from usd3.methods.base import Method
from usd3.nets import Hollow, SelfConditioned
from usd3.nets.options import NETS, is_packaged
from usd3.pipeline.batches import in_batches
from usd3.pipeline.conditions import sample_where
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.filling import fill
from usd3.pipeline.inference import InferenceModel, network_logits
from usd3.pipeline.packaged import find_model, list_models
from usd3.pipeline.prediction import predict
from usd3.pipeline.trust import require_trusted

__all__ = ["Pipeline", "save_config", "save_pretrained"]

Arguments = ParamSpec("Arguments")

_ONE_BY_ONE = "first_hitting"  # the sampler that draws one element a call
_LOGITS_AT_ONCE = {"cpu": 2**24, "cuda": 2**28}  # logits of the largest batch, by type of device


def _without_gradients(
    method: Callable[Concatenate["Pipeline", Arguments], Tensor],
) -> Callable[Concatenate["Pipeline", Arguments], Tensor]:
    """A method of `Pipeline` that runs without gradients.

    A compiled network runs in the mode of CUDA graph captures: in inference mode a capture would compile it again.
    """

    @functools.wraps(method)
    def without_gradients(self: "Pipeline", /, *args: Arguments.args, **options: Arguments.kwargs) -> Tensor:
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
        self.model = (config.model.build(self.diffusion, config.shape) if model is None else model).eval()

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
        folder = find_model(folder)
        for name in ("config.json", "model.safetensors"):
            if not (folder / name).is_file():
                expected, packaged = "a folder with config.json and model.safetensors", list_models()
                if packaged:
                    expected += f", or a packaged model: {', '.join(packaged)}{suggestion(folder.name, packaged)}"
                raise FileNotFoundError(f"{folder} has no {name}: expected {expected}")
        config = PipelineConfig.read(folder)
        if not trust_code:
            require_trusted(config, () if model is None else (config.model.net,))
        if model is None:
            config.require_weights(folder)
        pipeline = cls(config, model)
        pipeline.compile = compile
        load_weights(pipeline.model, folder / "model.safetensors")
        return pipeline.to(device_named(device))

    def save_pretrained(self, folder: Path | str) -> None:
        """Write `config.json` and `model.safetensors`."""
        save_pretrained(Path(folder), self.config, self.model.state_dict())

    def __repr__(self) -> str:
        size = sum(weight.numel() for weight in self.model.parameters())
        return f"Pipeline({self.config.method.name}, {self.kind.describe()}, {size:,} parameters, on {self.device})"

    # ---- use ----------------------------------------------------------------------------------------------------

    @_without_gradients
    def sample(
        self,
        num: int | None = None,
        num_steps: int | None = None,
        tokens: ArrayLike | None = None,
        given: ArrayLike | None = None,
        pad: ArrayLike | None = None,
        corrector: Corrector | None = None,
        sampler: str | None = None,
        temperature: float = 1.0,
        seed: int = 0,
        batch_size: int | None = None,
        callback: Callable[[Step], None] | None = None,
        where: Mapping[str, Any] | str | Tensor | None = None,
    ) -> Tensor:
        """Objects drawn from the model, (N, ...) int64.

        The work is done in batches, which become smaller if memory runs out. If a launcher started several processes,
        they share the work, and each returns all objects. The objects depend on `seed` and on the batch size.
        `tokens`, `given` and `pad` may be tensors, NumPy arrays or lists; the masks broadcast. What a prompt makes
        impossible (`Kind.possible`), such as the end of a sequence before a given letter, is not drawn.

        Args:
            num: number of objects, N; by default 1, or the number of rows of `tokens`.
            num_steps: sampling steps; by default 100, or all steps of a model with fewer in discrete time.
            tokens: (N, ...) a prompt for each object. The pad value of the data, if it has one, marks padding.
            given: (N, ...) True where an element keeps its value in `tokens`.
            pad: (N, ...) True where an element is padding. In the result it has the pad value of the data.
            corrector: MCMC corrector.
            sampler: one of the method's samplers; None: its default.
            temperature: divides the logits. Below 1 the draws are closer to what the model finds likely.
            seed: seed of the draws.
            batch_size: number of objects in a batch; None: chosen by memory.
            callback: called with each `Step`.
            where: draw from p(object | condition): {"sex": "Female", "age": (30, 40)} or "sex=Female,age=30..40" for
                a kind whose elements have names, such as tables; or the share of each category that is allowed,
                (..., K) in [0, 1].
        """
        if where is not None:
            require(pad is None, "pad", pad, "None where a condition is given")
            options = dict[str, Any](num_steps=num_steps, corrector=corrector, sampler=sampler, callback=callback)
            options |= {"temperature": temperature, "batch_size": batch_size}
            return sample_where(self, where, num, tokens, given, seed, options)
        shape, prompt = tuple(self.config.shape), None if tokens is None else as_tokens(tokens)
        steps = self._steps(num_steps)
        if prompt is not None:
            require(tuple(prompt.shape[1:]) == shape, "tokens.shape", tuple(prompt.shape), f"(N, *{shape})")
            require(num in (None, len(prompt)), "num", num, f"None or the number of rows of tokens, {len(prompt)}")
            num = len(prompt)
        num = as_count(1 if num is None else num, "num", 1)
        given, pad = (as_mask(m, (num, *shape), name) for m, name in ((given, "given"), (pad, "pad")))
        objects = None
        if prompt is not None:
            objects, pad = self._without_padding(prompt, pad)
            prompt = self.encoded(objects)
        repeatable = is_packaged(self.bare_network)  # it does the same in every call: a CUDA graph can replay it

        def draw(rows: slice) -> Tensor:
            given_rows, prompt_rows, pad_rows = (
                None if part is None else part[rows].to(self.device) for part in (given, prompt, pad)
            )
            model, graph = self.denoiser(rows.stop - rows.start), repeatable
            if objects is not None and given is not None:
                possible = self._possible(objects[rows], given[rows])
                graph = graph and (possible is None or not ignores_time(model))
                model = model if possible is None else _Restricted(model, possible)
            return self.method.sample(
                model,
                (rows.stop - rows.start, *shape),
                steps,
                corrector=corrector,
                sampler=sampler,
                given=given_rows,
                given_tokens=prompt_rows,
                pad=pad_rows,
                generator=torch.Generator(self.device).manual_seed(seed_of(seed, rows.start)),
                callback=callback,
                device=self.device,
                graph=graph,
                temperature=temperature,
            ).cpu()

        x = self.decoded(in_batches(draw, num, self.batch_size(num) if batch_size is None else batch_size))
        value = self.config.data.pad_value
        return x if pad is None or value is None else x.masked_fill(pad.cpu(), value)

    def _without_padding(self, tokens: Tensor, pad: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Tokens with category 0 in place of the data's pad value, and `pad` with these elements added."""
        if self.config.data.pad_value is None:
            return tokens, pad
        has_pad_value = tokens == self.config.data.pad_value
        if not bool(has_pad_value.any()):
            return tokens, pad
        padding = has_pad_value if pad is None else has_pad_value | pad.to(has_pad_value.device)
        return tokens.masked_fill(has_pad_value, 0), padding

    def _possible(self, tokens: Tensor, given: Tensor) -> Tensor | None:
        """`Kind.possible` in the categories of the network's output, on its device."""
        possible = self.kind.possible(tokens.cpu(), given.cpu())
        if possible is None:
            return None
        possible = possible if self.config.decode is None else possible[..., torch.tensor(self.config.decode)]
        more = self.diffusion.noise.num_classes - possible.shape[-1]  # the mask
        return F.pad(possible, (0, more), value=True).to(self.device)

    def _steps(self, num_steps: int | None) -> int:
        return self.config.diffusion.usual_steps if num_steps is None else num_steps

    def num_moves(self, num_steps: int | None = None, sampler: str | None = None) -> int:
        """How many steps the sampler takes for `num_steps`: some methods add a last one. Default as in `sample`."""
        times = self.method.grid(self._steps(num_steps), self.method.samplers[0] if sampler is None else sampler)
        return len(times) - 1 if is_grid(times) else int(times)  # type: ignore[arg-type]

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
        extra = {} if where is None or isinstance(where, Tensor) else {"where": where}
        return self.kind.objects(x, seed, **extra)

    predict = _without_gradients(predict)

    @_without_gradients
    def bound(
        self,
        tokens: ArrayLike,
        given: ArrayLike | None = None,
        pad: ArrayLike | None = None,
        num_samples: int | None = None,
        seed: int = 0,
        batch_size: int | None = None,
    ) -> Tensor:
        """Upper bound on -log p(free elements | given elements) of each object, (N,) in nats.

        Args:
            tokens: (N, ...) the objects.
            given: (N, ...) True where an element is given, as in `sample`.
            pad: (N, ...) True where an element is padding, as in `sample`.
            num_samples: number of times at which the bound is estimated; None: the default of the method.
            seed: seed of the draws.
            batch_size: number of objects in a batch; None: chosen by memory.
        """
        objects = as_tokens(tokens)
        given, pad = (as_mask(m, tuple(objects.shape), name) for m, name in ((given, "given"), (pad, "pad")))
        objects, pad = self._without_padding(objects, pad)
        encoded = self.encoded(objects)

        def nats(rows: slice) -> Tensor:
            masks = {
                name: None if mask is None else mask[rows].to(self.device)
                for name, mask in (("given", given), ("pad", pad))
            }
            generator = torch.Generator(self.device).manual_seed(seed_of(seed, rows.start))
            x_0 = encoded[rows].to(self.device)
            return self.method.bound(self.denoiser(len(x_0)), x_0, num_samples, generator=generator, **masks).cpu()

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


class _Restricted(Wrapper):
    """A model that takes some categories for impossible: their logits are -inf.

    It has a row for each object, so a model that ignores the time is asked about the changed ones inside.

    Args:
        model: the model.
        possible: (B, ..., K) False where a category is impossible.
    """

    ignores_time = False

    def __init__(self, model: Callable[..., Any], possible: Tensor):
        super().__init__(Cached(model, possible.shape[-1]) if ignores_time(model) else model)
        self.possible = possible

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> Tensor:
        """Logits at x_t of all objects."""
        return logits_of(self.model(x_t, t, **masks), x_t).masked_fill(~self.possible, -torch.inf)


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
