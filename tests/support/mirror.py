"""Which tests belong to which module: the tree of tests mirrors the tree of the package."""

from collections.abc import Iterator
from pathlib import Path

__all__ = ["ABOUT_MORE", "ELSEWHERE", "PACKAGES", "files_of_tests", "mirrored"]

PACKAGES = ("core", "kernels")
"""Every module of these has tests of its own, or is in `ELSEWHERE`."""

ELSEWHERE: dict[str, tuple[str, ...]] = {
    # module, below src/usd3: where its tests are, below tests
    "core/fused.py": ("kernels/test_losses.py", "kernels/test_draws.py", "kernels/test_projection.py"),
    "core/given.py": ("core/test_samplers.py", "core/test_sampling_loop.py"),
    "core/model.py": ("core/test_sampling_loop.py", "core/test_bad_input.py", "nets/test_self_conditioned.py"),
    "core/noisy_batch.py": ("core/test_objectives.py", "core/test_diffusion.py"),
    "core/options.py": ("training/test_options.py",),
    "core/samplers.py": ("core/test_sampling_loop.py",),
    "kernels/cells.py": ("kernels/test_losses.py", "kernels/test_masks.py"),
    "kernels/chunked.py": ("kernels/test_losses.py", "kernels/test_masks.py", "kernels/test_layouts.py"),
    "kernels/chunked_draw.py": ("kernels/test_draws.py", "kernels/test_layouts.py"),
    "kernels/drawing.py": ("kernels/test_draws.py",),
    "kernels/hidden.py": ("kernels/test_projection.py",),
    "kernels/losses.py": ("kernels/test_autograd.py",),
    "kernels/problem.py": ("kernels/test_losses.py", "kernels/test_masks.py"),
    "kernels/triton_draw.py": ("kernels/test_draws.py", "kernels/test_layouts.py"),
    "kernels/triton_loss.py": ("kernels/test_losses.py", "kernels/test_masks.py", "kernels/test_layouts.py"),
    "kernels/triton_math.py": ("kernels/test_losses.py", "kernels/test_draws.py"),
}
"""Modules with tests in files of another name, instead of or beside their own."""

ABOUT_MORE: dict[str, str] = {
    "core/test_bad_input.py": "every function of the package refuses bad input in the same words",
    "core/test_numerics.py": "losses, bounds and draws at the limits of what numbers can hold",
    "kernels/test_refusals.py": "every implementation refuses the same logits",
}
"""Files of tests that mirror no module, with the reason."""


def mirrored(module: str, tests: Path) -> Iterator[str]:
    """The files below `tests` that have the module's name: a/b.py has a/test_b.py and a/test_b_*.py."""
    folder, stem = (tests / module).parent, Path(module).stem
    for path in sorted([*folder.glob(f"test_{stem}.py"), *folder.glob(f"test_{stem}_*.py")]):
        yield path.relative_to(tests).as_posix()


def files_of_tests(module: str, tests: Path) -> list[str]:
    """All files of tests that belong to a module, below `tests`; both as paths with slashes."""
    others = [name for name in ELSEWHERE.get(module, ()) if (tests / name).is_file()]
    return list(dict.fromkeys([*mirrored(module, tests), *others]))
