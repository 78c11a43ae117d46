"""How torch's threads wait for each other."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["WAIT_SETTINGS", "waiting_asleep"]

WAIT_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Variables of the environment by which a user says how threads wait; they are read when torch is imported."""


@contextmanager
def waiting_asleep() -> Iterator[None]:
    """Inside, threads of torch that wait for each other soon fall asleep, unless the user said how they wait.

    By default they keep their cores busy for milliseconds, and a computer that does something else becomes many times
    slower. libgomp, which runs them on Linux, spins 300 times shorter where it manages more threads than there are
    cores. So a thread of ours holds a team of its own, asleep, as long as anyone is inside. Neither the number of
    threads that work nor any result changes, and afterwards threads wait as before.
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
    """A thread that owns a team of torch's threads, and sleeps."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hold, name="usd3 waits asleep", daemon=True)
        self._thread.start()

    def _hold(self) -> None:
        import torch

        torch.zeros(2**16).add_(1)  # large enough to be shared by a team, which then stays
        self._over.wait()

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def _num_holders() -> int:
    """How many teams there must be besides the caller's, so that there are more threads than cores."""
    import torch

    threads = torch.get_num_threads()
    if sys.platform != "linux" or threads == 1 or any(name in os.environ for name in WAIT_SETTINGS):
        return 0
    return max(1, (len(os.sched_getaffinity(0)) - 1) // (threads - 1))
