"""usd3 sample: draw from a trained model, freely, as a continuation, or into a gap."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from usd3._internal.checks import as_count, require
from usd3._internal.fields import require_fields
from usd3._internal.files import is_free, new_folder, written_whole
from usd3._internal.processes import is_main
from usd3._internal.progress import counted
from usd3.cli.image_output import ImageOptions, ImageOutput
from usd3.cli.prompts import Prompt, read_prompt
from usd3.core.samplers import Corrector, Step
from usd3.kinds.image.tokens import about_tokens
from usd3.kinds.melody.midi import require_symusic, write_midi
from usd3.pictures import animate_denoising, animate_roll, piano_roll, token_grid, token_maps
from usd3.pipeline.packaged import results_folder
from usd3.pipeline.pipeline import Pipeline

__all__ = ["CorrectorOptions", "SampleOptions", "sample"]

_USUAL = 4  # samples, where nothing says how many
_MOST_STRIPS = 8  # rows of a picture
_LONGEST = 8  # sides of a map; what is longer is drawn as a row
_MOST_FRAMES = 60
_MOST_ANIMATED = 4
_MOST_ANIMATED_IMAGES = 16


@dataclass
class CorrectorOptions:
    """MCMC corrector moves between the steps.

    Args:
        num_steps: moves after a step; 0: no corrector.
        step_size: length of a move, or "auto", which is 0.001; moves are shortened where an element would jump with a
            probability above 0.8.
        last: correct only after the last so many steps; null: after all.
    """

    num_steps: int = 0
    step_size: float | Literal["auto"] = 1e-3
    last: int | None = 20

    def __post_init__(self) -> None:
        require_fields(self, "corrector")

    def build(self) -> Corrector | None:
        """The corrector, if any."""
        return Corrector(self.num_steps, self.step_size, self.last) if self.num_steps else None


@dataclass
class SampleOptions(ImageOptions):
    """Draw from a trained model.

    Args:
        model: folder of a run or of a saved model, or the name of a packaged one.
        steps: sampling steps; null: 100, or all of a model with fewer in discrete time.
        out: a folder for all results, or one file, .npz, .mid, .png or .gif; null: a new folder in that of the model,
            of a packaged or exported one below runs/models. Of images it gets samples.npz (tokens), samples.png (up to
            100 of them), images/ (each in a file, where they are at most 100; usd3 decode writes any number) and, for a
            prompt, inpainting.png.
        corrector: MCMC corrector.
        sampler: one of the method's; null: its own. USD3 has "exact", and for comparison "euler", "tau_leaping" and
            "gillespie".
        temperature: divide the logits by this; below 1 keeps closer to what the model finds likely.
        animate: also write denoising.gif, the way from noise to the samples.
        tempo: beats a minute of the MIDI files.
        seed: seed of all draws.
        batch_size: objects at once; null: chosen by memory.
        device: "cpu" or "cuda"; null: a GPU where there is one.
        compile: compile the network, which takes up to a minute at the start; pays for thousands of objects on a GPU.
        trust_code: allow a network or method of the model that is not ours to be imported, which runs its code.
    """

    model: str = ""
    steps: int | None = None
    out: str | None = None
    corrector: CorrectorOptions = field(default_factory=CorrectorOptions)
    sampler: str | None = None
    temperature: float = 1.0
    animate: bool = False
    tempo: int = 100
    seed: int = 0
    batch_size: int | None = None
    device: str | None = None
    compile: bool = False
    trust_code: bool = False


def sample(options: SampleOptions) -> None:
    """Draw and write the results."""
    pipeline = Pipeline.from_pretrained(
        options.model, trust_code=options.trust_code, device=options.device, compile=options.compile
    )
    wanted = (1 if str(options.out).endswith(".mid") else _USUAL) if options.num is None else options.num
    as_count(wanted, "num", 1)
    _require_free(options.out, wanted, pipeline.config.music)
    images = _image_output(options, pipeline)
    prompt = read_prompt(options, pipeline, wanted, None if images is None else images.tokens_of)
    num = wanted if prompt.tokens is None else len(prompt.tokens)
    frames: list[Tensor] = []
    animated = _MOST_ANIMATED if images is None else _MOST_ANIMATED_IMAGES
    whole = not (options.animate or str(options.out).endswith(".gif"))
    batches = -(-num // (options.batch_size or pipeline.batch_size(num)))
    with counted("sampling", pipeline.num_moves(options.steps, options.sampler) * batches) as count:

        def watch(step: Step) -> None:
            count(step)
            nonlocal whole
            every, last = -(-step.num_steps // _MOST_FRAMES), step.index == step.num_steps - 1
            if not whole and (step.index % every == 0 or last):  # of the first batch
                frames.append(step.x_s[:animated].cpu())
                whole = last

        x = pipeline.sample(
            num,
            options.steps,
            tokens=prompt.tokens,
            given=prompt.given,
            pad=prompt.pad,
            corrector=options.corrector.build(),
            sampler=options.sampler,
            temperature=options.temperature,
            seed=options.seed,
            batch_size=options.batch_size,
            callback=watch,
        )
    if is_main():
        out = new_folder(results_folder(options.model), "samples") if options.out is None else Path(options.out)
        _write_arrays(out, x, prompt, pipeline)
        try:
            if images is not None:
                images.write(out, x, prompt, [_decoded_frame(frame, pipeline) for frame in frames])
            elif pipeline.config.source is None:
                _write(options, pipeline, out, x, prompt, frames)
        except KeyboardInterrupt:
            kept = "" if out.suffix else f"(the samples are in {out / 'samples.npz'})"
            raise KeyboardInterrupt(kept) from None
        print(f"{len(x)} {'sample' if len(x) == 1 else 'samples'} in {out}")


def _require_free(name: str | None, num: int, music: bool) -> None:
    """Results go to a folder that is new, or to a file that does not exist; melodies need what writes them."""
    if music and Path(name or "").suffix in ("", ".mid"):
        require_symusic("a folder or a .mid of melodies")
    if name is None:
        return
    out = Path(name)
    require(
        is_free(out) or not is_main(), "out", out, "a name that is not taken: choose another, or remove what is there"
    )
    kinds = (".npz", ".mid", ".png", ".gif") if music else (".npz", ".png", ".gif")
    require(out.suffix in ("", *kinds), "out", out, f"a folder or a file that ends with {', '.join(kinds)}")
    require(out.suffix != ".mid" or num == 1, "num", num, "1 where `out` is one MIDI file")


def _image_output(options: SampleOptions, pipeline: Pipeline) -> ImageOutput | None:
    """How images are written; None where the model is not about images, or nothing but tokens is asked for."""
    if pipeline.config.source is None:
        options.require_unused()
        return None
    return ImageOutput(options, pipeline) if options.needs_vqgan(Path(options.out or "").suffix) else None


def _write_arrays(out: Path, x: Tensor, prompt: Prompt, pipeline: Pipeline) -> None:
    if out.suffix not in ("", ".npz"):
        return
    arrays: dict[str, Any] = {"tokens": x.numpy()}
    if prompt.given is not None:
        arrays["given"] = prompt.given.reshape(x.shape[1:]).numpy()
    if prompt.pad is not None:
        arrays["pad"] = prompt.pad.numpy()
    if pipeline.config.source is not None:
        arrays["about"] = about_tokens(pipeline.config.num_classes, pipeline.config.source)
    with written_whole(out if out.suffix else out / "samples.npz") as file:
        np.savez_compressed(file, **arrays)


def _write(
    options: SampleOptions,
    pipeline: Pipeline,
    out: Path,
    x: Tensor,
    prompt: Prompt,
    frames: list[Tensor],
) -> None:
    config, pad = pipeline.config, prompt.pad
    if pad is not None and config.data.pad_value is not None:
        x = x.masked_fill(pad, 0)  # the pad value is no category
    kind, is_file = out.suffix, bool(out.suffix)
    flat, lengths = x.flatten(1), _lengths(x, pad)
    given = None if prompt.given is None else prompt.given.flatten()
    first = slice(0, _MOST_STRIPS)
    shown_pad = None if pad is None else pad.flatten(1)[first]
    if config.music and kind in ("", ".mid"):
        for i, (row, length) in enumerate(zip(flat, lengths)):
            write_midi(row[:length].numpy(), out if is_file else out / f"sample-{i + 1:02d}.mid", tempo=options.tempo)
    if kind in ("", ".png"):
        picture = out if is_file else out / "samples.png"
        titles = None if prompt.names is None else prompt.names[first]
        if config.music:
            piano_roll(flat[first], picture, titles, given, shown_pad)
        elif len(config.shape) == 2 and max(config.shape) <= _LONGEST * min(config.shape):
            masks = [None if mask is None else mask.reshape(-1, *config.shape) for mask in (given, shown_pad)]
            token_maps(x[first], picture, config.num_classes, masks[0], titles, masks[1])
        else:
            token_grid(flat[first], picture, config.num_classes, given, titles, pad=shown_pad)
    if frames and kind in ("", ".gif"):
        noise = pipeline.diffusion.noise
        path = [_decoded_frame(frame.flatten(1), pipeline) for frame in frames]
        picture = out if is_file else out / "denoising.gif"
        if config.music:
            animate_roll(path, picture, given)
        else:
            animate_denoising(path, picture, noise.num_classes, given, noise.mask)


def _lengths(x: Tensor, pad: Tensor | None) -> list[int]:
    """Elements of each object before its padding."""
    size = x[0].numel()
    return [size] * len(x) if pad is None else (~pad).flatten(1).sum(1).tolist()


def _decoded_frame(frame: Tensor, pipeline: Pipeline) -> Tensor:
    """Categories of the data; the mask of absorbing noise stays the last category."""
    top = pipeline.config.num_classes
    return torch.where(frame < top, pipeline.decoded(frame.clamp(max=top - 1)), top)
