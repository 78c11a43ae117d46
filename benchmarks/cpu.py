"""Loss and sampling step on the CPU, as multiples of cross entropy (forward and backward) in the same run.

    python benchmarks/cpu.py

The aims: at most 2.5 times cross entropy for the loss, at most 3 times for a sampling step. The paper authors' module
takes 20 to 30 times and about 20 times on two cores. Absolute times of a shared machine mean little, ratios more, and
on a busy one those of a single thread (OMP_NUM_THREADS=1): threads wait for each other.
"""

from shared import measure_table, options

from usd3.bench import Job, Problem, Size

AIMS = {"loss": 2.5, "step": 3.0}


def main() -> None:
    """Measure, and say how far the aims are."""
    given = options(__doc__, ("16,256,129",), "cpu.csv", device="cpu")
    problems = [Problem(Size.parse(size), time=time) for time in ("continuous", "discrete") for size in given.sizes]
    jobs = [Job(kind, problem) for problem in problems for kind in AIMS]
    for row in measure_table(given, "cpu", jobs):
        if row.contestant == "usd3" and row.times_cross_entropy is not None:
            about = f"{row.kind}, {row.time}, {row.B},{row.D},{row.K}"
            print(f"{about}: {row.times_cross_entropy:.2f} times cross entropy; the aim is {AIMS[row.kind]:g}")


if __name__ == "__main__":
    main()
