"""usd3 sample: draw from a trained model: new objects, continuations, or fills of gaps."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from usd3._internal.checks import as_count, require
from usd3._internal.fields import require_fields
from usd3._internal.files import new_folder
from usd3._internal.processes import is_main
from usd3._internal.progress import counted
from usd3.cli.prompts import DEFAULT_NUM, Prompt, PromptOptions, read_prompt
from usd3.core.coefficients import Times
from usd3.core.samplers import Corrector, CorrectorMoves, GibbsCorrector, Step
from usd3.kinds.labels import LABEL
from usd3.kinds.registry import RenderOptions, require_own_options
from usd3.kinds.rendering import Drawn, Renderer, Request
from usd3.pipeline.again import TRIES, until_valid
from usd3.pipeline.grids import read_step_costs
from usd3.pipeline.labels import label_rows, split_where
from usd3.pipeline.packaged import results_folder
from usd3.pipeline.pipeline import Pipeline

__all__ = ["CorrectorOptions", "SampleOptions", "named_as_options", "sample"]

_MOST_FRAMES = 60
_OF_MOVES = ("step_size", "kind", "count", "share", "informed")  # options that need moves


@dataclass
class CorrectorOptions:
    """Corrector moves between the steps.

    Args:
        num_steps: moves after a step; 0: no corrector.
        step_size: length of a move, or "auto", which is 0.001. A move is shortened if an element would jump with a
            probability above 0.8.
        last: correct only after this many last steps; null: after all steps.
        kind: "mcmc", the paper's, or "gibbs": a move draws some elements anew from their distribution given the others.
        count: elements of a Gibbs move.
        share: the share of the elements of a Gibbs move, in place of `count`; null: `count`.
        informed: a Gibbs move takes the unmasked elements that are least likely where they are, for hollow networks;
            false: random ones.
    """

    num_steps: int = 0
    step_size: float | Literal["auto"] = 1e-3
    last: int | None = 20
    kind: Literal["mcmc", "gibbs"] = "mcmc"
    count: int = 1
    share: float | None = None
    informed: bool = False

    def __post_init__(self) -> None:
        require_fields(self, "corrector")
        others = ("count", "share", "informed") if self.kind == "mcmc" else ("step_size",)
        for name in others:
            value, usual = getattr(self, name), getattr(CorrectorOptions, name)
            require(value == usual, f"corrector.{name}", value, f"{usual}, its default, for corrector.kind {self.kind}")
        changed = [name for name in _OF_MOVES if getattr(self, name) != getattr(CorrectorOptions, name)]
        expected = "at least 1 with other options of the corrector"
        require(self.num_steps != 0 or not changed, "corrector.num_steps", 0, expected)

    def build(self) -> CorrectorMoves | None:
        """The corrector; None if `num_steps` is 0."""
        if not self.num_steps:
            return None
        if self.kind == "gibbs":
            return GibbsCorrector(self.num_steps, self.last, count=self.count, share=self.share, informed=self.informed)
        return Corrector(self.num_steps, self.step_size, self.last)


@dataclass
class SampleOptions(RenderOptions, PromptOptions):
    """Draw from a trained model.

    Args:
        model: folder of a run or of a saved model, or the name of a packaged one.
        steps: sampling steps; null: 100, or all of a model with fewer in discrete time.
        out: a folder for all results, or one file, .npz, .png, .gif or one of the kind, such as .mid or .txt; null: a
            new folder in that of the model, or below runs/models if the model is packaged or exported. For images the
            folder gets samples.npz (tokens), samples.png (up to 100 images), images/ (a file for each, if there are at
            most 100; usd3 decode writes any number) and, with a prompt, inpainting.png.
        corrector: moves between the steps.
        sampler: one of the method's, `usd3 info` lists them; null: its own. Some have options:
            "revision:schedule=rescale,eta=0.1".
        grid: the times of the steps: "even", "best" (`usd3 grid MODEL` finds it first), or a step_costs.json file.
        temperature: divide the logits by this; below 1, samples are closer to what the model finds likely.
        top_k: draw each element only from its k likeliest categories; null: from all.
        top_p: draw each element only from its fewest likeliest categories with this total probability.
        guidance: how closely to follow the label, the prompt's given elements, or the single values of `where`: 1 as
            the model does, above 1 closer. Any number but 0 and 1 doubles the work.
        where: draw under a condition. A label of the data: "label=cat" draws objects of this class. For kinds whose
            elements have names: "sex=Female,age=30..40" draws from the rows of a table with these values. "a|b" allows
            several values, "30.." has no upper end, "name!=value" excludes a value, and "name=" means a missing one;
            quotes protect commas inside a value.
        tries: an object that breaks the rules of its kind, such as a Sudoku board, is drawn again, at most so many
            times in all; 1: never again.
        animate: also write denoising.gif, the way from noise to the samples.
        seed: seed of all draws.
        batch_size: objects at once; null: chosen by memory.
        device: "cpu" or "cuda"; null: a GPU if there is one.
        compile: compile the network, which takes up to a minute at the start; pays for thousands of objects on a GPU.
        trust_code: import a kind, network or method of the model that is not ours. This runs its code.
    """

    model: str = ""
    steps: int | None = None
    out: str | None = None
    corrector: CorrectorOptions = field(default_factory=CorrectorOptions)
    sampler: str | None = None
    grid: str = "even"
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    guidance: float = 1.0
    where: str | None = None
    tries: int = TRIES
    animate: bool = False
    seed: int = 0
    batch_size: int | None = None
    device: str | None = None
    compile: bool = False
    trust_code: bool = False


def sample(options: SampleOptions) -> None:
    """Draw from a model and write the results."""
    pipeline = Pipeline.from_pretrained(
        options.model, trust_code=options.trust_code, device=options.device, compile=options.compile
    )
    single = Path(options.out or "").suffix in pipeline.kind.single_object_suffixes
    num = 1 if single and options.num is None else options.num
    if num is not None:
        as_count(num, "num", 1)
    as_count(options.tries, "tries", 1)
    require_own_options(pipeline.kind, options)
    if options.out is not None and is_main():
        pipeline.kind.require_writable(Path(options.out), num or DEFAULT_NUM)
    renderer = _renderer(options, pipeline)
    prompt = read_prompt(options, pipeline, num, renderer)
    x, frames = _draw(options, pipeline, prompt, num or DEFAULT_NUM, renderer.num_animated)
    if is_main():
        out = new_folder(results_folder(options.model), "samples") if options.out is None else Path(options.out)
        drawn = _drawn(x, prompt, frames, pipeline, options)
        _write_arrays(out, x, prompt, pipeline, options)
        try:
            if out.suffix != ".npz":
                renderer.write(drawn, out)
        except KeyboardInterrupt:
            hint = "" if out.suffix else f"(the samples are in {out / 'samples.npz'})"
            raise KeyboardInterrupt(hint) from None
        if text := renderer.shown(drawn):
            print(f"{text}\n")
        print(f"{len(x)} {'sample' if len(x) == 1 else 'samples'} in {out}")


def _renderer(options: SampleOptions, pipeline: Pipeline) -> Renderer:
    """The renderer of the model's kind. It raises an error now if a file that it needs is missing."""
    request = Request(
        options=options,
        suffix=Path(options.out or "").suffix,
        prompt=options.prompt,
        first=options.first,
        data=pipeline.config.data,
        data_path=options.data_path,
        device=str(pipeline.device),
    )
    return pipeline.kind.renderer(request)


