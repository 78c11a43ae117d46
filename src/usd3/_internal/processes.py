"""Several processes that share one job: who we are, and how results come together."""

import atexit
import os
from typing import TypeVar

import torch.distributed as dist

__all__ = ["gathered", "is_main", "leads_run", "rank_and_world"]

T = TypeVar("T")


def rank_and_world() -> tuple[int, int]:
    """This process's number and how many there are, as a launcher such as torchrun says; (0, 1) without one."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def is_main() -> bool:
    """Whether this process speaks for all: the first of those a launcher or Lightning started."""
    return rank_and_world()[0] == 0 and int(os.environ.get("LOCAL_RANK", 0)) == 0


def leads_run() -> bool:
    """Whether this process is the first of a training, for which SLURM may have started them all."""
    return is_main() and int(os.environ.get("SLURM_PROCID", 0)) == 0


def gathered(mine: T) -> list[T]:
    """What every process has, in the order of their numbers, on each of them."""
    rank, world = rank_and_world()
    if world == 1:
        return [mine]
    if not dist.is_initialized():
        dist.init_process_group("gloo", rank=rank, world_size=world)
        atexit.register(_leave)
    parts: list[T | None] = [None] * world
    dist.all_gather_object(parts, mine)
    return parts  # type: ignore[return-value]


def _leave() -> None:
    """Close the group: its threads would abort a process that ends before them."""
    if dist.is_initialized():
        dist.destroy_process_group()
