"""Processes of Python that we start: they import from where we do, and do not outlive us."""

import ctypes
import os
import signal
import sys

__all__ = ["child_environment", "end_with_parent"]

_PARENT = "USD3_PARENT"
_WHEN_PARENT_DIES = 1  # Linux: PR_SET_PDEATHSIG


def child_environment() -> dict[str, str]:
    """What a child needs to know.

    A module in the current folder, a `random.py` that happens to be there, say, is imported by a child only if it is by
    us: with `python -m usd3` it is, with `usd3` it is not.
    """
    here = sys.path[:1] in ([""], [os.getcwd()])
    return dict(os.environ) | ({} if here else {"PYTHONSAFEPATH": "1"}) | {_PARENT: str(os.getpid())}


def end_with_parent() -> None:
    """In a child: be terminated when the process that started us ends in any way, on Linux even if it is killed."""
    parent = os.environ.pop(_PARENT, None)  # our own children have us for a parent
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_WHEN_PARENT_DIES, int(signal.SIGTERM))
    if os.getppid() != int(parent):  # it ended before we asked
        sys.exit(128 + signal.SIGTERM)
