"""Ctrl-C while a program is loading, is being set up, or comes to its end.

Python raises KeyboardInterrupt in whatever code is running. During an import this goes wrong: extensions of NumPy and
torch swallow the exception or fail with another one, and so do `except` clauses around imports in other libraries.
Until a command begins there is nothing to save or to clean up, so the program can simply end.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = [
    "defer_interrupts",
    "exit_on_interrupt",
    "raise_deferred_interrupt",
    "raise_on_interrupt",
    "stop_deferring_interrupts",
]

_INTERRUPTED = 130
_RETRY_SECONDS = 0.05
_seen: list[int] = []  # signals that arrived and were not raised yet


def exit_on_interrupt() -> None:
    """From now on, Ctrl-C ends the program with one line. A handler other than Python's default one stays."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


def raise_on_interrupt() -> None:
    """From now on, Ctrl-C raises KeyboardInterrupt again, as commands expect."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, _raise)


def raise_deferred_interrupt() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was deferred, or was raised earlier and swallowed by another library."""
    if _seen:
        _seen.clear()
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise KeyboardInterrupt


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Inside, Ctrl-C is only recorded. `raise_deferred_interrupt` and the end of the block raise it.

    For code of other libraries that cannot stop anywhere: Lightning fails with other errors if its log is half open.
    """
    before = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or before not in (_raise, signal.default_int_handler):
        yield
        return
    signal.signal(signal.SIGINT, _record)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    raise_deferred_interrupt()


def stop_deferring_interrupts() -> None:
    """Inside `defer_interrupts`: from now on, Ctrl-C raises KeyboardInterrupt at once."""
    if signal.getsignal(signal.SIGINT) is _record:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit(number: int, frame: FrameType | None) -> None:
    program = " ".join(["usd3", *sys.argv[1:2]])
    os.write(2, f"{program}: interrupted\n".encode(errors="replace"))
    os._exit(_INTERRUPTED)


def _record(number: int, frame: FrameType | None) -> None:
    _seen.append(number)


def _raise(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt. During an import, wait a moment and try again: commands import modules too."""
    _seen.append(number)
    if _is_importing(frame):
        signal.signal(signal.SIGALRM, _raise)
        signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)
    else:
        raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib._bootstrap"):
            return True
        frame = frame.f_back
    return False
