"""usd3 evaluate: measure a trained model on held-out data."""

import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from usd3._checks import require
from usd3._files import write_whole, written_whole
from usd3._processes import is_main
from usd3._version import __version__
from usd3.commands.sample import CorrectorOptions
from usd3.config import DataConfig
from usd3.data.arrays import read_arrays
from usd3.evaluation import EvaluationSettings, HeldOut, continue_held_out, evaluate
from usd3.pipeline import Pipeline
from usd3.progress import counted

__all__ = ["EvaluateOptions", "run_evaluation"]


@dataclass
class EvaluateOptions(EvaluationSettings):
    """Measure a trained model on held-out data: n-grams, diversity, likelihood.

    Where prefixes of held-out objects occur in the training data, also how much of these is repeated.

    Args:
        model: folder of a run or of a saved model.
        samples: an .npz with "tokens" (R, N, ...) to measure instead of new samples.
        save_samples: write the samples here, an .npz; null: do not keep them.
        data_path: where the data are, if not where they were in training.
        test_key: the held-out array of an .npz, if not that of training.
        corrector: MCMC corrector.
        out: a .json file for the results; null: a new one in the folder of the model.
        device: "cpu" or "cuda"; null: a GPU where there is one.
        trust_code: allow a network or method of your own to be imported.
    """

    model: str = ""
    samples: str | None = None
    save_samples: str | None = None
    data_path: str | None = None
    test_key: str | None = None
    corrector: CorrectorOptions = field(default_factory=CorrectorOptions)
    out: str | None = None
    device: str | None = None
    trust_code: bool = False


def run_evaluation(options: EvaluateOptions) -> None:
    """Measure, print the table and write it as JSON."""
    _require_free(options.out, "out", ".json")
    _require_free(options.save_samples, "save_samples", ".npz")
    pipeline = Pipeline.from_pretrained(options.model, trust_code=options.trust_code, device=options.device)
    dataset = _data(options, pipeline.config.data).load()
    settings = EvaluationSettings(**{name: getattr(options, name) for name in EvaluationSettings.__dataclass_fields__})
    held_out, seconds = HeldOut.of(pipeline, dataset, settings), None
    if options.samples is not None:
        generated = _samples(Path(options.samples), pipeline.config.num_classes)
    else:
        num = len(held_out.truth)
        batches = -(-num // (options.batch_size or pipeline.batch_size(num)))
        began = time.monotonic()
        with counted("sampling", options.runs * pipeline.num_moves(options.steps, options.sampler) * batches) as count:
            generated = continue_held_out(pipeline, held_out, settings, options.corrector.build(), count)
        seconds = time.monotonic() - began
        if options.save_samples is not None and is_main():
            with written_whole(options.save_samples) as file:
                np.savez_compressed(file, tokens=generated.numpy())
    found = evaluate(pipeline, dataset, held_out, settings, generated)
    if is_main():
        print(f"{found.objects} held-out objects, first {held_out.prefix} elements given", end="")
        print(f"; {found.skipped} left out, as they end too soon after that" if found.skipped else "")
        print(found.as_text())
        about: dict[str, Any] = {
            "model": options.model,
            "data": dataset.name,
            "torch": torch.__version__,
            "usd3": __version__,
        }
        about |= {"trained": _trained(pipeline), "sampling_seconds": seconds}
        out = Path(options.out) if options.out is not None else _new_file(Path(options.model))
        write_whole(out, json.dumps(about | found.as_dict(), indent=2, allow_nan=False) + "\n")
        print(f"\nwritten to {out}")


def _trained(pipeline: Pipeline) -> dict[str, float | None]:
    """How large the network is and how long it was trained."""
    size = sum(weight.numel() for weight in pipeline.model.parameters())
    return {"parameters": size, "steps": pipeline.config.steps, "minutes": pipeline.config.minutes}


def _data(options: EvaluateOptions, data: DataConfig) -> DataConfig:
    """The data of training, elsewhere or with another held-out array where the options say so."""
    data = replace(data, path=options.data_path or data.path)
    if options.test_key is not None:
        require(data.source == "array", "test_key", options.test_key, "null, as the data are no .npz file")
        stored = read_arrays(Path(str(data.path)))
        names = sorted(stored) if isinstance(stored, dict) else []
        require(options.test_key in names, "test_key", options.test_key, f"an array of {data.path}: {', '.join(names)}")
        data = replace(data, test_key=options.test_key)
    return data


def _samples(path: Path, num_classes: int) -> torch.Tensor:
    stored = read_arrays(path)
    if not isinstance(stored, dict) or "tokens" not in stored:
        raise ValueError(f'samples = {path}: expected an .npz with "tokens"')
    tokens = stored["tokens"]
    fits = tokens.dtype.kind in "iu" and tokens.ndim >= 3
    require(fits, "samples", f"{tokens.dtype} {tokens.shape}", "integers (runs, objects, ...)")
    known = tokens.min() >= 0 and tokens.max() < num_classes
    require(known, "samples", f"{tokens.min()}..{tokens.max()}", f"categories 0..{num_classes - 1}")
    return torch.as_tensor(tokens.astype(np.int64))


def _require_free(name: str | None, option: str, suffix: str) -> None:
    if name is not None:
        free = Path(name).suffix == suffix and not Path(name).exists()
        require(free, option, name, f"a {suffix} file that does not exist")


def _new_file(folder: Path) -> Path:
    """evaluation.json, or evaluation-2.json, ...: the first that does not exist."""
    number = 1
    while (out := folder / f"evaluation{'' if number == 1 else f'-{number}'}.json").exists():
        number += 1
    return out
