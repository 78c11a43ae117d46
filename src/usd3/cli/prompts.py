"""The prompts of `usd3 sample`: objects to continue or to fill, from the data, arrays, MIDI files or images."""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from usd3._internal.checks import require
from usd3.core.given import named_elements, prefix_given
from usd3.core.model import ignores_time
from usd3.kinds.dataset import Rows, Sequences
from usd3.kinds.numpy_files import read_arrays
from usd3.kinds.options import naming_data_path
from usd3.kinds.rendering import Renderer
from usd3.pipeline.pipeline import Pipeline

__all__ = ["DEFAULT_NUM", "Prompt", "PromptOptions", "read_prompt"]

DEFAULT_NUM = 4
"""Number of samples, and of rows of a prompt, unless the user says how many."""

_SOME_LEFT = "fewer than all elements, so that some are drawn"


@dataclass
class PromptOptions:
    """Which rows of which file to continue or to fill, and which of their elements are given.

    Args:
        num: number of objects, or the largest number of rows of a prompt. null: 4, or 1 if `out` is one MIDI file; all
            of a prompt of tables, sequences or boards.
        prompt: continue or fill these: "test" for held-out objects of the data the model was trained on, an .npy or
            .npz file (the array "tokens", the one with the name of the held-out data, or the only one), or a file of
            the model's kind: a table whose empty cells are drawn, a text with gaps of `_`, a FASTA file with gaps of
            `-` or `N`, boards with holes, a MIDI file, for chorales also MusicXML, or an image, .png, .jpg or .webp, of
            which the middle square is used. Texts, sequences and boards may also be typed: "It was the ____ of times".
            null: draw new objects.
        first: index of the first row of the prompt to use.
        prefix: number of elements at the start of the prompt that are given; null: as in training. Images need it,
            `fill` or `given`.
        fill: START:STOP, the elements of the prompt to fill, instead of `prefix`; all others are given. For objects of
            several dimensions also a box, one START:STOP for each: 2:6,0:4 fills rows 2..5 of columns 0..3, :,0:1 all
            of column 0. Several gaps are separated by semicolons, in quotes for the shell: "0:20;26:80".
        given: the elements of the prompt that stay, written like `fill`; all others are drawn. Instead of both.
        data_path: where the data are, for the prompt "test" and to recognise the training images; null: where they
            were in training.
    """

    num: int | None = None
    prompt: str | None = None
    first: int = 0
    prefix: int | None = None
    fill: str | None = None
    given: str | None = None
    data_path: str | None = None


@dataclass(frozen=True)
class Prompt:
    """A prompt for each object, or nothing at all.

    Args:
        tokens: (N, ...) in the categories of the data; None: there is no prompt.
        pad: (N, ...) True where an element is padding.
        given: (...) or (N, ...) True where an element is given.
        names: where each row comes from.
    """

    tokens: Tensor | None = None
    pad: Tensor | None = None
    given: Tensor | None = None
    names: list[str] | None = None


def read_prompt(options: PromptOptions, pipeline: Pipeline, num: int | None, renderer: Renderer) -> Prompt:
    """The prompt that the options name, at most `num` rows, in the shape of the model's objects.

    Without `num`: all rows, or the first few if the kind does not fill whole prompts.
    """
    shape, kind = tuple(pipeline.config.shape), pipeline.kind
    if options.prompt is None:
        unset = all(value is None for value in (options.fill, options.given, options.prefix)) and not options.first
        which = "`prefix`, `fill`, `given` or `first` is set"
        require(unset, "prompt", None, f"--prompt, what to continue or to fill, as {which}")
        return Prompt()
    options_say_given = any(value is not None for value in (options.fill, options.given, options.prefix))
    given = _given(options, pipeline) if options_say_given or not renderer.has_holes else None
    absorbing = pipeline.diffusion.noise.is_absorbing
    if pipeline.config.given == "none" and not (
        absorbing and ignores_time(pipeline.model)
    ):  # else it saw any part of an object clean
        warnings.warn(
            "the model was trained with training.given none: it never saw elements that are given", stacklevel=2
        )
    objects, given_in_file = _read(options, pipeline, renderer)
    if given is None:
        given = _given(options, pipeline) if given_in_file is None else given_in_file
    elif given_in_file is not None:  # a hole is drawn whatever the options say
        given = given & given_in_file
    count = len(objects)
    require(0 <= options.first < count, "first", options.first, f"a row, 0..{count - 1}")
    num = num or (count if kind.draws_all_prompts else DEFAULT_NUM)
    chosen = slice(options.first, options.first + num)
    rows, pad = objects.take(torch.arange(count)[chosen])
    rows, names = rows.long(), list(objects.names[chosen]) or None
    given = given[chosen] if given.dim() == rows.dim() else given  # a mask for each row, or one for all
    if count == 1 and num > 1:  # several answers to one prompt
        rows, names = rows.expand(num, *rows.shape[1:]), None
        pad = None if pad is None else pad.expand(num, *pad.shape[1:])
    if rows.shape[1:] != shape:  # longer or shorter than the model's objects: what is not given is drawn
        fits = kind.is_sequence and rows.dim() == len(shape) + 1 and rows.shape[2:] == shape[1:]
        require(fits, "prompt", tuple(rows.shape), f"objects of shape {shape}")
        needed = int(given.nonzero()[:, -len(shape)].max()) + 1 if given.any() else 0
        long_enough = rows.shape[1] >= needed
        require(long_enough, "prompt", f"of length {rows.shape[1]}", f"at least the {needed} elements that are given")
        kept = rows[:, : shape[0]]
        rows, pad = kept.new_zeros(len(kept), *shape), None
        rows[:, : kept.shape[1]] = kept
    return Prompt(rows, pad, given, names)


