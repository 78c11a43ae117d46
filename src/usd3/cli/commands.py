"""The table of commands. A command's own module is imported when the command runs: importing all takes seconds."""

import importlib
from dataclasses import dataclass, fields
from typing import Any

from usd3._internal.interrupts import raise_on_interrupt

__all__ = ["COMMANDS", "Command"]


@dataclass(frozen=True)
class Command:
    """A command of usd3.

    Args:
        summary: what the command does; the first line of the docstring of its options.
        options_at: "module.Class" below usd3.cli, the dataclass of its options.
        function_at: "module.function" below usd3.cli, which runs the command.
        words: the words after the command's name, for the usage line.
        example: a complete command line.
        subjects: options whose values the user may give as words without dashes, in this order.
        recipe: the default recipe of a command whose words are recipes; None: its words are `subjects`.
    """

    summary: str
    options_at: str
    function_at: str
    words: str
    example: str
    subjects: tuple[str, ...] = ("model",)
    recipe: str | None = None

    @property
    def options(self) -> type[Any]:
        """The dataclass of its options."""
        return _imported(self.options_at)  # type: ignore[no-any-return]

    @property
    def can_resume(self) -> bool:
        """Whether it has the option `resume`, which continues a run with the options of that run."""
        return any(field.name == "resume" for field in fields(self.options))

    @property
    def takes_methods(self) -> bool:
        """Whether it has the option `methods`: several methods, each with recipes of its own."""
        return any(field.name == "methods" for field in fields(self.options))

    def run(self, *arguments: Any) -> None:
        """Run the command. From here on, Ctrl-C raises KeyboardInterrupt."""
        function = _imported(self.function_at)
        raise_on_interrupt()
        function(*arguments)


def _imported(place: str) -> Any:
    """The object `place`, "module.name", below usd3.cli."""
    module, _, name = place.partition(".")
    return getattr(importlib.import_module(f"usd3.cli.{module}"), name)


COMMANDS = {
    "train": Command(
        "Train a model on a file of your data, or on a recipe.",
        "train.TrainOptions",
        "train.train",
        "[FILE] [RECIPE ...]",
        "usd3 train people.csv small",
        recipe="bach",
    ),
    "sample": Command(
        "Draw from a trained model.",
        "sample.SampleOptions",
        "sample.sample",
        "MODEL",
        'usd3 sample runs/people-small --num 1000 --where "sex=Female,age=30..40" --out new.csv',
    ),
    "studio": Command(
        "Open a page in the browser to draw from models.",
        "studio.StudioOptions",
        "studio.studio",
        "[MODEL] [--port N] [--no-browser]",
        "usd3 studio bach",
    ),
    "evaluate": Command(
        "Measure a trained model on held-out data: n-grams, diversity, likelihood.",
        "evaluate.EvaluateOptions",
        "evaluate.run_evaluation",
        "MODEL",
        "usd3 evaluate runs/bach --limit 100",
    ),
    "frontier": Command(
        "Draw with several samplers, steps and temperatures, and plot quality against network calls and diversity.",
        "frontier.FrontierOptions",
        "frontier.frontier",
        "MODEL",
        'usd3 frontier runs/bach --samplers "exact first_hitting" --steps "8 16 32 64" --temperatures "1.0 0.8"',
    ),
    "grid": Command(
        "Find the times that lose least with few sampling steps; `usd3 sample --grid best` uses them.",
        "grid.GridOptions",
        "grid.grid",
        "MODEL",
        "usd3 grid runs/bach --num 256",
    ),
    "compare": Command(
        "Train several methods under one budget, measure all in the same way, and write one table.",
        "compare.CompareOptions",
        "compare.compare",
        "[FILE] [RECIPE ...]",
        'usd3 compare bach-small --methods "usd3 star:usd3-star+discrete runs/bach" --training.minutes 10',
        recipe="bach-small",
    ),
    "info": Command(
        "Describe this installation, a recipe, a run or a saved model.",
        "info.InfoOptions",
        "info.info",
        "[RECIPE, MODEL or FOLDER]",
        "usd3 info bach",
        subjects=("what",),
    ),
    "export": Command(
        "Write a small folder of a trained model to share: rounded weights and a model card.",
        "export.ExportOptions",
        "export.export",
        "RUN",
        "usd3 export runs/bach --out bach --metrics runs/bach/evaluation.json",
        subjects=("run",),
    ),
    "bench": Command(
        "Measure time and memory of the loss and of a sampling step on this machine.",
        "bench.BenchOptions",
        "bench.bench",
        "[loss | sampling | scaling | all]",
        'usd3 bench loss --sizes "64,256,129 32,256,8192" --out runs/bench',
        subjects=("table",),
    ),
    "paper": Command(
        "Run what gives a table or figure of the paper, and show our numbers beside the published ones.",
        "paper.PaperOptions",
        "paper.paper",
        "list | show NAME | run NAME | run all | keep NAME | publish NAME",
        "usd3 paper run music --data pop909_melody_256.npz --jobs 4 --stop_after 30",
        subjects=("action", "name"),
    ),
    "cost": Command(
        "Measure what training and sampling cost for several methods, in one process, and write one table.",
        "cost.CostOptions",
        "cost.cost",
        "[RECIPE ...]",
        'usd3 cost vqcifar10 paper-image --methods "usd3:usd3+discrete d3pm" --shape 8,8 --num_classes 512',
        recipe="bach-small",
    ),
    "classifier": Command(
        "Train a classifier of images, whose features serve metrics and the perceptual loss.",
        "classifier.ClassifierOptions",
        "classifier.classifier",
        "",
        "usd3 classifier --images cifar-10-batches-py --run runs/classifier",
        subjects=(),
    ),
    "vqgan": Command(
        "Train a VQGAN, which makes tokens of images and images of tokens.",
        "vqgan.VQGANOptions",
        "vqgan.vqgan",
        "",
        "usd3 vqgan --images cifar-10-batches-py --perceptual runs/classifier --run runs/vqgan",
        subjects=(),
    ),
    "encode": Command(
        "Turn images into a file of tokens, to train a model on.",
        "encode.EncodeOptions",
        "encode.encode",
        "VQGAN",
        "usd3 encode runs/vqgan --images cifar-10-batches-py --out cifar10.npz",
        subjects=("vqgan",),
    ),
    "decode": Command(
        "Turn tokens back into images.",
        "encode.DecodeOptions",
        "encode.decode",
        "VQGAN",
        "usd3 decode runs/vqgan --tokens samples.npz --out samples",
        subjects=("vqgan",),
    ),
}
