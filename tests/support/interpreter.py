"""Triton's interpreter, made quick enough for a test suite.

Two things cost more than the kernels themselves:

- Every call of a device function patches the whole of `triton.language` anew, though the launch around it has done so.
  Here a launch patches it once for each module of kernels.
- Coverage follows each operation through thousands of lines of Python. The kernels branch at compile time, so the
  lines that run depend on the compile-time arguments: only the first launch with given ones is measured.
"""

import sys

__all__ = ["quicken"]


def quicken() -> None:
    """Patch Triton's interpreter, where there is one that we know."""
    try:
        from triton.runtime import interpreter
    except ImportError:
        return
    executor = interpreter.GridExecutor
    launch, patch_language = executor.__call__, interpreter._patch_lang
    measured, patched = set(), None

    def patch_once(fn):
        if patched is None:  # outside of a launch
            return patch_language(fn)
        if id(fn.__globals__) in patched:
            return interpreter._LangPatchScope()
        patched.add(id(fn.__globals__))
        return patch_language(fn)

    def quick_launch(self, *args, **kwargs):
        nonlocal patched
        patched, before = set(), patched
        given = dict(zip(self.arg_names, args)) | kwargs
        variant = (self.fn.__qualname__, *(str(given.get(name)) for name in self.constexprs))
        trace = sys.gettrace()  # None in the threads of the backward pass
        if trace and variant in measured:
            sys.settrace(None)
        elif trace:
            measured.add(variant)
        try:
            return launch(self, *args, **kwargs)
        finally:
            patched = before
            if trace and not sys.gettrace():
                resume(trace)

    if all(hasattr(interpreter, name) for name in ("_patch_lang", "_LangPatchScope")):
        executor.__call__, interpreter._patch_lang = quick_launch, patch_once


def resume(trace) -> None:
    """Trace again. Coverage's tracer notices at the next call of a function, before the caller returns."""
    sys.settrace(trace)
    (lambda: None)()
