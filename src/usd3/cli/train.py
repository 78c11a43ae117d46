"""usd3 train: train a model on a file of data, or on a recipe."""

import os
from dataclasses import dataclass

from usd3._internal.checks import require
from usd3._internal.processes import is_main, rank_and_world
from usd3.cli.runs import run_folder
from usd3.kinds.class_files import data_name
from usd3.pipeline.trust import foreign_classes
from usd3.training.options import Recipe
from usd3.training.run import fit

__all__ = ["TrainOptions", "train"]

_FOLDER_VARIABLE = "USD3_RUN"  # names the folder of the run to the processes that Lightning starts


@dataclass
class TrainOptions(Recipe):
    """Train a model on a file of your data, or on a recipe.

    The words are names of recipes, or files of them, and at most one file of data, such as people.csv, book.txt or
    genes.fa: its ending says what it holds. `small` after it is a recipe for a CPU.

    Args:
        run: folder of the run; null: a new one below runs/, named after the recipe.
        resume: folder of a run to continue from its newest complete checkpoint, with its own recipe.
        progress: show progress.
        trust_code: import a kind, network or method that is not ours, if a recipe or a resumed run names one. This runs
            its code. Not needed for a class that is named on the command line.
    """

    run: str | None = None
    resume: str | None = None
    progress: bool = True
    trust_code: bool = False


def train(options: TrainOptions, names: list[str]) -> None:
    """Train a model and print the folder of the run. `names` are the recipes."""
    recipe = options.recipe
    if options.resume is not None:
        require(options.run is None, "run", options.run, "null where resume is given")
    named = options.resume or (None if is_main() else os.environ.get(_FOLDER_VARIABLE)) or options.run
    alone = named is not None or rank_and_world()[1] == 1
    require(alone, "run", options.run, "the folder of the run, as a launcher started several processes")
    trust = " --trust_code true" if foreign_classes(recipe) else ""
    with run_folder(f"train{trust}", named, "-".join(data_name(name) for name in names)) as folder:
        os.environ[_FOLDER_VARIABLE] = str(folder)
        recipe.data.make_absolute()
        try:
            fit(recipe, folder, resume=options.resume is not None, progress=options.progress)
        finally:
            del os.environ[_FOLDER_VARIABLE]
    if is_main():
        print(f"the trained model is in {folder}")
        print(f"  usd3 sample {folder}{trust}      usd3 evaluate {folder}{trust}")
