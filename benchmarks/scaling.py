"""Time and memory against K, B and D, the other two fixed; fitted exponents, and plots against K.

    python benchmarks/scaling.py

Exponents near 1 on the larger half of the sizes show linear cost; smaller ones, that launches still count.
"""

from shared import options

from usd3.bench import Problem, Size, growing, run_scaling
from usd3.bench.plots import memory_plot, time_plot

MOST = {"cuda": 1 << 30, "cpu": 1 << 22}


def main() -> None:
    """Measure, fit, plot."""
    given = options(__doc__, ("16,256,512",), "scaling.csv", compiled=False)
    base = Problem(Size.parse(given.sizes[0]), device=given.device)
    rows = run_scaling(given.bench, growing(base, MOST[given.device.type]), given.csv)
    time_plot(rows["K"], given.csv.with_name("time_against_k.png"))
    memory_plot(rows["K"], given.csv.with_name("memory_against_k.png"))
    print(f"wrote {given.csv} and plots beside it")


if __name__ == "__main__":
    main()
