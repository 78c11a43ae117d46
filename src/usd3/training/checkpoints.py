"""Checkpoints that are whole or absent, whatever happens while they are written."""

import pickle
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor, nn

from usd3._internal.files import remove_unfinished, written_whole
from usd3._internal.processes import is_main
from usd3.training.ema import Ema, local, shards

__all__ = [
    "AtomicCheckpointIO",
    "Checkpoints",
    "find_checkpoints",
    "newest_whole",
    "require_finite",
    "require_fitting",
    "require_whole",
    "step_of",
]

Export = Callable[[pl.Trainer, Any], None]

_NAME = re.compile(r"step-(\d+)\.ckpt")


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write beside the final name, then rename: a checkpoint that exists is whole. Nothing is unpickled on reading."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write the checkpoint, or leave nothing behind; through a Python file, whose errors name their reason."""
        with written_whole(path) as temporary, open(temporary, "wb") as file:
            torch.save(checkpoint, file)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Read a checkpoint of tensors and plain values."""
        require_whole(path)
        return _loaded(path, map_location=map_location or "cpu")


def require_whole(path: Path | str) -> None:
    """Refuse a checkpoint with damaged bytes: every record has a checksum."""
    try:
        with zipfile.ZipFile(path) as records:
            size = sum(record.file_size for record in records.infolist())
            if size > Path(path).stat().st_size:  # torch compresses nothing
                raise zipfile.BadZipFile(f"{size:,} bytes when unpacked")
            broken = records.testzip()
    except FileNotFoundError:
        raise
    except (OSError, zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"{path}: expected a whole checkpoint ({error})") from None
    if broken is not None:
        raise ValueError(f"{path}: expected a whole checkpoint (record {broken} is damaged)")


def require_fitting(path: Path, module: nn.Module) -> None:
    """Refuse a checkpoint whose weights do not fit a module. Only their names and shapes are read."""
    saved = _loaded(path, map_location="cpu", mmap=True)["state_dict"]
    saved_shapes, shapes = (
        {name: tuple(value.shape) for name, value in state.items() if isinstance(value, Tensor)}
        for state in (saved, module.state_dict())
    )
    other = next((name for name in shapes | saved_shapes if saved_shapes.get(name) != shapes.get(name)), None)
    if other is not None:
        expected = f"{shapes.get(other, 'none')} for {other}, not {saved_shapes.get(other, 'none')}"
        raise ValueError(f"{path}: expected weights of the network's shapes, {expected}; start a new run")


def _loaded(path: Path | str, **options: Any) -> dict[str, Any]:
    """A checkpoint of tensors and plain values; other objects in it are not unpickled."""
    try:
        loaded = torch.load(path, weights_only=True, **options)
    except (pickle.UnpicklingError, RuntimeError, ValueError, TypeError, KeyError, EOFError, AttributeError):
        loaded = None
    if not isinstance(loaded, dict) or not isinstance(loaded.get("state_dict"), dict):
        raise ValueError(f"{path}: expected a checkpoint of usd3, tensors and plain values alone")
    return loaded


def require_finite(trainer: pl.Trainer, module: Any) -> None:
    """Refuse to save weights, averages or optimisers that are not finite; waits for the device once."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    averages = [average for callback in callbacks if isinstance(callback, Ema) for average in callback.averages]
    states = [state for optimizer in module.optimisers() for state in optimizer.state.values()]
    moments = local(value for state in states for value in state.values() if isinstance(value, Tensor))
    checks = [x.isfinite().all() for x in [*shards(module), *averages, *moments] if x.is_floating_point()]
    checks += [~x.isnan().any() for x in local(module.buffers())]  # a mask may have -inf
    device = trainer.strategy.root_device
    finite = bool(torch.stack([check.to(device, non_blocking=True) for check in checks]).all())
    if not trainer.strategy.reduce_boolean_decision(finite):
        raise ArithmeticError(
            f"the weights or their optimiser are no longer finite at step {trainer.global_step}, which is not saved: "
            f"{module.remedy}"
        )


def find_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the newest first."""
    numbered = [(int(match[1]), path) for path in folder.glob("*.ckpt") if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(numbered, reverse=True)]


def step_of(checkpoint: Path) -> int:
    """How many steps were done when a checkpoint was written."""
    return int(checkpoint.stem.removeprefix("step-"))


def newest_whole(folder: Path) -> Path | None:
    """The newest checkpoint that is whole; None where there is none yet. Damaged ones are renamed."""
    checkpoints = find_checkpoints(folder)
    for path in checkpoints:
        try:
            require_whole(path)
        except ValueError as error:
            warnings.warn(f"{error}; going back to the one before", stacklevel=3)
            if is_main():
                path.rename(path.with_suffix(".damaged"))
            continue
        return path
    if checkpoints or list(folder.glob("*.damaged")):
        raise ValueError(f"{folder}: none of its checkpoints is whole; start a new run")
    return None


class Checkpoints(pl.Callback):
    """Saves every `every` steps and at the end, and keeps the newest `keep`.

    Args:
        folder: that of the run.
        every: steps between two checkpoints.
        keep: number of checkpoints to keep.
        export: writes the model for use.
        judged_every: steps between two estimates by which the run may end; a checkpoint of such a step is saved by
            `save_judged`, after the estimate, so that it knows of it. 0: there are none.
    """

    def __init__(self, folder: Path, every: int, keep: int, export: Export, judged_every: int = 0):
        self.folder, self.every, self.keep, self.export = folder, every, keep, export
        self.judged_every = judged_every
        self._saved = -1

    def setup(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        """Remove what a killed run left half-written, also where all its steps were done."""
        if trainer.is_global_zero:
            remove_unfinished(self.folder)
            remove_unfinished(self.folder / "checkpoints")

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Do not save the step from which the run starts: it is step 0, or it is saved already."""
        self._saved = trainer.global_step

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save after every `every` steps, unless the step is to be judged first."""
        judged = self.judged_every and trainer.global_step % self.judged_every == 0
        if trainer.global_step % self.every == 0 and not judged:
            self.save(trainer, module)

    def save_judged(self, trainer: pl.Trainer, module: Any) -> None:
        """Save a step that has been judged, if it is one to save."""
        if trainer.global_step % self.every == 0:
            self.save(trainer, module)

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Save the last step."""
        self.save(trainer, module)

    def save(self, trainer: pl.Trainer, module: Any) -> None:
        """Write the model and a checkpoint of this step, unless there is one; then remove the oldest."""
        step = trainer.global_step
        if step == self._saved:
            return
        module.log_recent()  # raises where the loss is not finite
        require_finite(trainer, module)  # a step with a finite loss may ruin the weights
        self.export(trainer, module)  # before the checkpoint: a run that is killed in between does both again
        trainer.save_checkpoint(self.folder / "checkpoints" / f"step-{step:08d}.ckpt")
        self._saved = step
        if trainer.is_global_zero:
            for old in find_checkpoints(self.folder / "checkpoints")[self.keep :]:
                old.unlink()
