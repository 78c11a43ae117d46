"""usd3 evaluate: measure a trained model on held-out data."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from usd3._checks import require
from usd3._files import write_whole, written_whole
from usd3._processes import is_main
from usd3.commands.sample import CorrectorOptions
from usd3.evaluation import EvaluationSettings, continue_held_out, evaluate
from usd3.pipeline import Pipeline
from usd3.progress import counted

__all__ = ["EvaluateOptions", "run_evaluation"]


@dataclass
class EvaluateOptions(EvaluationSettings):
    """Measure a trained model on held-out data: n-grams, diversity, likelihood, repetition of the training data.

    Args:
        model: folder of a run or of a saved model.
        samples: an .npz with "tokens" (R, N, ...) to measure instead of new samples.
        save_samples: write the samples here, an .npz; null: do not keep them.
        data_path: where the data are, if not where they were in training.
        test_key: the held-out array of an .npz, if not that of training.
        corrector: MCMC corrector.
        out: a .json file for the results; null: a new one in the folder of the model.
        device: "cpu" or "cuda"; null: a GPU where there is one.
        trust_code: allow a network class of your own to be imported.
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
    pipeline = Pipeline.from_pretrained(options.model, trust_code=options.trust_code, device=options.device)
    data = pipeline.config.data
    data = replace(data, path=options.data_path or data.path, test_key=options.test_key or data.test_key)
    out = _result_file(options)
    taken = options.save_samples is not None and Path(options.save_samples).exists()
    require(not taken, "save_samples", options.save_samples, "a file that does not exist")
    dataset = data.load()
    num = min(options.limit or len(dataset.test), len(dataset.test))
    settings = EvaluationSettings(**{name: getattr(options, name) for name in EvaluationSettings.__dataclass_fields__})
    if options.samples is not None:
        generated = _load(Path(options.samples))
    else:
        batches = -(-num // (options.batch_size or pipeline.batch_size(num)))
        with counted("sampling", options.runs * options.steps * batches) as count:
            generated = continue_held_out(pipeline, dataset, settings, options.corrector.build(), count)
        if options.save_samples is not None and is_main():
            with written_whole(options.save_samples) as file:
                np.savez_compressed(file, tokens=generated.numpy())
    found = evaluate(pipeline, dataset, settings, generated)
    if is_main():
        print(f"{found.objects} held-out objects, first {found.settings['prefix']} elements given")
        print(found.as_text())
        versions = {"model": options.model, "data": data.path or data.source, "torch": torch.__version__}
        write_whole(out, json.dumps(versions | found.as_dict(), indent=2) + "\n")
        print(f"\nwritten to {out}")


def _load(path: Path) -> torch.Tensor:
    try:
        tokens = np.load(path, allow_pickle=False)["tokens"]
    except (ValueError, OSError, KeyError, IndexError) as error:
        raise ValueError(f'samples = {path}: expected an .npz with "tokens" ({error})') from None
    require(tokens.ndim >= 3, "samples", tokens.shape, "(runs, objects, ...)")
    return torch.as_tensor(tokens.astype(np.int64))


def _result_file(options: EvaluateOptions) -> Path:
    """A file that does not exist."""
    if options.out is not None:
        out = Path(options.out)
        require(out.suffix == ".json" and not out.exists(), "out", out, "a .json file that does not exist")
        return out
    folder, number = Path(options.model), 1
    while (out := folder / f"evaluation{'' if number == 1 else f'-{number}'}.json").exists():
        number += 1
    return out
