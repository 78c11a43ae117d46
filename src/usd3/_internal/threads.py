"""Let torch's threads sleep while they wait for each other, so that other programs get the cores."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["WAIT_SETTINGS", "waiting_asleep"]

WAIT_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Environment variables by which a user chooses how threads wait. They are read when torch is imported."""


@contextmanager
def waiting_asleep() -> Iterator[None]:
    """Inside, torch's waiting threads soon fall asleep, unless the user set one of `WAIT_SETTINGS`.

    By default a waiting thread keeps its core busy for milliseconds, and both torch and other programs on a busy
    computer become many times slower. libgomp, which runs torch's threads on Linux, waits 300 times shorter when it
    manages more threads than there are cores. So a thread of ours owns an additional team of sleeping threads as long
    as anyone is inside. The number of working threads and all results stay the same, and afterwards threads wait as
    before.
    """
    with _lock:
        _inside.append(None)
        if len(_inside) == 1:
            _holders.extend(_Holder() for _ in range(_num_holders()))
    try:
        yield
    finally:
        with _lock:
            _inside.pop()
            while not _inside and _holders:
                _holders.pop().end()


_lock = threading.Lock()
_inside: list[None] = []
_holders: list["_Holder"] = []


class _Holder:
    """A sleeping thread that owns a team of torch's threads."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hold, name="usd3 waits asleep", daemon=True)
        self._thread.start()

    def _hold(self) -> None:
        import torch

        torch.zeros(2**16).add_(1)  # large enough for torch to start a team, which then stays
        self._over.wait()

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def _num_holders() -> int:
    """How many teams are needed besides the caller's to have more threads than cores; 0 if nothing is to be done."""
    import torch

    threads = torch.get_num_threads()
    if sys.platform != "linux" or threads == 1 or any(name in os.environ for name in WAIT_SETTINGS):
        return 0
    return max(1, (len(os.sched_getaffinity(0)) - 1) // (threads - 1))
