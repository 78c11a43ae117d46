"""Training and sampling from Python beside the command line, on an idle and on a busy machine.

    python benchmarks/busy_cpu.py

The same 30 training steps and 20 sampling steps, each in a process of its own, beside 0, 1, ... processes that compute
without end. "command line" waits as `usd3` does, "Python" as `usd3.training.run.fit` and `Pipeline.sample` do,
"spinning" as torch does by itself, which is what a loop of your own does without OMP_WAIT_POLICY=PASSIVE. The three
take turns, so that what else the machine does hits all of them; the clock runs inside the process, without imports.
Besides the time by the clock there is that of all threads on the processor, which other work on the machine hardly
changes. The aim: Python takes at most 1.5 times the command line."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from usd3._internal.threads import WAIT_SETTINGS
from usd3.cli.main import main as command_line  # neither imports torch, which reads how to wait then

WAYS = ("command line", "Python", "spinning")
SPINS = "300000"  # what libgomp takes by itself
AIM = 1.5


def main() -> None:
    """Measure all, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--busy", nargs="+", type=int, default=[0, cores // 2, cores, 2 * cores], help="processes")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "busy_cpu.csv")
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        print(json.dumps(_seconds(given.child == "command line")))
        return
    from shared import write_rows

    from usd3.bench import machine

    about = {**machine(), "threads": cores, "repeats": given.repeats}
    rows: list[dict[str, Any]] = []
    for busy in given.busy:
        load = os.getloadavg()[0]
        with _busy(busy):
            found = [[_measured(way) for way in WAYS] for _ in range(given.repeats)]
        for task in found[0][0]:
            medians = {}
            for way, several in zip(WAYS, zip(*found)):
                clock, processor = zip(*(one[task] for one in several))
                medians[way] = statistics.median(clock), statistics.median(processor)
                seconds = {"median_s": medians[way][0], "least_s": min(clock), "most_s": max(clock)}
                seconds["processor_s"] = medians[way][1]
                rows.append({"busy": busy, "load_before": load, "task": task, "way": way, **seconds, **about})
            ratios = [medians["Python"][i] / medians["command line"][i] for i in (0, 1)]
            told = ", ".join(f"{way} {clock:.2f} s" for way, (clock, _) in medians.items())
            ratio = f"Python / command line {ratios[0]:.2f} (processor {ratios[1]:.2f}); the aim is {AIM}"
            print(f"{busy} busy, {task}: {told}; {ratio}", flush=True)
        write_rows(given.csv, [{k: f"{v:.3f}" if isinstance(v, float) else v for k, v in row.items()} for row in rows])
    print(f"wrote {given.csv}")


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """So many processes that compute."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _measured(way: str) -> dict[str, tuple[float, float]]:
    """Seconds of each task in a new process that waits in this way."""
    unset = {name: value for name, value in os.environ.items() if name not in (*WAIT_SETTINGS, "OMP_NUM_THREADS")}
    own = unset | ({"GOMP_SPINCOUNT": SPINS} if way == "spinning" else {})
    command = [sys.executable, __file__, "--child", way]
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=True)
    found: dict[str, tuple[float, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _seconds(as_command: bool) -> dict[str, list[float]]:
    """Seconds of each task in this process, by the clock and on the processor, as the command line does it if so."""
    if as_command:
        command_line(["--version"])
    import numpy as np

    import usd3
    from usd3.kinds.options import DataConfig
    from usd3.nets.options import ModelConfig
    from usd3.training.options import Recipe, TrainingConfig
    from usd3.training.run import fit

    def timed(work: Callable[[], Any]) -> list[float]:
        began = time.perf_counter(), time.process_time()
        work()
        return [time.perf_counter() - began[0], time.process_time() - began[1]]

    def train(steps: int) -> None:
        settings = TrainingConfig(steps=steps, batch_size=16, validate_every=0, accelerator="cpu")
        recipe = Recipe(data=data, model=ModelConfig(dim=96, depth=4, heads=4), training=settings)
        fit(recipe, folder / f"{steps}", progress=False)

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        np.save(folder / "data.npy", np.random.default_rng(0).integers(0, 129, (200, 128)))
        data = DataConfig(source="array", path=str(folder / "data.npy"))
        train(2)  # imports what is used first
        one, many = timed(lambda: train(1)), timed(lambda: train(31))
    pipeline = usd3.Pipeline.from_pretrained("bach", device="cpu")
    pipeline.sample(1, num_steps=2)
    training = [after - before for before, after in zip(one, many)]
    return {"30 training steps": training, "20 sampling steps": timed(lambda: pipeline.sample(4, num_steps=20))}


if __name__ == "__main__":
    main()
