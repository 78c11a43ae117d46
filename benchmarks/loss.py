"""Time and memory of the loss and its gradient, from logits.

    python benchmarks/loss.py

Continuous and discrete time, the simplified objective, absorbing noise, and bf16 logits, at four sizes. Columns
`authors_ms` and `target_ms` are anchors measured earlier on an NVIDIA H200. `projection.py` measures the loss from
hidden states.
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


def main() -> None:
    """Measure every case at every size."""
    given = options(__doc__, LOSS_SIZES, "loss.csv")
    sizes = [Size.parse(size) for size in given.sizes]
    jobs = [Job("loss", Problem(size, device=given.device, **case)) for case in CASES for size in sizes]
    measure_table(given, "loss", jobs)


if __name__ == "__main__":
    main()
