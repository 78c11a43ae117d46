"""Triton's interpreter, made quick enough for a test suite.

Two things cost more than the kernels themselves:

- Every call of a device function replaces the functions of Triton's language anew, although the launch around it did
  so. That is 40 % of the interpreter's time. Here it happens once a launch.
- Coverage follows each operation through thousands of lines of Python. The kernels branch at compile time, so the
  lines that run depend on the compile-time arguments: only the first launch with given ones is measured.
"""

import inspect
import sys

from support.tracing import untraced

__all__ = ["quicken"]


def quicken() -> None:
    """Make launches of interpreted kernels quick.

    Does nothing without Triton, or with a version whose interpreter is made in another way.
    """
    try:
        import triton.language as tl
        from triton.runtime import interpreter
    except ImportError:
        return
    if not all(hasattr(interpreter, name) for name in ("GridExecutor", "_LangPatchScope", "_patch_lang")):
        return
    patch, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    patched, measured = set(), set()

    def patch_new(fn):
        seen = {v.__name__ for v in fn.__globals__.values() if inspect.ismodule(v) and v in (tl, tl.core)}
        if seen <= patched:
            return interpreter._LangPatchScope()
        patched.update(seen)
        return patch(fn)

    def quick_launch(self, *args, **kwargs):
        patched.clear()
        given = dict(zip(self.arg_names, args)) | kwargs
        variant = (self.fn.__qualname__, *(str(given.get(name)) for name in self.constexprs))
        if variant in measured:
            return untraced(launch)(self, *args, **kwargs)
        if sys.gettrace():  # not in the threads of the backward pass
            measured.add(variant)
        return launch(self, *args, **kwargs)

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = patch_new, quick_launch
