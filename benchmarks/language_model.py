"""One whole training step of a language model: our losses beside torch's cross entropy, Liger's and Apple's.

    python benchmarks/language_model.py

The same network under every loss, all in one process: 12 layers of width 768, batches of 32 x 512 tokens, bf16, a
compiled body, fused AdamW. Only the output layer and the loss differ; `body` has an output layer of one number and
no loss to speak of. The rows of one run compare.

- `torch` is `F.cross_entropy` of logits; `torch compiled` the same, and its output layer, in torch.compile.
- `liger` is the fused linear cross entropy of Liger-Kernel as it comes. `liger large chunks` forms 8 times as many
  logits at once and adds up the gradient of the weights in float32. `cce` is Apple's cut cross entropy. They take the
  output layer in bfloat16, cast once a step. Where a library is missing a line says so, and its rows are left out.
- `uniform` and `absorbing` are `Diffusion.loss` with that noise: from logits, and with `projection` from hidden states
  and the output layer. Their output layers have biases, as our networks have; the others have none.
- `ms` is the median of `--steps` steps after a warm-up, `peak_gib` the most memory allocated during them, `loss` that
  of a token in the last step. Every row begins with the same weights and sees the same random tokens. Cut cross
  entropy skips gradients that are nearly 0, so its time depends on the frequencies of tokens: `--tokens zipf` draws
  them nearer to those of texts.
"""

import argparse
import gc
import importlib
import importlib.metadata
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from shared import kernel_times, write_profile, write_rows
from torch import Tensor, nn
from torch.nn import functional as F

import usd3
from usd3._internal.compile import compiled
from usd3.bench.machine import machine
from usd3.kernels.padding import padded_linear
from usd3.nets.transformer import Transformer

Body = Callable[[Tensor, Tensor], Tensor]
"""Hidden states (B, L, width) of tokens (B, L) and times (B,)."""
LossOfBatch = Callable[[Body, nn.Linear, Tensor, Tensor], Tensor]
"""The loss, from the body, an output layer, tokens (B, L) and those to predict (B, L); ours is that of an object."""


class Library(NamedTuple):
    """Where a competitor's function is, and the package whose version the rows say."""

    module: str
    function: str
    package: str


_LIGER = Library("liger_kernel.transformers.functional", "liger_fused_linear_cross_entropy", "liger_kernel")
LIBRARIES = {
    "liger": _LIGER,
    "liger large chunks": _LIGER,
    "cce": Library("cut_cross_entropy", "linear_cross_entropy", "cut_cross_entropy"),
}
NOISES: dict[str, Callable[[int], usd3.Diffusion]] = {
    "uniform": lambda K: usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), validate=False),
    "absorbing": lambda K: usd3.Diffusion(usd3.Absorbing(K), usd3.Linear(), validate=False),
}
OURS = {f"{noise}{way}": noise for noise in NOISES for way in ("", " projection")}
LOSSES = ("body", "torch", "torch compiled", *OURS, *LIBRARIES)


# ---- the losses -----------------------------------------------------------------------------------------------------


def hidden_of(body: Body, tokens: Tensor) -> Tensor:
    """Hidden states where there is no time."""
    return body(tokens, torch.zeros(len(tokens), device=tokens.device))


def body_alone(body: Body, head: nn.Linear, tokens: Tensor, targets: Tensor) -> Tensor:
    """The mean of an output layer that is one number wide: almost no loss, with gradients everywhere."""
    return head(hidden_of(body, tokens)).float().mean()  # type: ignore[no-any-return]


def cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Torch's, from logits."""
    return F.cross_entropy(F.linear(hidden, weight).flatten(0, 1), targets.flatten())


def of_hidden(loss: Callable[[Tensor, Tensor, Tensor], Tensor]) -> LossOfBatch:
    """A loss that takes hidden states, the weights of the output layer and targets."""
    return lambda body, head, tokens, targets: loss(hidden_of(body, tokens), head.weight, targets)


