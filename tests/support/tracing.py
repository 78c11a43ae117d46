"""Coverage traces every line of Python that runs, also those of libraries. Where hardly any is ours, it need not."""

import functools
import sys

__all__ = ["spare_libraries", "untraced"]


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
            resume(trace)

    return run


def resume(trace) -> None:
    """Trace again. Coverage's tracer notices at the next call of a function: there must be one before the return."""
    sys.settrace(trace)
    (lambda: None)()


def spare_libraries() -> None:
    """Do not trace how torch.compile makes a graph and how Matplotlib paints a figure: a half of their time."""
    import torch._dynamo.convert_frame
    from matplotlib.figure import Figure

    torch._dynamo.convert_frame._compile = untraced(torch._dynamo.convert_frame._compile)
    Figure.savefig = untraced(Figure.savefig)
