"""Time and memory of the loss and its gradients from hidden states and the output layer, without all logits.

    python benchmarks/projection.py

For many categories, where the logits take most of the memory; beside it the same task with all logits in memory.
"""

from shared import PROJECTION_SIZES, measure_table, options

from usd3.bench import Job, Problem, Size


def main() -> None:
    """Measure both precisions at every size."""
    given = options(__doc__, PROJECTION_SIZES, "projection.csv")
    sizes = [Size.parse(size) for size in given.sizes]
    jobs = [
        Job("projection", Problem(size, dtype=dtype, device=given.device))
        for dtype in ("fp32", "bf16")
        for size in sizes
    ]
    measure_table(given, "projection", jobs)


if __name__ == "__main__":
    main()
