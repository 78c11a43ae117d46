"""Which tests belong to which module: the tree of tests mirrors the tree of the package."""

from collections.abc import Iterator
from pathlib import Path

__all__ = ["ABOUT_MORE", "ELSEWHERE", "PACKAGES", "files_of_tests", "mirrored"]

PACKAGES = ("core", "kernels")
"""Every module of these has tests of its own, or is in `ELSEWHERE`."""

ELSEWHERE: dict[str, tuple[str, ...]] = {
    # module, below src/usd3: where its tests are, below tests
    "core/closed_forms.py": ("kernels/test_coefficients.py",),
    # the base class of Diffusion: what a user passes reaches its checks, times and grids by the methods of Diffusion
    "core/coefficients.py": ("core/test_diffusion.py", "core/test_bad_input.py"),
    "core/fused.py": ("kernels/test_loss.py", "kernels/test_draw.py", "kernels/test_projection.py"),
    "core/given.py": ("core/samplers/test_samplers.py", "core/samplers/test_loop.py", "core/test_bad_input.py"),
    "core/noisy_batch.py": ("core/test_objectives.py", "core/test_diffusion.py"),
    "core/options.py": ("training/test_options.py",),
    "core/samplers/corrector.py": ("core/samplers/test_samplers.py", "core/samplers/test_loop.py"),
    "core/samplers/euler.py": ("core/samplers/test_samplers.py", "core/samplers/test_loop.py"),
    "core/samplers/exact.py": ("core/samplers/test_samplers.py", "core/samplers/test_loop.py"),
    "core/samplers/gillespie.py": ("core/samplers/test_samplers.py", "core/samplers/test_loop.py"),
    "core/samplers/run.py": ("core/samplers/test_samplers.py", "core/samplers/test_loop.py"),
    "core/samplers/tau_leaping.py": ("core/samplers/test_samplers.py", "core/samplers/test_loop.py"),
    "core/terms.py": ("kernels/test_loss.py",),  # the eager code, beside the fused one
    "kernels/chunked_common.py": ("kernels/test_loss.py", "kernels/test_masks.py", "kernels/test_layouts.py"),
    "kernels/chunked_draw.py": ("kernels/test_draw.py", "kernels/test_logits.py", "kernels/test_layouts.py"),
    "kernels/chunked_loss.py": ("kernels/test_loss.py", "kernels/test_logits.py", "kernels/test_layouts.py"),
    "kernels/chunked_projection.py": ("kernels/test_projection.py",),
    "kernels/cpp_loss.py": ("kernels/test_loss.py", "kernels/test_logits.py", "kernels/test_layouts.py"),
    "kernels/draw.py": ("kernels/test_layouts.py",),
    "kernels/loss.py": ("kernels/test_layouts.py", "kernels/test_masks.py"),
    "kernels/triton_coefficients.py": ("kernels/test_coefficients.py",),
    "kernels/triton_common.py": ("kernels/test_loss.py", "kernels/test_draw.py"),
    "kernels/triton_dropout.py": ("kernels/test_dropout.py",),
    "kernels/triton_draw.py": ("kernels/test_draw.py", "kernels/test_logits.py", "kernels/test_layouts.py"),
    "kernels/triton_loss.py": ("kernels/test_loss.py", "kernels/test_logits.py", "kernels/test_layouts.py"),
    "kernels/triton_loss_cells.py": ("kernels/test_loss.py", "kernels/test_logits.py"),
}
"""Modules with tests in files of another name, instead of or beside their own."""

ABOUT_MORE: dict[str, str] = {
    "core/samplers/test_cuda.py": "all samplers where there is a GPU",
    "core/test_bad_input.py": "every function refuses bad input in the same words",
    "core/test_numerics.py": "losses, bounds and draws at the limits of what numbers can hold",
    "kernels/test_names.py": "kernels, tests and benchmarks share their names",
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
