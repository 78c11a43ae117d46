"""usd3 sample: draw from a trained model, freely, as a continuation, or into a gap."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from usd3._checks import as_count, require
from usd3._files import written_whole
from usd3._processes import is_main
from usd3.conditioning import prefix_given, region_given
from usd3.data import Sequences, read_midi, write_midi
from usd3.data.arrays import read_arrays
from usd3.experiment import new_folder
from usd3.pictures import animate_denoising, piano_roll, token_grid
from usd3.pipeline import Pipeline
from usd3.progress import counted
from usd3.samplers import Corrector, Step

__all__ = ["CorrectorOptions", "SampleOptions", "sample"]

_MOST_STRIPS = 8  # rows of a picture
_MOST_FRAMES = 60
_MOST_ANIMATED = 4


@dataclass
class CorrectorOptions:
    """MCMC corrector moves between the steps.

    Args:
        num_steps: moves after a step; 0: no corrector.
        step_size: length of a move, or "auto".
        last: correct only after the last so many steps; null: after all.
    """

    num_steps: int = 0
    step_size: float | Literal["auto"] = 1e-3
    last: int | None = 20

    def build(self) -> Corrector | None:
        """The corrector, if any."""
        return Corrector(self.num_steps, self.step_size, self.last) if self.num_steps else None


@dataclass
class SampleOptions:
    """Draw from a trained model.

    Args:
        model: folder of a run or of a saved model.
        num: how many objects.
        steps: sampling steps.
        prompt: continue or fill these: "test" for held-out objects of the data the model was trained on, an .npy or
            .npz file (array "tokens", or the only one), or a MIDI file; null: draw freely.
        first: the first row of the prompt to use.
        prefix: elements at the start of the prompt that are given; null: as in training.
        fill: START:STOP, the elements of the prompt to fill; all others are given. Instead of `prefix`.
        out: a folder for all results, or one file, .npz, .mid, .png or .gif; null: a new folder in that of the model.
        corrector: MCMC corrector.
        sampler: "exact", or for comparison "euler", "tau_leaping" or "gillespie".
        temperature: divide the logits by this; below 1 keeps closer to what the model finds likely.
        animate: also write denoising.gif, the way from noise to the samples.
        tempo: beats a minute of the MIDI files.
        seed: seed of all draws.
        batch_size: objects at once; null: chosen by memory.
        device: "cpu" or "cuda"; null: a GPU where there is one.
        data_path: where the data of the prompt "test" are, if not where they were in training.
        trust_code: allow a network class of your own to be imported.
    """

    model: str
    num: int = 4
    steps: int = 100
    prompt: str | None = None
    first: int = 0
    prefix: int | None = None
    fill: str | None = None
    out: str | None = None
    corrector: CorrectorOptions = field(default_factory=CorrectorOptions)
    sampler: Literal["exact", "euler", "tau_leaping", "gillespie"] = "exact"
    temperature: float = 1.0
    animate: bool = False
    tempo: int = 100
    seed: int = 0
    batch_size: int | None = None
    device: str | None = None
    data_path: str | None = None
    trust_code: bool = False


def sample(options: SampleOptions) -> Path:
    """Draw and write the results; returns where they are."""
    pipeline = Pipeline.from_pretrained(options.model, trust_code=options.trust_code, device=options.device)
    as_count(options.num, "num", 1)
    out = _out(options, pipeline.config.music)
    prompt, pad, given, titles = _prompt(options, pipeline)
    num = options.num if prompt is None else len(prompt)
    frames: list[Tensor] = []
    whole = not (options.animate or out.suffix == ".gif")
    batches = -(-num // (options.batch_size or pipeline.batch_size(num)))
    with counted("sampling", options.steps * batches) as count:

        def watch(step: Step) -> None:
            count(step)
            nonlocal whole
            every, last = -(-step.num_steps // _MOST_FRAMES), step.index == step.num_steps - 1
            if not whole and (step.index % every == 0 or last):  # of the first batch
                frames.append(step.x_s[:_MOST_ANIMATED].cpu())
                whole = last

        x = pipeline.sample(
            num,
            options.steps,
            tokens=prompt,
            given=given,
            pad=pad,
            corrector=options.corrector.build(),
            sampler=options.sampler,
            temperature=options.temperature,
            seed=options.seed,
            batch_size=options.batch_size,
            callback=watch,
        )
    if is_main():
        _write(options, pipeline, out, x, given, pad, titles, frames)
        print(f"{len(x)} samples in {out}")
    return out


Prompt = tuple[Tensor | None, Tensor | None, Tensor | None, list[str] | None]


def _prompt(options: SampleOptions, pipeline: Pipeline) -> Prompt:
    """Tokens (N, ...), their padding, which elements are given (...), and the names of the rows."""
    shape = tuple(pipeline.config.shape)
    if options.prompt is None:
        unused = options.fill is None and options.prefix is None and not options.first
        require(unused, "prompt", None, "what to continue or to fill, as `prefix`, `fill` or `first` is set")
        return None, None, None, None
    found = _read(options, pipeline)
    require(0 <= options.first < len(found.tokens), "first", options.first, f"a row, 0..{len(found.tokens) - 1}")
    chosen = slice(options.first, options.first + options.num)
    rows, pad, names = found.tokens[chosen], found.pad, list(found.names[chosen]) or None
    given = _given(options, pipeline)
    if rows.shape[1:] != shape:  # longer or shorter than the model's objects: what is not given is drawn
        require(rows.dim() == 2 and len(shape) == 1, "prompt", tuple(rows.shape), f"objects of shape {shape}")
        known = int(given.nonzero().max()) + 1 if given.any() else 0
        long_enough = rows.shape[1] >= known
        require(long_enough, "prompt", f"of length {rows.shape[1]}", f"at least the {known} elements that are given")
        rows, pad = torch.nn.functional.pad(rows[:, : shape[0]], (0, max(0, shape[0] - rows.shape[1]))), None
    return rows, None if pad is None else pad[chosen], given.reshape(shape), names


def _given(options: SampleOptions, pipeline: Pipeline) -> Tensor:
    """Which elements of a prompt are given, flat."""
    length = torch.Size(pipeline.config.shape).numel()
    if options.fill is None:
        return prefix_given(length, pipeline.config.prefix if options.prefix is None else options.prefix)
    require(options.prefix is None, "prefix", options.prefix, "null where `fill` is given")
    ends = options.fill.split(":")
    require(len(ends) == 2 and all(e.isdecimal() for e in ends), "fill", options.fill, "START:STOP, as in 64:128")
    return region_given(length, int(ends[0]), int(ends[1]))


def _read(options: SampleOptions, pipeline: Pipeline) -> Sequences:
    """The rows of a prompt in the categories of the data."""
    prompt = str(options.prompt)
    path = Path(prompt)
    if prompt == "test":
        data = pipeline.config.data
        dataset = replace(data, path=options.data_path or data.path).load()
        return replace(dataset.test, tokens=dataset.decoded(dataset.test.tokens.long()))
    if not path.is_file():
        raise FileNotFoundError(f'prompt = {prompt}: expected "test" or an .npy, .npz or MIDI file')
    if path.suffix.lower() in (".mid", ".midi"):
        require(pipeline.config.music, "prompt", prompt, "an .npy or .npz file, as the model is not about music")
        melodies = read_midi(path)
        require(len(melodies) > 0, "prompt", prompt, "a MIDI file with notes")
        shortest = min(map(len, melodies))
        return Sequences(torch.stack([torch.as_tensor(m[:shortest]).long() for m in melodies]))
    stored = read_arrays(path)
    arrays = stored if isinstance(stored, dict) else {"tokens": stored}
    if len(arrays) == 1:
        arrays = {"tokens": next(iter(arrays.values()))}
    require("tokens" in arrays, "prompt", prompt, f'an array named "tokens", but it has {", ".join(arrays) or "none"}')
    tokens, pad = arrays["tokens"], arrays.get("pad")
    fits = tokens.dtype.kind in "iu" and tokens.ndim >= 2 and tokens.size > 0
    require(fits, "prompt", f"{tokens.dtype} {tokens.shape}", "integers of shape (N, ...)")
    return Sequences(torch.as_tensor(tokens.astype(np.int64)), None if pad is None else torch.as_tensor(pad))


def _out(options: SampleOptions, music: bool) -> Path:
    """A folder that is new, or a file that does not exist."""
    if options.out is None:
        return new_folder(Path(options.model), "samples") if is_main() else Path(options.model)
    out = Path(options.out)
    free = not out.exists() or (out.is_dir() and not any(out.iterdir()))
    require(free or not is_main(), "out", out, "a name that is not taken")
    kinds = (".npz", ".mid", ".png", ".gif") if music else (".npz", ".png", ".gif")
    require(out.suffix in ("", *kinds), "out", out, f"a folder or a file that ends with {', '.join(kinds)}")
    require(out.suffix != ".mid" or options.num == 1, "num", options.num, "1 where `out` is one MIDI file")
    return out


def _write(
    options: SampleOptions,
    pipeline: Pipeline,
    out: Path,
    x: Tensor,
    given: Tensor | None,
    pad: Tensor | None,
    titles: list[str] | None,
    frames: list[Tensor],
) -> None:
    config = pipeline.config
    kind, is_file = out.suffix, bool(out.suffix)
    flat, lengths = x.flatten(1), _lengths(x, pad)
    given = None if given is None else given.flatten()
    first = slice(0, _MOST_STRIPS)
    shown_pad = None if pad is None else pad.flatten(1)[first]
    if kind in ("", ".npz"):
        arrays: dict[str, Any] = {"tokens": x.numpy()}
        if given is not None:
            arrays["given"] = given.reshape(x.shape[1:]).numpy()
        if pad is not None:
            arrays["pad"] = pad.numpy()
        with written_whole(out if is_file else out / "samples.npz") as file:
            np.savez_compressed(file, **arrays)
    if config.music and kind in ("", ".mid"):
        for i, (row, length) in enumerate(zip(flat, lengths)):
            write_midi(row[:length].numpy(), out if is_file else out / f"sample-{i + 1:02d}.mid", tempo=options.tempo)
    if kind in ("", ".png"):
        picture = out if is_file else out / "samples.png"
        titles = None if titles is None else titles[first]
        if config.music:
            piano_roll(flat[first], picture, titles, given, shown_pad)
        else:
            token_grid(flat[first], picture, config.num_classes, given, titles)
    if frames and kind in ("", ".gif"):
        mask = pipeline.diffusion.noise.mask
        classes = None if config.music else pipeline.diffusion.noise.num_classes
        path = [_decoded_frame(frame.flatten(1), pipeline) for frame in frames]
        picture = out if is_file else out / "denoising.gif"
        animate_denoising(path, picture, classes, given=given, mask=None if config.music else mask)


def _lengths(x: Tensor, pad: Tensor | None) -> list[int]:
    """Elements of each object before its padding."""
    size = x[0].numel()
    return [size] * len(x) if pad is None else (~pad).flatten(1).sum(1).tolist()


def _decoded_frame(frame: Tensor, pipeline: Pipeline) -> Tensor:
    """Categories of the data; the mask of absorbing noise stays the last category."""
    top = pipeline.config.num_classes
    return torch.where(frame < top, pipeline.decoded(frame.clamp(max=top - 1)), top)
