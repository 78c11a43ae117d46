import os

from support.problems import HAS_TRITON

if HAS_TRITON and os.environ.get("TRITON_INTERPRET") == "1":
    from support.triton_interpreter import patch_once_a_launch

    patch_once_a_launch()
