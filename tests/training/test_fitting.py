"""A further kind of network needs a module and a run, and nothing else: here a line through points."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import nn

from usd3.kinds.dataset import Sequences
from usd3.training.batches import Batches
from usd3.training.checkpoints import find_checkpoints
from usd3.training.fitting import TrainingRun
from usd3.training.module import TrainingModule
from usd3.training.options import learning_rate


@dataclass
class LineConfig:
    steps: int = 6
    minutes: float | None = None
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    cuda_graph: Literal["auto", "always", "never"] = "auto"
    accelerator: Literal["auto", "cpu", "gpu"] = "cpu"
    log_every: int = 2
    checkpoint_every: int = 2
    keep: int = 9
    lr: float = 0.1
    inputs: int = 1

    def learning_rate(self, step, spent=0.0):
        return learning_rate(step, self.steps, 0, "constant", spent=spent)


CONFIG = LineConfig()


class LineTraining(TrainingModule):
    names = on_screen = must_be_finite = ("loss",)
    remedy = "draw it by hand"

    def new_optimisers(self):
        return [torch.optim.SGD(self.model.parameters(), lr=self.config.lr, momentum=0.9)]

    def configure_optimizers(self):
        return self.new_optimisers()[0]

    def train_dataloader(self):
        rows = Sequences(torch.arange(8)[:, None])
        return Batches(rows, 4, self.seed, lambda: self.trainer.global_step, 1, 0, 1)

    def loss(self, batch):
        x = batch["tokens"].float() / 8
        loss = (self.model(x) - 3 * x - torch.rand(4, 1)).square().mean()
        return loss, loss[None].detach()

    def train_on(self, batch):
        tensors = {"tokens": batch["tokens"]}
        return self.loss(tensors) if self._step is None else self._step(tensors)


class WholeLineTraining(LineTraining):
    def on_train_start(self):
        super().on_train_start()
        self._step = self.whole_step(self.loss, self.model.parameters(), self.optimisers()[0])


class LineRun(TrainingRun):
    def __init__(self, config, training):
        super().__init__(config)
        self.training = training

    def recipe(self):
        return asdict(self.config)

    def fixed_settings(self, recipe):
        return {"inputs": recipe["inputs"]}

    def load_data(self):
        return {"objects": 8}

    def build(self, resumed):
        torch.manual_seed(0)
        return self.training(nn.Linear(self.config.inputs, 1), self.config, 5)

    def export(self, folder, trainer, module):
        torch.save(module.model.state_dict(), folder / "line.pt")


def trained(folder: Path, training=WholeLineTraining, config=CONFIG, resume=False) -> dict[str, torch.Tensor]:
    LineRun(config, training).fit(folder, resume, progress=False)
    return torch.load(folder / "line.pt")


def test_a_resumed_run_and_one_whose_steps_lightning_makes_reach_the_same_weights(tmp_path):
    whole = trained(tmp_path / "run")
    find_checkpoints(tmp_path / "run" / "checkpoints")[0].unlink()
    (tmp_path / "run" / "line.pt").unlink()
    for other in (trained(tmp_path / "run", resume=True), trained(tmp_path / "other", LineTraining)):
        assert all(torch.equal(value, other[name]) for name, value in whole.items())


def test_settings_data_and_steps_of_a_resumed_run_are_checked(tmp_path, capsys):
    run = tmp_path / "run"
    trained(run)
    with pytest.raises(ValueError, match=r"inputs = 2: expected 1, as in .*recipe\.yaml; start a new run to change it"):
        trained(run, config=LineConfig(inputs=2), resume=True)
    with pytest.raises(ValueError, match="steps = 5: expected at least 6, which the run has done"):
        trained(run, config=LineConfig(steps=5), resume=True)
    trained(run, resume=True)
    assert capsys.readouterr().err == f"{run} is finished, with 6 steps; for more: --resume {run} --steps 12\n"
    trained(run, config=replace(CONFIG, steps=8, lr=0.5), resume=True)
    groups = torch.load(find_checkpoints(run / "checkpoints")[0])["optimizer_states"][0]["param_groups"]
    assert [group["lr"] for group in groups] == [0.5]  # the configuration holds, not the checkpoint