def diffusion_loss(diffusion: usd3.Diffusion, projected: bool) -> LossOfBatch:
    """Ours, from logits or from a projection; `targets` are not used, as the tokens themselves are predicted."""

    def loss(body: Body, head: nn.Linear, tokens: Tensor, targets: Tensor) -> Tensor:
        def model(x_t: Tensor, t: Tensor) -> Any:
            hidden = body(x_t, t)
            if projected:
                return usd3.Projection(hidden, head.weight, head.bias)
            return padded_linear(hidden, head.weight, head.bias)  # what the last layers of our networks do

        return diffusion.loss(model, tokens, stratified=True).loss

    return loss


def library_loss(name: str) -> LossOfBatch:
    """A competitor's; raises ImportError where it is missing."""
    function = getattr(importlib.import_module(LIBRARIES[name].module), LIBRARIES[name].function)
    options = {"chunk_mem_const": 8, "accum_dtype": torch.float32} if name == "liger large chunks" else {}

    def loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        rows, layer = hidden.flatten(0, 1).to(torch.bfloat16), weight.to(torch.bfloat16)
        return function(rows, layer, targets.flatten(), **options)  # type: ignore[no-any-return]

    return of_hidden(loss)


def loss_named(name: str, K: int) -> LossOfBatch:
    """The loss of that row."""
    if name == "body":
        return body_alone
    if name in LIBRARIES:
        return library_loss(name)
    if name in OURS:
        return diffusion_loss(NOISES[OURS[name]](K), projected=name.endswith("projection"))
    return of_hidden(compiled(cross_entropy, dynamic=False) if name == "torch compiled" else cross_entropy)


def output_layer(name: str, width: int, K: int, device: torch.device) -> nn.Linear:
    """The output layer of that row; only ours has biases."""
    head = nn.Linear(width, 1 if name == "body" else K, bias=name in OURS, device=device)
    nn.init.normal_(head.weight, std=0.02)
    if name in OURS:
        nn.init.zeros_(head.bias)
    return head


# ---- a row ----------------------------------------------------------------------------------------------------------


class Marks:
    """Moments between steps. On a GPU they are events, for which nothing waits before the end."""

    def __init__(self, device: torch.device):
        self.device, self.moments = device, list[Any]()

    def __call__(self) -> None:
        """Mark this moment."""
        moment: Any = time.perf_counter()
        if self.device.type == "cuda":
            moment = torch.cuda.Event(enable_timing=True)
            moment.record()
        self.moments.append(moment)

    def ms(self) -> list[float]:
        """Milliseconds between one moment and the next."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            return [begin.elapsed_time(end) for begin, end in pairwise(self.moments)]
        return [(end - begin) * 1e3 for begin, end in pairwise(self.moments)]


class Network:
    """The body that all rows share, compiled once, and the weights that each of them begins with."""

    def __init__(self, classes: int, width: int, layers: int, device: torch.device, compile: bool):
        net = Transformer(classes, width, layers, heads=max(1, width // 64), mlp=4 * width, timeless=True)
        net.logits = nn.Identity()  # type: ignore[assignment]  # its output are the hidden states
        self.start = {name: tensor.clone() for name, tensor in net.state_dict().items()}  # not in a GPU's memory
        self.width, self.device, self.net = width, device, net.to(device)
        self.body: Body = compiled(net, dynamic=False) if compile else net


def batches(kind: str, K: int, shape: tuple[int, int], number: int, device: torch.device) -> list[Tensor]:
    """Tokens and those to predict, int64 (2, B, L), so many times. The last category is left to absorbing noise."""
    ranks = torch.arange(K - 1, device=device)
    frequencies = 1 / (ranks + 2.7) if kind == "zipf" else torch.ones(K - 1, device=device)
    size = 2 * shape[0] * shape[1]
    return [torch.multinomial(frequencies, size, replacement=True).reshape(2, *shape) for _ in range(number)]


def measure(
    network: Network,
    head: nn.Linear,
    loss: LossOfBatch,
    data: list[Tensor],
    steps: int,
    kernels: list[str] | None = None,
) -> dict[str, Any]:
    """Train on all batches, and time the last `steps`; `kernels` gets what a GPU spends the time of a step on."""
    device, on_gpu = network.device, network.device.type == "cuda"
    network.net.load_state_dict(network.start)
    weights = [*network.net.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=on_gpu)
    marks = Marks(device)

    def step(tokens: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            value = loss(network.body, head, tokens, targets)
        value.backward()
        optimizer.step()
        return value

    for number, (tokens, targets) in enumerate(data):
        if number == len(data) - steps:
            if on_gpu:
                torch.cuda.reset_peak_memory_stats(device)
            marks()
        value = step(tokens, targets)
        if number >= len(data) - steps:
            marks()
    found = {
        "ms": round(statistics.median(marks.ms()), 3),
        "peak_gib": round(torch.cuda.max_memory_allocated(device) / 2**30, 2) if on_gpu else None,
        "loss": value.item(),
    }
    if kernels is not None and on_gpu:
        kernels += kernel_times(lambda: step(*data[-1]))
    for weight in (network.net.embed.weight, *head.parameters()):
        if weight.grad is None or not weight.grad.isfinite().all() or not weight.grad.any():
            raise RuntimeError("the loss has no gradient, or one that is not finite")
    return found


def freed(network: Network) -> None:
    """Give back what a row leaves behind."""
    network.net.zero_grad()
    gc.collect()
    if network.device.type == "cuda":
        torch.cuda.empty_cache()


def usable(names: Sequence[str], device: torch.device, compile: bool) -> list[str]:
    """The losses that can be measured here; a line says why a library's cannot."""
    missing: dict[str, str] = {}
    for name in names:
        if name in LIBRARIES:
            try:
                library_loss(name)
                if device.type != "cuda":
                    missing[LIBRARIES[name].package] = "it needs a GPU"
            except (ImportError, AttributeError) as error:
                missing[LIBRARIES[name].package] = str(error)
    for package, why in missing.items():
        print(f"{package} is left out: {why}", flush=True)
    left = [name for name in names if name not in LIBRARIES or LIBRARIES[name].package not in missing]
    return [name for name in left if compile or name != "torch compiled"]


