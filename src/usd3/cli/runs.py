"""What all commands that train have in common: the folder of the run."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar

from usd3._internal.checks import require
from usd3._internal.files import new_folder
from usd3.training.images import FitConfig

__all__ = ["RunOptions", "run_folder", "trained_in"]

Config = TypeVar("Config", bound=FitConfig)


@dataclass
class RunOptions:
    """Where a run is.

    Args:
        run: folder of the run; null: a new one below runs/.
        resume: folder of a run to continue from its newest complete checkpoint, with its own options unless others are
            given.
        progress: show progress.
    """

    run: str | None = None
    resume: str | None = None
    progress: bool = True


@contextmanager
def run_folder(command: str, named: str | None, name: str) -> Iterator[Path]:
    """The folder of a run. Inside, the message of an interruption says how to continue the run.

    If the run does not begin, the folders that were created for it are removed again.

    Args:
        command: the command that continues the run, without `usd3`.
        named: the folder that the user chose; None: a new one below runs/.
        name: the beginning of the new folder's name.
    """
    place = Path("runs" if named is None else named)
    created = [path for path in (place, *place.parents) if not path.exists()]
    folder = new_folder(place, name) if named is None else place
    created = created if named is not None else [folder, *created]
    try:
        yield folder
    except BaseException as error:
        with suppress(OSError):
            for path in created:
                path.rmdir()  # fails if the folder is not empty
        if not isinstance(error, KeyboardInterrupt | SystemExit):  # Lightning turns some signals into an exit
            raise
        begun = (folder / "recipe.yaml").is_file()
        at = [str(error)] if isinstance(error, KeyboardInterrupt) and str(error) else []
        then = f"`usd3 {command} --resume {folder}` goes on" if begun else "nothing was begun"
        raise KeyboardInterrupt(f"({'; '.join([*at, then])})") from None


def trained_in(options: RunOptions, name: str, config_class: type[Config], train: Callable[..., object]) -> Path:
    """Train a network for images and return the folder of the run.

    Args:
        options: the options of the command; they have all fields of `config_class`.
        name: name of the command.
        config_class: the options of the training.
        train: called as train(config, folder, resume=..., progress=...).
    """
    values = {field.name: getattr(options, field.name) for field in fields(config_class)}
    for path in ("images", "perceptual", "lpips"):
        if values.get(path) is not None:
            values[path] = os.path.abspath(values[path])  # found again from any folder
    require(values["images"] is not None, "images", None, "the images, a file or a folder")
    require(os.path.exists(values["images"]), "images", values["images"], "a file or folder that exists")
    config, resumed = config_class(**values), options.resume is not None
    require(not resumed or options.run is None, "run", options.run, "null where resume is given")
    with run_folder(name, options.resume if resumed else options.run, name) as folder:
        train(config, folder, resume=resumed, progress=options.progress)
    return folder
