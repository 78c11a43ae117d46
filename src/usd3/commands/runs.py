"""What the commands that train a network for images do alike."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar

from usd3._checks import require
from usd3.experiment import new_folder
from usd3.images import FitConfig

__all__ = ["RunOptions", "trained_in"]

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
    named = options.resume if resumed else options.run
    folder = new_folder("runs", name) if named is None else Path(named)
    try:
        train(config, folder, resume=resumed, progress=options.progress)
    except (KeyboardInterrupt, SystemExit) as stop:  # Lightning turns some signals into an exit
        raise KeyboardInterrupt(f"{stop}; `usd3 {name} --resume {folder}` goes on") from None
    except BaseException:
        with suppress(OSError):
            folder.rmdir()  # if nothing came into it
            folder.parent.rmdir()
        raise
    return folder
