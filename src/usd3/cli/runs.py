"""What the commands that train do alike."""

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
        resume: folder of a run to go on with, from its newest whole checkpoint; its own options hold where no others
            are given.
        progress: show progress.
    """

    run: str | None = None
    resume: str | None = None
    progress: bool = True


@contextmanager
def run_folder(command: str, named: str | None, name: str) -> Iterator[Path]:
    """The folder of a run, `named` or a new one below runs/; inside, an interruption says how to go on.

    Where the run does not begin, the folders that were made for it go again, and no others.
    """
    place = Path("runs" if named is None else named)
    made = [path for path in (place, *place.parents) if not path.exists()]
    folder = new_folder(place, name) if named is None else place
    made = made if named is not None else [folder, *made]
    try:
        yield folder
    except BaseException as error:
        with suppress(OSError):
            for path in made:
                path.rmdir()  # if nothing came into it
        if not isinstance(error, KeyboardInterrupt | SystemExit):  # Lightning turns some signals into an exit
            raise
        begun = (folder / "recipe.yaml").is_file()
        at = [str(error)] if isinstance(error, KeyboardInterrupt) and str(error) else []
        then = f"`usd3 {command} --resume {folder}` goes on" if begun else "nothing was begun"
        raise KeyboardInterrupt(f"({'; '.join([*at, then])})") from None


def trained_in(options: RunOptions, name: str, kind: type[Config], train: Callable[..., object]) -> Path:
    """Train with the options that are those of `kind`; the folder of the run."""
    values = {field.name: getattr(options, field.name) for field in fields(kind)}
    for path in ("images", "perceptual", "lpips"):
        if values.get(path) is not None:
            values[path] = os.path.abspath(values[path])  # found again from any folder
    require(values["images"] is not None, "images", None, "the images, a file or a folder")
    require(os.path.exists(values["images"]), "images", values["images"], "a file or folder that exists")
    config, resumed = kind(**values), options.resume is not None
    require(not resumed or options.run is None, "run", options.run, "null where resume is given")
    with run_folder(name, options.resume if resumed else options.run, name) as folder:
        train(config, folder, resume=resumed, progress=options.progress)
    return folder
