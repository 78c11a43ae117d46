"""A trained model with everything needed to use it: `Pipeline.from_pretrained(folder).sample(4)`."""

import functools
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec

import torch
from numpy.typing import ArrayLike
from safetensors.torch import save_file
from torch import Tensor, nn

from usd3._internal.checks import as_count, as_mask, as_tokens, require, require_type
from usd3._internal.compile import Compiled
from usd3._internal.device import device_named
from usd3._internal.fields import made_of, require_fields
from usd3._internal.files import write_whole, written_whole
from usd3._internal.graphs import as_captured
from usd3._internal.messages import near
from usd3._internal.plain import parse_json
from usd3._internal.processes import gathered, rank_and_world
from usd3._internal.random import seed_of
from usd3._internal.threads import waiting_asleep
from usd3._internal.weights import load_weights, require_weights
from usd3._version import __version__
from usd3.core.coefficients import is_grid
from usd3.core.model import Wrapper, logits_of
from usd3.core.options import DiffusionConfig
from usd3.core.samplers import Corrector, Step
from usd3.kinds.dataset import ImageSource
from usd3.kinds.options import DataConfig
from usd3.methods.base import Method
from usd3.methods.options import MethodConfig
from usd3.nets import Hollow, MaskedTransformer, SelfConditioned
from usd3.nets.options import NETS, ModelConfig
from usd3.pipeline.packaged import find_model, list_models
from usd3.pipeline.trust import require_trusted

__all__ = ["Pipeline", "PipelineConfig", "in_batches", "save_pretrained"]

Arguments = ParamSpec("Arguments")

_MOST_ELEMENTS, _MOST_LOGITS = 2**22, 2**30  # of one object, so that no folder of a model asks for any memory
_LOGITS_AT_ONCE = {"cpu": 2**24, "cuda": 2**28}  # how many logits a batch may have before memory is tried


