"""usd3 evaluate: measure a trained model on held-out data."""

import json
import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from usd3._internal.checks import require
from usd3._internal.files import is_free, write_whole, written_whole
from usd3._internal.processes import is_main
from usd3._internal.progress import counted
from usd3._version import __version__
from usd3.cli.sample import CorrectorOptions
from usd3.core.samplers import CorrectorMoves
from usd3.evaluation.evaluate import Continuations
from usd3.evaluation.free import FreeSets, require_free_settings
from usd3.evaluation.settings import EvaluationSettings
from usd3.evaluation.tasks import Draws, Task
from usd3.kinds.numpy_files import read_arrays
from usd3.kinds.options import DataConfig, naming_data_path
from usd3.kinds.registry import require_own_settings
from usd3.pipeline.packaged import results_folder
from usd3.pipeline.pipeline import Pipeline

__all__ = ["EvaluateOptions", "Subject", "as_json", "require_free", "run_evaluation"]

_NUMBERS = re.compile(r"\[\n\s*([^\[\]{}\"]+?)\n\s*\]")  # of JSON; a text in it has no line break


@dataclass
class EvaluateOptions(EvaluationSettings):
    """Measure a trained model on held-out data: n-grams, diversity, likelihood.

    If prefixes of held-out objects occur in the training data, it also measures how much of the training data the
    continuations repeat; see --ratios. A model of image tokens draws images, which are compared with the training
    images; see the options --images. A model of boards draws boards, and solves puzzles; see the options --boards.

    Args:
        model: folder of a run or of a saved model, or the name of a packaged one.
        samples: an .npz with "tokens" (R, N, ...) to measure instead of new samples, or of one run (N, ...), as
            `usd3 sample` writes them; with --ratios also with "ratio_tokens", and for --from_nothing with
            "free_tokens", as --save_samples writes them, also "filled_tokens" for the puzzles of boards.
        save_samples: write the samples here, an .npz; null: do not keep them.
        data_path: where the data are; null: where they were in training.
        test_key: the held-out array of an .npz; null: the one of training.
        corrector: moves between the steps.
        sweep: measure with several correctors, each a word NUM_STEPS,STEP_SIZE,LAST, or 0 for none, as in
            "0 2,0.001,10 2,0.001,20"; gibbs:NUM_STEPS,COUNT,LAST for Gibbs moves, COUNT a number of elements or a
            share, as in "gibbs:2,5%,all". A word may end with @STEPS, its own number of sampling steps, as in
            "0@128 2,0.1,32@64". "paper" for the nine of the paper; "equal-calls" for both correctors, 64 steps and 64
            moves, beside 64 and 128 steps; null: with the one of --corrector.
        out: a .json file for the results, or a folder for those of --sweep; null: a new one in the folder of the
            model, or below runs/models if the model is packaged or exported.
        device: "cpu" or "cuda"; null: a GPU if there is one.
        compile: compile the network, which takes up to a minute at the start; pays for thousands of objects on a GPU.
        trust_code: import a kind, network or method of the model that is not ours. This runs its code.
    """

    from_nothing: bool = True
    model: str = ""
    samples: str | None = None
    save_samples: str | None = None
    data_path: str | None = None
    test_key: str | None = None
    corrector: CorrectorOptions = field(default_factory=CorrectorOptions)
    sweep: str | None = None
    out: str | None = None
    device: str | None = None
    compile: bool = False
    trust_code: bool = False


def run_evaluation(options: EvaluateOptions) -> None:
    """Measure a model, write the results as JSON and print their table; with --sweep, for several correctors."""
    if options.sweep is not None:
        from usd3.cli.sweep import sweep  # it imports this module

        sweep(options)
        return
    require_free(options.out, "out", ".json")
    require_free(options.save_samples, "save_samples", ".npz")
    pipeline = Pipeline.from_pretrained(
        options.model, trust_code=options.trust_code, device=options.device, compile=options.compile
    )
    generated, seconds = _samples(options, pipeline), None
    subject = Subject.of(options, pipeline)
    if generated is None:
        generated, seconds = subject.drawn(options.corrector.build())
        if options.save_samples is not None and is_main():
            arrays: dict[str, Any] = {name: tokens.numpy() for name, tokens in generated.items()}
            with written_whole(options.save_samples) as file:
                np.savez_compressed(file, **arrays)
    try:
        evaluation = subject.task.measure(generated, subject.settings)
    except KeyboardInterrupt:
        kept = options.save_samples if options.samples is None else None
        raise KeyboardInterrupt(
            "" if kept is None else f"(the samples are in {kept}; --samples {kept} measures them)"
        ) from None
    if is_main():
        out = Path(options.out) if options.out is not None else _new_file(results_folder(options.model))
        folder = _free_folder(out.with_suffix(""))
        files = subject.task.report(generated, folder)
        report = f"; {', '.join(files)} in {folder}" if files else ""
        write_whole(out, as_json(subject.about | {"sampling_seconds": seconds} | evaluation.as_dict()))
        print(f"{evaluation.heading()}\n{evaluation.as_text()}\n\nwritten to {out}{report}")


