"""Coverage traces every line that runs, also of libraries. Where none or hardly any is ours, it need not.

Its tracer counts the calls and returns that it sees. A function that pauses it must resume it itself: in a helper,
the tracer would see the return of a call that it never saw, and take the lines that follow for those of another file.
"""

import contextlib
import functools
import importlib
import sys

import pytest

__all__ = ["OursAlone", "spare_libraries", "untraced"]

# What the tests use, and what takes the longest to import
_LARGE = (
    "torch._dynamo",
    "lightning.pytorch",
    "torchmetrics",
    "hypothesis",
    "matplotlib.figure",
    "pandas",
    "starlette",
)

# Coverage's tracer notices that it traces again at the next call of a function.
_notice = lambda: None


def untraced(function):
    """The function, run without tracing."""

    @functools.wraps(function)
    def run(*args, **kwargs):
        trace = sys.gettrace()
        if trace is None:
            return function(*args, **kwargs)
        sys.settrace(None)
        try:
            return function(*args, **kwargs)
        finally:
            sys.settrace(trace)
            _notice()

    return run


@untraced
def _load() -> None:
    for name in _LARGE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def spare_libraries() -> None:
    """Do not trace large imports, how torch.compile makes a graph and how Matplotlib paints a figure."""
    _load()
    import torch._dynamo.convert_frame
    from matplotlib.figure import Figure

    torch._dynamo.convert_frame._compile = untraced(torch._dynamo.convert_frame._compile)
    Figure.savefig = untraced(Figure.savefig)


class OursAlone:
    """A plugin: tests and fixtures are traced, and what pytest does around them is not.

    Of a test with several parameters those cases are traced that have a value which no case before them had: a case of
    each noise and of each implementation, and not each noise with each implementation. What coverage reports is at
    most a little too low.
    """

    def __init__(self):
        self.trace, self.seen = None, set()

    def is_new(self, item) -> bool:
        """Whether a case of a test has a value of a parameter that no case before had."""
        if not hasattr(item, "callspec"):
            return True
        values = {(item.parent.nodeid, item.originalname, *value) for value in item.callspec.indices.items()}
        new = not values <= self.seen
        self.seen |= values
        return new

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self):
        """Pause; in a process of xdist the tracer of its tests is not the one that it began with."""
        self.trace = sys.gettrace()
        sys.settrace(None)
        yield
        sys.settrace(self.trace)
        _notice()

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem):
        """Trace a test that is new."""
        if self.is_new(pyfuncitem):
            sys.settrace(self.trace)
            _notice()
        yield
        sys.settrace(None)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_fixture_setup(self):
        """Trace what a fixture makes; a test that asks for it is traced already."""
        is_paused = sys.gettrace() is None
        if is_paused:
            sys.settrace(self.trace)
            _notice()
        yield
        if is_paused:
            sys.settrace(None)

    pytest_runtest_teardown = pytest_fixture_setup