def version_of(name: str) -> str:
    """The version of a competitor; empty for the others, whose versions stand in other columns."""
    if name not in LIBRARIES:
        return ""
    package = LIBRARIES[name].package
    version = getattr(importlib.import_module(package), "__version__", None)
    try:
        return str(version or importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every loss with every number of categories, print and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES), metavar="LOSS")
    parser.add_argument("--classes", nargs="+", type=int, default=[50257, 50304], help="categories K")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=512, help="tokens of an object")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--tokens", choices=("uniform", "zipf"), default="uniform", help="frequencies of the tokens")
    parser.add_argument("--steps", type=int, default=20, help="steps to time")
    parser.add_argument("--warm_up", type=int, default=15, help="steps before them")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help="compile the body (default: on a GPU)")
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "language_model.csv")
    parser.add_argument("--profile", type=Path, help="write the time of each kernel here (GPU)")
    given = parser.parse_args(arguments)
    device, rows, profiles = torch.device(given.device), list[dict[str, Any]](), list[str]()
    compile = device.type == "cuda" if given.compile is None else given.compile
    about, names = machine(device), usable(given.losses, device, compile)
    torch.manual_seed(0)
    network = Network(max(given.classes), given.width, given.layers, device, compile)
    size = {"batch": given.batch, "length": given.length, "layers": given.layers, "width": given.width}
    for K in given.classes:
        for name in names:
            if name == "body" and given.classes[0] != K:
                continue  # the body is the same for every K
            torch.manual_seed(0)
            data = batches(given.tokens, K, (given.batch, given.length), given.warm_up + given.steps, device)
            head = output_layer(name, given.width, K, device)
            kernels: list[str] | None = None if given.profile is None else []
            try:
                found = measure(network, head, loss_named(name, K), data, given.steps, kernels)
            except Exception as error:
                if name not in LIBRARIES:
                    raise
                print(f"{name}, K = {K}, is left out: {type(error).__name__}: {error}", flush=True)
                continue
            finally:
                del head, data
                freed(network)
            classes = None if name == "body" else K
            found["loss"] = round(found["loss"] / (given.length if name in OURS else 1), 4)
            setting = {"tokens": given.tokens, "compiled": compile, "version": version_of(name)}
            rows.append({"loss_of": name, "classes": classes, **size, **setting, **found, **about})
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items() if key not in about), flush=True)
            write_rows(given.csv, rows)
            if kernels:
                write_profile(given.profile, profiles, f"{name}, K = {K}", kernels)


if __name__ == "__main__":
    main()
