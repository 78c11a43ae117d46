"""Ctrl-C while a program is still being loaded or set up, or comes to its end.

Python raises KeyboardInterrupt wherever it happens to be, and imports are a bad place: extensions of NumPy and torch
swallow it or fail in other words, and so do `except` clauses around imports of others. Until a command begins there is
nothing to save or to tidy up.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["end_at_once", "insist", "no_longer_noted", "noted", "raise_again"]

_INTERRUPTED = 130
_MOMENT = 0.05  # seconds
_seen: list[int] = []


def end_at_once() -> None:
    """From now on Ctrl-C ends the program with one line; where it is ignored, or has another handler, that stays."""
    own = threading.current_thread() is threading.main_thread()
    if own and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_again() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt again, as a command expects it."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, _raise)


def insist() -> None:
    """Raise KeyboardInterrupt where one was swallowed since, by the set-up of others, or noted."""
    if _seen:
        _seen.clear()
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise KeyboardInterrupt


@contextmanager
def noted() -> Iterator[None]:
    """Inside, Ctrl-C is noted, and raised by `insist` and at the end.

    For the work of others that cannot be left anywhere: a log that is half open or half closed fails in other words.
    """
    before = signal.getsignal(signal.SIGINT)
    own = threading.current_thread() is threading.main_thread() and before in (_raise, signal.default_int_handler)
    if not own:
        yield
        return
    signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    insist()


def no_longer_noted() -> None:
    """Inside `noted`: from now on Ctrl-C raises KeyboardInterrupt at once."""
    if signal.getsignal(signal.SIGINT) is _note:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    name = " ".join(["usd3", *sys.argv[1:2]])
    os.write(2, f"{name}: interrupted\n".encode(errors="replace"))
    os._exit(_INTERRUPTED)


def _note(number: int, frame: FrameType | None) -> None:
    _seen.append(number)


def _raise(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; inside an import, which commands have too, a moment later."""
    _seen.append(number)
    if _imports(frame):
        signal.signal(signal.SIGALRM, _raise)
        signal.setitimer(signal.ITIMER_REAL, _MOMENT)
    else:
        raise KeyboardInterrupt


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib._bootstrap"):
            return True
        frame = frame.f_back
    return False