def _draw(
    options: SampleOptions, pipeline: Pipeline, prompt: Prompt, num: int, num_animated: int
) -> tuple[Tensor, list[Tensor]]:
    """The samples (N, ...), and the frames of an animation, each with the first `num_animated` objects.

    There are no frames unless the options ask for an animation.
    """
    num = num if prompt.tokens is None else len(prompt.tokens)
    frames: list[Tensor] = []
    complete = not (options.animate or str(options.out).endswith(".gif"))
    calls = 1 if options.guidance in (0, 1) else 2  # rows of the network for each object
    batches = -(-num // (options.batch_size or max(1, pipeline.batch_size(calls * num) // calls)))
    with named_as_options():
        steps = _times(options, pipeline)
        moves = pipeline.num_moves(steps, options.sampler)
    with counted("sampling", moves * batches) as count:

        def watch(step: Step) -> None:
            count(step)
            nonlocal complete
            every, last = -(-step.num_steps // _MOST_FRAMES), step.index == step.num_steps - 1
            if not complete and (step.index % every == 0 or last):  # only in the first batch
                frames.append(step.x_s[:num_animated].cpu())
                complete = last

        how: dict[str, Any] = {
            "num_steps": steps,
            "corrector": options.corrector.build(),
            "sampler": options.sampler,
            "temperature": options.temperature,
            "top_k": options.top_k,
            "top_p": options.top_p,
            "guidance_scale": options.guidance,
            "batch_size": options.batch_size,
        }
        how["labels"], rest = _condition(options, pipeline)
        where = None if rest is None else pipeline.kind.weights(rest)
        if where is not None and prompt.tokens is not None and pipeline.kind.filling is not None:
            where = where * pipeline.kind.filling

        known = prompt.given
        if known is not None and prompt.tokens is not None:  # the same elements may be given of all objects
            known = known.expand(prompt.tokens.shape)

        def draw(rows: Tensor, seed: int) -> Tensor:
            tokens, given, pad = (None if part is None else part[rows] for part in (prompt.tokens, known, prompt.pad))
            settings = how | {"seed": seed, "callback": watch if seed == options.seed else None}
            if tokens is None:
                return pipeline.sample(len(rows), where=where, **settings)
            if where is None and pad is None and given is not None:
                return pipeline.fill(tokens, given, **settings)
            return pipeline.sample(tokens=tokens, given=given, pad=pad, where=where, **settings)

        with named_as_options():
            x = until_valid(draw, pipeline.kind.obeys, num, options.tries, options.seed)
    return x, frames


@contextmanager
def named_as_options() -> Iterator[None]:
    """Inside, an error names the option of the command line in place of the argument of `Pipeline.sample`."""
    try:
        yield
    except ValueError as error:
        message = re.sub(r"^guidance_scale\b", "guidance", str(error))
        raise ValueError(re.sub(r"^num_steps\b", "steps", message)) from None


def _times(options: SampleOptions, pipeline: Pipeline) -> int | Times | None:
    """The number of steps, or their times."""
    if options.grid == "even":
        return options.steps
    if options.grid != "best":
        file = Path(options.grid)
        require(file.is_file(), "grid", options.grid, "even, best, or a step_costs.json file of `usd3 grid`")
        pipeline.step_costs = read_step_costs(file, pipeline.config.steps)
    return pipeline.best_grid(options.steps)


def _write_arrays(out: Path, x: Tensor, prompt: Prompt, pipeline: Pipeline, options: SampleOptions) -> None:
    if out.suffix not in ("", ".npz"):
        return
    arrays: dict[str, Any] = {"tokens": x.numpy()}
    if prompt.given is not None:
        arrays["given"] = prompt.given.numpy()
    if prompt.pad is not None:
        arrays["pad"] = prompt.pad.numpy()
    names = pipeline.config.labels
    label = label_rows(_condition(options, pipeline)[0], names, len(x))
    if label is not None and list(names) == [LABEL]:  # data with labels, as `usd3 train` reads them
        arrays[f"tokens_{LABEL}"], arrays[f"{LABEL}_classes"] = label[:, 0].numpy(), np.array(names[LABEL])
    pipeline.kind.write_arrays(out, **arrays)


def _drawn(x: Tensor, prompt: Prompt, frames: list[Tensor], pipeline: Pipeline, options: SampleOptions) -> Drawn:
    """The samples for a renderer: in the categories of the data, with 0 instead of the pad value."""
    if prompt.pad is not None and pipeline.config.data.pad_value is not None:
        x = x.masked_fill(prompt.pad, 0)
    decoded = [_decoded_frame(frame, pipeline) for frame in frames]
    mask = pipeline.diffusion.noise.mask
    parts = (x, prompt.given, prompt.pad, prompt.tokens, prompt.names, decoded, mask)
    return Drawn(*parts, seed=options.seed, where=_condition(options, pipeline)[1])


def _condition(options: SampleOptions, pipeline: Pipeline) -> tuple[dict[str, Any] | None, str | None]:
    """The labels that `--where` names, and the rest of it, which is about elements."""
    if options.where is None:
        return None, None
    named, rest = split_where(options.where, pipeline.config.labels, pipeline.kind)
    return named, rest  # type: ignore[return-value]  # the rest of a text is a text


def _decoded_frame(frame: Tensor, pipeline: Pipeline) -> Tensor:
    """A frame in the categories of the data. The mask of absorbing noise stays category `num_classes`."""
    top = pipeline.config.num_classes
    return torch.where(frame < top, pipeline.decoded(frame.clamp(max=top - 1)), top)
