"""One run of any network: its folder, its trainer, its end."""

import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import lightning.pytorch as pl
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from usd3._internal.checks import require
from usd3._internal.interrupts import defer_interrupts
from usd3._internal.processes import leads_run
from usd3._internal.progress import say
from usd3._internal.threads import waiting_asleep
from usd3.training.callbacks import StopOnSignal, StopOnTime, TrainingProgress
from usd3.training.checkpoints import AtomicCheckpointIO, Checkpoints, newest_whole, require_fitting, step_of
from usd3.training.early_stop import KeepBest
from usd3.training.ema import Ema
from usd3.training.folder import RECIPE, begin, own_folder, read_recipe, require_same_data
from usd3.training.module import TrainingModule
from usd3.training.options import LoopConfig

__all__ = ["TrainingRun", "callbacks_of"]


class TrainingRun(ABC):
    """Trains one network in a folder of its own. A subclass says on what data, which network, and what is exported.

    The methods stand in the order in which `fit` needs them.
    """

    prefix: ClassVar[str] = ""  # of the options on the command line, as in --training.steps
    data_name: str = "the data"  # in messages
    data: pl.LightningDataModule | None = None  # for Lightning, unless the module has its own loader
    ema: Ema | None = None
    patience: int = 0  # estimates of the bound without improvement, after which the run ends; 0: never
    judged_every: int = 0  # steps between two such estimates; 0: there are none

    def __init__(self, config: LoopConfig):
        self.config = config

    @abstractmethod
    def recipe(self) -> dict[str, Any]:
        """What recipe.yaml says: all settings, with which the run can be resumed."""

    @abstractmethod
    def fixed_settings(self, recipe: dict[str, Any]) -> dict[str, Any]:
        """The settings of a recipe that a resumed run cannot change, by their names on the command line."""

    @abstractmethod
    def load_data(self) -> dict[str, Any]:
        """Load the data. Returns facts by which a resumed run recognises them: sizes and a fingerprint."""

    def about_data(self) -> list[str]:
        """What was found in the data, lines for the user; after `load_data`."""
        return []

    @abstractmethod
    def build(self, resumed: Path | None) -> TrainingModule:
        """The network, its weights drawn from the seed; where the run has a checkpoint, `resumed` is its folder."""

    def more_steps(self, done: int) -> str:
        """The option that prolongs a run which has done all its steps, without the prefix."""
        return f"steps {2 * done}"

    def trainer_options(self) -> dict[str, Any]:
        """Options of Lightning's Trainer besides those of every run."""
        return {}

    @abstractmethod
    def export(self, folder: Path, trainer: pl.Trainer, module: Any) -> None:
        """Write the model, ready for use; called before each checkpoint."""

    def finish(self, folder: Path) -> None:
        """Called after the last step, by one process; the run may have been stopped."""
        return

    @waiting_asleep()
    def fit(
        self, folder: Path, resume: bool = False, progress: bool = True, callbacks: Sequence[pl.Callback] = ()
    ) -> None:
        """Train in `folder`; with `resume`, go on from its newest whole checkpoint.

        One process at a time has the folder, or those of one run. A run ends after its `steps`, or its `minutes`.
        Ctrl-C and SIGTERM end it after the current step with a checkpoint, and then raise KeyboardInterrupt.
        Data, networks and checkpoints that do not belong together are refused before anything is written.
        """
        with own_folder(folder, resume):
            if resume:
                self._require_same_settings(folder)
            facts = self.load_data()
            if resume:
                require_same_data(facts, folder, self.data_name)
            start = newest_whole(folder / "checkpoints") if resume else None
            done, steps = 0 if start is None else step_of(start), self.config.steps
            require(steps >= done, f"{self.prefix}steps", steps, f"at least {done}, which the run has done")
            module = self.build(None if start is None else folder)
            if start is not None:
                require_fitting(start, module)
            for line in self.about_data() if progress else ():
                say(line)
            if leads_run():
                begin(folder, self.recipe(), facts)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", module="lightning.*")
                trainer = self._trainer(folder, [*callbacks, TrainingProgress()] if progress else [*callbacks])
                with defer_interrupts():
                    trainer.fit(module, self.data, ckpt_path=start, weights_only=True)
            if trainer.is_global_zero:
                self.finish(folder)
            ended = module.clock.over or any(isinstance(c, KeepBest) and c.is_over for c in callbacks_of(trainer))
            if trainer.global_step < steps and not ended:
                raise KeyboardInterrupt(f"stopped at step {trainer.global_step}")
            if start is not None and trainer.global_step == done:
                more = self.more_steps(done) if done >= steps else f"minutes {2 * (self.config.minutes or 1):g}"
                say(f"{folder} is finished, with {done} steps; for more: --resume {folder} --{self.prefix}{more}")

    def _require_same_settings(self, folder: Path) -> None:
        """What a network is cannot change when its run is resumed; how it is trained, and where its data are, can."""
        file, before = folder / RECIPE, self.fixed_settings(read_recipe(folder))
        for name, value in self.fixed_settings(self.recipe()).items():
            require(name in before, str(file), f"without {name}", f"the recipe of a {type(self.config).__name__}")
            require(value == before[name], name, value, f"{before[name]}, as in {file}; start a new run to change it")

    def _trainer(self, folder: Path, callbacks: list[pl.Callback]) -> pl.Trainer:
        logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
        config, table = self.config, CSVLogger(folder, name="logs", flush_logs_every_n_steps=1)

        def export(trainer: pl.Trainer, module: Any) -> None:
            self.export(folder, trainer, module)

        checkpoints = Checkpoints(folder, config.checkpoint_every, config.keep, export, self.judged_every)
        average = [] if self.ema is None else [self.ema]
        best = [KeepBest(self.patience, export, checkpoints.save_judged)] if self.patience else []
        options: dict[str, Any] = {
            "default_root_dir": folder,
            "max_steps": config.steps,
            "max_epochs": -1,
            "accelerator": config.accelerator,
            "logger": [table, TensorBoardLogger(folder, name="logs", version=table.version)],
            "callbacks": [*average, StopOnTime(), *best, checkpoints, StopOnSignal(), *callbacks],
            "plugins": [AtomicCheckpointIO()],
            "limit_val_batches": 0,
            "num_sanity_val_steps": 0,
            "use_distributed_sampler": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
        }
        return pl.Trainer(**options | self.trainer_options())


def callbacks_of(trainer: pl.Trainer) -> list[Any]:
    """All callbacks of a trainer, which Lightning's types do not know."""
    return trainer.callbacks  # type: ignore[attr-defined,no-any-return]
