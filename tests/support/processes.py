"""Other processes without the price of importing everything again: children of this one."""

import os
import socket
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

__all__ = ["ended", "forked", "in_two_processes"]


def forked(work: Callable[[], object], errors: Path | None = None) -> int:
    """The id of a child that does some work and exits with the number it returns; `errors` takes its stderr."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if errors is not None:
                os.dup2(os.open(errors, os.O_CREAT | os.O_WRONLY), 2)
                sys.stderr = os.fdopen(2, "w")
            warnings.simplefilter("ignore")
            result = work()
            code = result if isinstance(result, int) else 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def ended(child: int) -> int:
    """The exit code of a child, once it has ended; negative: the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_two_processes(work: Callable[[], object]) -> None:
    """Do some work in two processes that Lightning takes for ranks 0 and 1 of one run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0", "WORLD_SIZE": "2"}

    def ranked(rank: int) -> object:
        os.environ.update(common | {"LOCAL_RANK": str(rank), "RANK": str(rank)})
        return work()

    children = [forked(lambda rank=rank: ranked(rank)) for rank in range(2)]
    assert [ended(child) for child in children] == [0, 0]
