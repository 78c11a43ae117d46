"""Time and memory of one sampling step from logits: the coefficients, the uniforms and the draw.

    python benchmarks/draw.py

Columns `authors_ms` and `target_ms` are anchors measured earlier on an NVIDIA H200. Cross entropy, forward and
backward, is there to compare with.
"""

from shared import STEP_SIZES, measure_table, options

from usd3.bench import Job, Problem, Size

CASES = (
    {"time": "continuous"},
    {"time": "discrete"},
    {"time": "continuous", "noise": "absorbing"},
    {"time": "continuous", "dtype": "bf16"},
)


def main() -> None:
    """Measure every case at every size."""
    given = options(__doc__, STEP_SIZES, "draw.csv")
    sizes = [Size.parse(size) for size in given.sizes]
    jobs = [Job("step", Problem(size, device=given.device, **case)) for case in CASES for size in sizes]
    measure_table(given, "draw", jobs)


if __name__ == "__main__":
    main()
