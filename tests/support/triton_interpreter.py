"""Triton's interpreter, faster.

The interpreter replaces the functions of Triton's language at every call of a device function, although it did so when
the kernel was launched. That is 40 % of its time. Here it does so once a launch.
"""

import inspect

import triton.language as tl
from triton.runtime import interpreter

__all__ = ["patch_once_a_launch"]


def patch_once_a_launch():
    """Let nested calls of device functions use the language as the launch left it.

    Does nothing with a version of Triton whose interpreter is made in another way.
    """
    if not all(hasattr(interpreter, name) for name in ("GridExecutor", "_LangPatchScope", "_patch_lang")):
        return
    patch, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    patched = set()

    def patch_new(fn):
        seen = {v.__name__ for v in fn.__globals__.values() if inspect.ismodule(v) and v in (tl, tl.core)}
        if seen <= patched:
            return interpreter._LangPatchScope()
        patched.update(seen)
        return patch(fn)

    def launch_anew(self, *args, **kwargs):
        patched.clear()
        return launch(self, *args, **kwargs)

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = patch_new, launch_anew