@dataclass(frozen=True)
class Subject:
    """A trained model and its task.

    Args:
        pipeline: the model.
        task: what the model draws, and how that is measured.
        settings: what to measure.
        about: the model and the data, for the results.
    """

    pipeline: Pipeline
    task: Task
    settings: EvaluationSettings
    about: dict[str, Any]

    @classmethod
    def of(cls, options: EvaluateOptions, pipeline: Pipeline) -> "Subject":
        """The task for the options of a command: kinds with a judge are drawn from nothing, others are continued."""
        names = EvaluationSettings.__dataclass_fields__
        settings = EvaluationSettings(**{name: getattr(options, name) for name in names}).known_for(pipeline)
        require_own_settings(pipeline.kind, settings)
        if pipeline.kind.is_judged:
            require_free_settings(settings)  # before anything is read
            pipeline.kind.require_settings(settings, "")
        with naming_data_path():
            data = _data(options, pipeline.config.data)
            dataset = data.load(pipeline.kind)
        task: Task
        if pipeline.kind.is_judged:
            task = FreeSets.of(pipeline, dataset, settings)
        else:
            task = Continuations.of(pipeline, data, dataset, settings)
        about = {
            "model": options.model,
            "data": dataset.name,
            "torch": torch.__version__,
            "usd3": __version__,
            "trained": _trained(pipeline),
        }
        return cls(pipeline, task, settings, about)

    def with_steps(self, steps: int) -> "Subject":
        """The same with another number of sampling steps."""
        settings = replace(self.settings, steps=steps)
        task: Task = replace(self.task, settings=settings)  # type: ignore[type-var]  # every task is a dataclass
        return replace(self, task=task, settings=settings)

    def drawn(self, corrector: CorrectorMoves | None, title: str = "sampling") -> tuple[Draws, float]:
        """New objects (R, N, ...), and the seconds that this took."""
        settings, sizes = self.settings, self.task.sizes.values()
        batches = sum(-(-num // (settings.batch_size or self.pipeline.batch_size(num))) for num in sizes)
        moves = self.pipeline.num_moves(settings.steps, settings.sampler)
        began = time.monotonic()
        with counted(title, settings.runs * moves * batches) as count:
            generated = self.task.draw(corrector, count)
        return generated, time.monotonic() - began


def as_json(results: Any) -> str:
    """Results as the text of a JSON file, with each list of numbers in one line."""
    text = json.dumps(results, indent=2, allow_nan=False)
    return _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


def _trained(pipeline: Pipeline) -> dict[str, float | None]:
    """The number of parameters and the length of the training, for the results."""
    size = sum(weight.numel() for weight in pipeline.model.parameters())
    return {"parameters": size, "steps": pipeline.config.steps, "minutes": pipeline.config.minutes}


def _data(options: EvaluateOptions, data: DataConfig) -> DataConfig:
    """The data of training, at another path or with another held-out array if the options say so."""
    data = data.at(options.data_path)
    return data if options.test_key is None else data.with_test(options.test_key, "test_key")


def _samples(options: EvaluateOptions, pipeline: Pipeline) -> Draws | None:
    """The samples in the file that the option `samples` names; None: it names none."""
    if options.samples is None:
        return None
    path, names = Path(options.samples), ["tokens"] if options.ratios is None else ["tokens", "ratio_tokens"]
    stored = read_arrays(path)
    for name in names:
        if not isinstance(stored, dict) or name not in stored:
            raise ValueError(f'samples = {path}: expected an .npz with "{name}"')
    names += [name for name in ("free_tokens",) if options.from_nothing and name in stored]
    names += [name for name in ("filled_tokens",) if name in stored]
    return {name: _checked(stored[name], pipeline) for name in names}


def _checked(tokens: NDArray[Any], pipeline: Pipeline) -> torch.Tensor:
    config = pipeline.config
    tokens = tokens[None] if tokens.ndim == 1 + len(config.shape) else tokens
    fits = tokens.dtype.kind in "iu" and tokens.ndim == 2 + len(config.shape) and tokens.size > 0
    require(fits, "samples", f"{tokens.dtype} {tokens.shape}", "integers (runs, objects, ...) or (objects, ...)")
    real = tokens if config.data.pad_value is None else tokens[tokens != config.data.pad_value]
    valid = real.size > 0 and real.min() >= 0 and real.max() < config.num_classes
    require(valid, "samples", f"{tokens.min()}..{tokens.max()}", f"categories 0..{config.num_classes - 1}")
    return torch.as_tensor(tokens.astype(np.int64))


def require_free(name: str | None, option: str, suffix: str) -> None:
    """Raise an error if the file `name` exists, or does not end with `suffix`."""
    if name is not None:
        free = Path(name).suffix == suffix and not Path(name).exists()
        require(free, option, name, f"a {suffix} file that does not exist")


def _free_folder(folder: Path) -> Path:
    """The first of the folders NAME, NAME-2, ... that is new or empty; it is not created."""
    number, found = 1, folder
    while not is_free(found):
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    return found


def _new_file(folder: Path) -> Path:
    """The first of evaluation.json, evaluation-2.json, ... that does not exist in a folder."""
    number = 1
    while (out := folder / f"evaluation{'' if number == 1 else f'-{number}'}.json").exists():
        number += 1
    return out