@dataclass
class PipelineConfig:
    """What `config.json` says: the categories, the diffusion, the method, the network and the data they are for.

    `steps` and `minutes` say how long it was trained; `source` where the images are whose tokens it is about; `given`
    which elements stayed clean in training, None where that is not known.
    """

    num_classes: int
    shape: list[int]
    diffusion: DiffusionConfig = field(default_factory=DiffusionConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    music: bool = False
    decode: list[int] | None = None
    marginal: list[float] | None = None
    source: ImageSource | None = None
    prefix: int = 32
    given: Literal["none", "prefix", "random"] | None = None
    precision: Literal["fp32", "bf16"] = "fp32"
    steps: int = 0
    minutes: float | None = None
    usd3_version: str = __version__

    def __post_init__(self) -> None:
        require_fields(self)
        num_classes = as_count(self.num_classes, "num_classes", 2)
        size = math.prod(as_count(side, "shape", 1) for side in self.shape)
        require(len(self.shape) > 0, "shape", self.shape, "the sides of an object")
        fits = size <= _MOST_ELEMENTS and size * num_classes <= _MOST_LOGITS
        most = f"at most {_MOST_ELEMENTS:,} elements, and {_MOST_LOGITS:,} elements times categories"
        require(fits, "shape", f"{tuple(self.shape)} of {num_classes} categories", most)
        whole = self.decode is None or sorted(self.decode) == list(range(self.num_classes))
        require(whole, "decode", self.decode, f"null or a permutation of 0..{self.num_classes - 1}")

    def require_weights(self, folder: Path) -> None:
        """Refuse a folder, if it has weights, whose weights are not those of our network of this config."""
        file, heads = folder / "model.safetensors", (self.model.hollow, self.model.self_conditioning)
        num_classes = self.num_classes + (self.diffusion.noise == "absorbing")
        if self.model.net in NETS and file.is_file():
            require_weights(file, lambda: self.model.build_bare(num_classes, self.shape), "module." * sum(heads))

    def has_trained(self, steps: int, minutes: float | None) -> bool:
        """Whether so many steps are done, or these minutes are over."""
        return self.steps >= steps or (minutes is not None and (self.minutes or 0.0) >= minutes)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "PipelineConfig":
        """From the content of a config.json."""
        parts = {
            "diffusion": DiffusionConfig,
            "method": MethodConfig,
            "model": ModelConfig,
            "data": DataConfig,
            "source": ImageSource,
        }
        require_type(isinstance(values, dict), "config", values, "a mapping of names and values")
        there = [name for name in parts if values.get(name) is not None]
        made: dict[str, Any] = {name: made_of(parts[name], values[name], name) for name in there}
        return made_of(cls, {**values, **made}, "config")

    @classmethod
    def read(cls, folder: Path) -> "PipelineConfig":
        """From the config.json of a folder."""
        file = folder / "config.json"
        try:
            values = parse_json(file)
            kind = values.get("kind") if isinstance(values, dict) else None  # of networks for images
            if kind is None:
                return cls.from_dict(values)
        except (TypeError, ValueError) as error:
            expected = "expected what usd3 wrote: restore the file, or export or train the model again"
            raise ValueError(f"{file}: {expected} ({error})") from None
        raise ValueError(f"{folder} is a {kind}: expected the folder of a run or of a saved model")


def _without_gradients(
    use: Callable[Concatenate["Pipeline", Arguments], Tensor],
) -> Callable[Concatenate["Pipeline", Arguments], Tensor]:
    """In inference mode; a compiled network in that of a capture, where it would be compiled again otherwise."""

    @functools.wraps(use)
    def used(self: "Pipeline", /, *args: Arguments.args, **options: Arguments.kwargs) -> Tensor:
        with waiting_asleep(), as_captured() if self.compile else torch.inference_mode():
            return use(self, *args, **options)

    return used


class Pipeline:
    """A network, its method, and the meaning of its categories. Tokens go in and come out as in the data.

    Where `compile` is True, `sample` and `bound` compile the network in their first call.
    """

    compile = False

    def __init__(self, config: PipelineConfig, model: nn.Module | None = None, objective: str = "usd3"):
        self.config = config
        self.diffusion = config.diffusion.build(config.num_classes, config.marginal)
        self.method = config.method.build(self.diffusion, objective)
        _require_fitting(self.method, config)
        self.model = (config.model.build(self.diffusion, config.shape) if model is None else model).eval()

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(iter(self.model.parameters()), torch.empty(0)).device

    def to(self, device: torch.device | str) -> "Pipeline":
        """Move the network."""
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
        """Load `config.json` and `model.safetensors` from a folder, or a packaged model by its name.

        Weights that were stored in half precision become float32 again.
        A network or method that is not ours is only imported with `trust_code=True`; or pass the network as `model`.
        `compile=True` compiles the network for sampling and bounds: that takes up to a minute in the first call.
        """
        folder = find_model(folder)
        for name in ("config.json", "model.safetensors"):
            if not (folder / name).is_file():
                expected, packaged = "a folder with config.json and model.safetensors", list_models()
                if packaged:
                    expected += f", or a packaged model: {', '.join(packaged)}{near(folder.name, packaged)}"
                raise FileNotFoundError(f"{folder / name}: expected {expected}")
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
        what = f"{self.config.method.name}, objects {tuple(self.config.shape)} of {self.config.num_classes} categories"
        return f"Pipeline({what}, {size:,} parameters, on {self.device})"

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
    ) -> Tensor:
        """Draw `num` objects, or one for each row of `tokens` whose elements `given` are kept, (N, ...) int64.

        The work is done in batches, made smaller by themselves where memory does not suffice, and divided among
        processes where a launcher started several; every process gets the whole result. Draws depend on `seed` and
        the batch size. `temperature` divides the logits: 1 draws from the model, less keeps
        closer to what it finds likely. `sampler` is one of the method's, by default its own. `num_steps` is by default
        100, or all of a model with fewer in discrete time.

        `tokens` and the masks `given` and `pad` may be tensors, NumPy arrays or lists; the masks broadcast. Where the
        data have a pad value, it marks padding in `tokens` too, and in what comes back.
        """
        shape, wanted = tuple(self.config.shape), None if tokens is None else as_tokens(tokens)
        steps = self._steps(num_steps)
        if wanted is not None:
            require(tuple(wanted.shape[1:]) == shape, "tokens.shape", tuple(wanted.shape), f"(N, *{shape})")
            require(num in (None, len(wanted)), "num", num, f"None or the number of rows of tokens, {len(wanted)}")
            num = len(wanted)
        num = as_count(1 if num is None else num, "num", 1)
        given, pad = (as_mask(m, (num, *shape), name) for m, name in ((given, "given"), (pad, "pad")))
        if wanted is not None:
            wanted, pad = self._without_padding(wanted, pad)
            wanted = self.encoded(wanted)
        ours = type(self._bare) in NETS.values()  # does the same in every call, so a CUDA graph can replay it

        def draw(rows: slice) -> Tensor:
            own = [None if part is None else part[rows].to(self.device) for part in (given, wanted, pad)]
            return self.method.sample(
                self.denoiser(rows.stop - rows.start),
                (rows.stop - rows.start, *shape),
                steps,
                corrector=corrector,
                sampler=sampler,
                given=own[0],
                given_tokens=own[1],
                pad=own[2],
                generator=torch.Generator(self.device).manual_seed(seed_of(seed, rows.start)),
                callback=callback,
                device=self.device,
                graph=ours,
                temperature=temperature,
            ).cpu()

        x = self.decoded(in_batches(draw, num, self.batch_size(num) if batch_size is None else batch_size))
        value = self.config.data.pad_value
        return x if pad is None or value is None else x.masked_fill(pad.cpu(), value)

    def _without_padding(self, tokens: Tensor, pad: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Tokens with category 0 in place of the data's pad value, and where padding is: there too."""
        if self.config.data.pad_value is None:
            return tokens, pad
        known = tokens == self.config.data.pad_value
        if not bool(known.any()):
            return tokens, pad
        return tokens.masked_fill(known, 0), known if pad is None else known | pad.to(known.device)

    def _steps(self, num_steps: int | None) -> int:
        return self.config.diffusion.usual_steps if num_steps is None else num_steps

    def num_moves(self, num_steps: int | None = None, sampler: str | None = None) -> int:
        """Steps of the sampler for `num_steps`, by default as in `sample`: some methods end with one more."""
        times = self.method.grid(self._steps(num_steps), self.method.samplers[0] if sampler is None else sampler)
        return len(times) - 1 if is_grid(times) else int(times)  # type: ignore[arg-type]

    def denoiser(self, num: int | None = None) -> Callable[..., Tensor]:
        """The network as the sampler calls it; on a GPU in bfloat16 where it was trained so.

        Where `compile` says so it is compiled for calls with `num` objects, by default for all: each number takes its
        time. The masked network is not: it is a loop over many parts, and each would be compiled.
        """
        half, ready = self.config.precision == "bf16", None
        if self.compile and not isinstance(self._bare, MaskedTransformer):
            self.diffusion.noise.probs_on(self.device)  # made inside a call, the next would compile again
            ready = self._compiled
        return _Network(self.model, self.device, half, ready, num)

    @property
    def _bare(self) -> Callable[..., Any]:
        """The network without its heads."""
        net: Callable[..., Any] = self.model
        while isinstance(net, Hollow | SelfConditioned):
            net = net.module
        return net

    @functools.cached_property
    def _compiled(self) -> Callable[..., Tensor]:
        """The logits of a network, compiled; a `Projection` stays inside."""
        return Compiled(_logits)

    def batch_size(self, num: int) -> int:
        """How many objects to try at once."""
        logits = torch.Size(self.config.shape).numel() * self.diffusion.noise.num_classes
        return max(1, min(num, _LOGITS_AT_ONCE.get(self.device.type, 2**24) // logits))

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
        """An upper bound on -log p(free elements | given), (N,) in nats; `tokens` and masks as in `sample`."""
        wanted = as_tokens(tokens)
        given, pad = (as_mask(m, tuple(wanted.shape), name) for m, name in ((given, "given"), (pad, "pad")))
        wanted, pad = self._without_padding(wanted, pad)
        encoded = self.encoded(wanted)

        def nats(rows: slice) -> Tensor:
            own = (None if m is None else m[rows].to(self.device) for m in (given, pad))
            masks = dict(zip(("given", "pad"), own))
            generator = torch.Generator(self.device).manual_seed(seed_of(seed, rows.start))
            x_0 = encoded[rows].to(self.device)
            return self.method.bound(self.denoiser(len(x_0)), x_0, num_samples, generator=generator, **masks).cpu()

        return in_batches(nats, len(wanted), self.batch_size(len(wanted)) if batch_size is None else batch_size)

    # ---- categories ---------------------------------------------------------------------------------------------

    def decoded(self, tokens: Tensor) -> Tensor:
        """The network's categories as those of the data."""
        return tokens.long() if self.config.decode is None else torch.tensor(self.config.decode)[tokens.long()]

    def encoded(self, tokens: Tensor) -> Tensor:
        """Categories of the data as the network's."""
        tokens, top = as_tokens(tokens), self.config.num_classes - 1
        bad = tokens[(tokens < 0) | (tokens > top)]
        require(not len(bad), "tokens", f"... {bad[:1].tolist()} ...", f"categories 0..{top}")
        return tokens if self.config.decode is None else torch.tensor(self.config.decode).argsort()[tokens]


def _require_fitting(method: Method, config: PipelineConfig) -> None:
    """Refuse a network that the method cannot use."""
    name, model = config.method.name, config.model
    output = f"false for {name}, which reads the network's output in its own way"
    require(method.reads == "full" or not model.hollow, "model.hollow", True, output)
    own = f"false for {name}, whose network does not say p(x_0 | x_t)"
    require(method.reads == "full" or not model.self_conditioning, "model.self_conditioning", True, own)
    hollow = sorted(net for net, kind in NETS.items() if getattr(kind, "is_hollow", False))
    blind = not method.needs_hollow or model.net not in NETS or model.net in hollow
    unseen = f"{' or '.join(hollow)} for {name}, which learns nothing from a network that sees the element"
    require(blind, "model.net", model.net, unseen)
    require(method.fuses or not model.projection, "model.projection", True, f"false for {name}, which needs the logits")


class _Network(Wrapper):
    """A network, on a GPU in bfloat16 where `half` says so, compiled for calls with `num` objects.

    A network that ignores the time is also called for the objects that changed, another number in every step.
    """

    def __init__(
        self,
        model: nn.Module,
        device: torch.device,
        half: bool,
        compiled: Callable[..., Tensor] | None = None,
        num: int | None = None,
    ):
        super().__init__(model)
        self.compiled, self.num = compiled, num
        self.kind, self.half = device.type, half and device.type == "cuda"

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> Tensor:
        with torch.autocast(self.kind, torch.bfloat16, enabled=self.half, cache_enabled=False):  # as graphs need it
            fast = self.compiled if self.num in (None, len(x_t)) else None
            return (fast or _logits)(self.model, x_t, t, **masks)


def _logits(model: Callable[..., Any], x_t: Tensor, t: Tensor, **masks: Tensor) -> Tensor:
    return logits_of(model(x_t, t, **masks), x_t)


def save_pretrained(folder: Path, config: PipelineConfig, weights: dict[str, Tensor]) -> None:
    """Write `config.json` and `model.safetensors`."""
    with written_whole(folder / "model.safetensors") as temporary:
        save_file({name: value.detach().cpu().contiguous() for name, value in weights.items()}, temporary)
    write_whole(folder / "config.json", json.dumps(asdict(config), indent=2) + "\n")


def in_batches(work: Callable[[slice], Tensor], num: int, batch_size: int) -> Tensor:
    """work(rows) for all of 0..num-1, in batches shared among the processes; halved where memory does not suffice."""
    batch_size = as_count(batch_size, "batch_size", 1)
    while True:
        batches = [slice(i, min(i + batch_size, num)) for i in range(0, num, batch_size)]
        rank, world = rank_and_world()
        try:
            mine = [work(rows) for rows in batches[rank::world]]
            fits = True
        except torch.OutOfMemoryError:
            mine, fits = [], False
        parts = gathered((fits, mine))
        if all(fits for fits, _ in parts):
            break
        if batch_size == 1:
            raise MemoryError("one object alone does not fit into the memory of the device")
        torch.cuda.empty_cache()
        batch_size //= 2
    return torch.cat([parts[i % world][1][i // world] for i in range(len(batches))])
