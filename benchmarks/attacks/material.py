"""What is attacked: data, a tiny run with its checkpoints, a model of melodies, an evaluation; made once."""

import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from attacks.children import run_usd3
from usd3.kinds.melody.midi import write_midi

__all__ = ["STEPS", "Material", "train_words"]

STEPS = 24  # of a run; its checkpoints are two steps apart
_MODEL = ("dim", 16), ("depth", 1), ("heads", 2), ("mlp", 16), ("time_dim", 8), ("dropout", 0.1)
_TRAINING = (
    ("batch_size", 8), ("warmup", 2), ("lr", 0.003), ("log_every", 2), ("validate_every", 0), ("checkpoint_every", 2),
    ("keep", 3), ("prefix", 2), ("accelerator", "cpu"),
)  # fmt: skip
_TINY = [
    *(f"--model.{name}={value}" for name, value in _MODEL),
    *(f"--training.{name}={value}" for name, value in _TRAINING),
    "--diffusion.num_steps=20",
    "--progress=false",
]


def train_words(*recipes: str, path: str, steps: int = STEPS) -> list[str]:
    """A tiny training on the data at a path."""
    return ["train", *recipes, "--data.path", path, "--training.steps", str(steps), *_TINY]


class Material:
    """A folder that cases copy from.

    `whole` is a run, `interrupted` the same before its last checkpoint, with two before; `model` is the exported one.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        rows = (np.arange(8) + np.arange(60)[:, None]) % 5
        np.savez(folder / "data.npz", train=rows[:50], test=rows[50:])
        np.save(folder / "data.npy", rows)
        np.save(folder / "prompt.npy", rows[:2])
        np.savez(folder / "prompt.npz", tokens=rows[:2])
        (folder / "songs").mkdir()
        pitches = np.random.default_rng(0).integers(55, 75, size=(8, 16)).repeat(2, axis=1)
        for i, melody in enumerate(pitches):
            write_midi(melody, folder / "songs" / f"{i}.mid")
        shutil.copy(folder / "songs" / "0.mid", folder / "prompt.mid")
        self._do(*train_words("array", path="data.npz", steps=STEPS), "--run", "whole")
        self._do(*train_words("midi", path="songs", steps=2), "--data.length", "32", "--run", "music")
        measured = ("--limit", "4", "--runs", "1", "--bound_samples", "1", "--steps", "2", "--out", "evaluation.json")
        self._do("evaluate", "whole", *measured)
        self._do("export", "whole", "--out", "model")
        (folder / "recipe.yaml").write_text((folder / "whole" / "recipe.yaml").read_text())
        self.weights = load_file(folder / "whole" / "model.safetensors")
        shutil.copytree(folder / "whole", folder / "interrupted")
        (folder / "interrupted" / "checkpoints" / f"step-{STEPS:08d}.ckpt").unlink()
        older = {name: np.zeros_like(value) for name, value in self.weights.items()}
        save_file(older, folder / "interrupted" / "model.safetensors")

    def _do(self, *arguments: str) -> None:
        ended = run_usd3(arguments, self.folder)
        if ended.status != 0:
            raise RuntimeError(f"usd3 {' '.join(arguments)}: {ended.err}")

    def copy_to(self, folder: Path, *names: str) -> None:
        """Put some of it into a folder."""
        for name in names:
            source = self.folder / name
            if source.is_dir():
                shutil.copytree(source, folder / name)
            else:
                shutil.copy(source, folder / name)

    def has_weights(self, folder: Path) -> bool:
        """Whether a run ended with exactly the weights of the one that nothing disturbed."""
        found = load_file(folder / "model.safetensors")
        same = (np.array_equal(found[name], value) for name, value in self.weights.items())
        return found.keys() == self.weights.keys() and all(same)