def _given(options: PromptOptions, pipeline: Pipeline) -> Tensor:
    """(...) True where an element of a prompt is given, by the options."""
    shape = torch.Size(pipeline.config.shape)
    length = shape.numel()
    if options.fill is None and options.given is None:
        chosen = options.prefix is not None or pipeline.kind.is_sequence
        middle = ",".join(f"{side // 4}:{side // 4 + max(1, side // 2)}" for side in shape)
        others = f"or `prefix` or `given`, as the model is about {pipeline.kind.plural}"
        require(chosen, "fill", None, f"the tokens to fill, as in {middle}, {others}")
        prefix = pipeline.config.prefix if options.prefix is None else options.prefix
        given = prefix_given(length, prefix)
        require(prefix < length, "prefix", prefix, _SOME_LEFT)
        return given.reshape(shape)
    name = "fill" if options.given is None else "given"
    for other in ("prefix", "fill", "given"):
        unset = other == name or getattr(options, other) is None
        require(unset, other, getattr(options, other), f"null where `{name}` is set")
    named = named_elements(shape, str(getattr(options, name)), name)
    given = named if name == "given" else ~named
    require(not bool(given.all()), name, getattr(options, name), _SOME_LEFT)
    return given


def _read(options: PromptOptions, pipeline: Pipeline, renderer: Renderer) -> tuple[Rows, Tensor | None]:
    """The rows of a prompt in the categories of the data, and a mask of given elements if the file has holes."""
    prompt, kind = str(options.prompt), pipeline.kind
    path = Path(prompt)
    if prompt == "test":
        with naming_data_path():
            dataset = pipeline.config.data.at(options.data_path).load(kind)
        kind.require_same(dataset.kind.as_dict(), "prompt")
        test = dataset.test
        return test if dataset.decode is None else test.renamed(dataset.decode.cpu()), None
    endings = (".npy", ".npz", *renderer.prompts)
    expected = f"{', '.join(endings[:-1])} or {endings[-1]}, as the model is about {kind.plural}"
    if not _is_file(path):
        if renderer.reads_text and path.suffix.lower() not in endings:
            return renderer.text_prompt(prompt)
        raise FileNotFoundError(f'prompt = {prompt}: no such file; expected "test" or a file that ends with {expected}')
    if path.suffix.lower() in renderer.prompts:
        return renderer.prompt(path)
    require(path.suffix.lower() in endings, "prompt", prompt, f"a file that ends with {expected}")
    return _read_arrays(path, pipeline), None


def _is_file(path: Path) -> bool:
    """Whether there is such a file; a long text is no name of one."""
    try:
        return path.is_file()
    except OSError:
        return False


def _read_arrays(path: Path, pipeline: Pipeline) -> Sequences:
    """The rows in an .npy file, or in one array of an .npz file."""
    stored = read_arrays(path)
    arrays = dict(stored) if isinstance(stored, dict) else {"tokens": stored}
    arrays.pop("about", None)  # it is about the tokens, and has none
    data = pipeline.config.data
    name = next((key for key in ("tokens", data.test_key) if key in arrays or len(arrays) == 1), "tokens")
    tokens = next(iter(arrays.values())) if len(arrays) == 1 else arrays.get(name)
    if tokens is None:
        raise ValueError(
            f"prompt = {path}: expected an array tokens or {data.test_key}, but it has {', '.join(arrays)}"
        )
    tokens = tokens[None] if tokens.ndim == len(pipeline.config.shape) else tokens
    fits = tokens.dtype.kind in "iu" and tokens.ndim >= 2 and tokens.size > 0
    require(fits, "prompt", f"{tokens.dtype} {tokens.shape}", "integers of shape (N, ...)")
    pad = arrays.get("pad") if name == "tokens" else None
    if pad is None and data.pad_value is not None:
        pad = tokens == data.pad_value
    if pad is not None:
        pad = pad[None] if pad.ndim == tokens.ndim - 1 else pad
        fits = pad.dtype == bool and pad.shape == tokens.shape
        require(fits, "pad of the prompt", f"{pad.dtype} {pad.shape}", f"booleans of shape {tokens.shape}")
        tokens = np.where(pad, 0, tokens)
    padding = None if pad is None or not pad.any() else torch.as_tensor(pad)
    return Sequences(torch.as_tensor(tokens.astype(np.int64)), padding)
