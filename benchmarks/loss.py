"""Time and memory of the loss and its gradient, from logits and from hidden states.

    python benchmarks/loss.py

Continuous and discrete time, the simplified objective, absorbing noise, and bf16 logits, at four sizes. Columns
`authors_ms` and `target_ms` are anchors measured earlier on an NVIDIA H200.
"""

from shared import LOSS_SIZES, measure_table, options

from usd3.bench import Job, Problem, Size

CASES = (
    {"time": "continuous"},
    {"time": "discrete"},
    {"time": "discrete", "objective": "usd3*"},
    {"time": "continuous", "noise": "absorbing"},
    {"time": "continuous", "dtype": "bf16"},
)
LARGE = 8192  # from this K on, from hidden states too


def main() -> None:
    """Measure every case at every size."""
    given = options(__doc__, LOSS_SIZES, "loss.csv")
    problems = [Problem(Size.parse(size), device=given.device, **case) for case in CASES for size in given.sizes]
    jobs = [Job("loss", problem) for problem in problems]
    jobs += [
        Job("projection", Problem(Size.parse(size), dtype=dtype, device=given.device))
        for dtype in ("fp32", "bf16")
        for size in given.sizes
        if Size.parse(size).K >= LARGE
    ]
    measure_table(given, "loss", jobs)


if __name__ == "__main__":
    main()
