"""The processes of one job: those that a launcher starts side by side, and the children that we start.

Nothing here imports torch before it is needed: the program starts with `end_with_parent`.
"""

import atexit
import ctypes
import os
import signal
import sys
from typing import TypeVar

__all__ = ["child_environment", "end_with_parent", "gathered", "is_main", "leads_run", "rank_and_world"]

T = TypeVar("T")

_PARENT = "USD3_PARENT"  # environment variable: the process id of the parent
_PR_SET_PDEATHSIG = 1  # Linux: send a signal to this process when its parent dies


def rank_and_world() -> tuple[int, int]:
    """The number of this process and how many there are, as set by a launcher such as torchrun; else (0, 1)."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def is_main() -> bool:
    """Whether this is the first of the processes that a launcher or Lightning started: the one that prints."""
    return rank_and_world()[0] == 0 and int(os.environ.get("LOCAL_RANK", 0)) == 0


def leads_run() -> bool:
    """Whether this is the first process of a training, also where SLURM started them."""
    return is_main() and int(os.environ.get("SLURM_PROCID", 0)) == 0


def gathered(value: T) -> list[T]:
    """The values of all processes, in the order of their numbers. Every process gets the whole list."""
    rank, world = rank_and_world()
    if world == 1:
        return [value]
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo", rank=rank, world_size=world)
        atexit.register(_leave)
    values: list[T | None] = [None] * world
    dist.all_gather_object(values, value)
    return values  # type: ignore[return-value]


def _leave() -> None:
    """Close the process group: its threads abort a process that ends before they do."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def child_environment() -> dict[str, str]:
    """The environment of a Python process that we start: it imports from the same places and ends with us.

    Python imports modules from the current folder under `python -m usd3`, but not under `usd3`. The child does the
    same as its parent, so that a file `random.py` in that folder, say, does not shadow the standard library.
    """
    imports_from_here = sys.path[:1] in ([""], [os.getcwd()])
    safe_path = {} if imports_from_here else {"PYTHONSAFEPATH": "1"}
    return dict(os.environ) | safe_path | {_PARENT: str(os.getpid())}


def end_with_parent() -> None:
    """In a child: end when the parent ends in any way. On Linux this holds even if the parent is killed."""
    parent = os.environ.pop(_PARENT, None)  # our own children get our process id instead
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != int(parent):  # it ended before we asked
        sys.exit(128 + signal.SIGTERM)
