"""Trainings that are killed at random moments, or meet another one in their folder; then they are resumed."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from attacks.cases import Case
from attacks.children import Child, Ended, complaint, run_usd3
from attacks.material import Material, train_words
from usd3.pipeline.pipeline import Pipeline
from usd3.training.checkpoints import find_checkpoints, require_whole

__all__ = ["cases", "planted"]

_FAMILY = "kills"
_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_MOST_KILLS = 3  # of one run


def cases(material: Material, seed: int, count: int, programs: int) -> Iterator[Case]:
    """So many runs that are killed in forked processes and in those of a program of its own, and some that meet."""
    for i in range(count):
        number = _SIGNALS[i % len(_SIGNALS)]
        yield Case(_FAMILY, number.name, f"{i}", partial(_killed, material, number, random.Random(f"{seed} kill {i}")))
    for i in range(programs):
        number, chance = _SIGNALS[i % len(_SIGNALS)], random.Random(f"{seed} program {i}")
        kind = f"{number.name} while the program is loaded, too"
        yield Case(_FAMILY, kind, f"{i}", partial(_killed_program, material, number, chance))
    for i in range(max(1, count // 8)):
        chance = random.Random(f"{seed} two {i}")
        yield Case(_FAMILY, "two trainings into one folder", f"{i}", partial(_two, material, chance))
        yield Case(_FAMILY, "a live run resumed", f"{i}", partial(_live, material, chance))


def planted(material: Material) -> Iterator[Case]:
    """What has to be counted as a failure: a damaged checkpoint, another run's weights, a lock that nobody frees."""

    def damage(run: Path) -> None:
        for checkpoint in find_checkpoints(run / "checkpoints"):
            checkpoint.write_bytes(checkpoint.read_bytes()[:-100])

    def exchange(run: Path) -> None:
        recipe = run / "recipe.yaml"
        recipe.write_text(recipe.read_text().replace("lr: 0.003", "lr: 0.002"))

    def lock(run: Path) -> None:
        (run / ".run.lock").write_text('{"process": 1, "host": "elsewhere", "boot": "never", "since": "long ago"}')

    for meddle in (damage, exchange, lock):
        run = partial(_planted, material, meddle)
        yield Case(_FAMILY, "planted", meddle.__name__, run)


def _planted(material: Material, meddle: Callable[[Path], None], folder: Path) -> str | None:
    material.copy_to(folder, "data.npz", "interrupted")
    meddle(folder / "interrupted")
    return _torn(folder / "interrupted") or _resumed(material, folder, folder / "interrupted")


def _killed(material: Material, number: signal.Signals, chance: random.Random, folder: Path) -> str | None:
    """Kill a run up to three times, each time it is resumed, and let it end."""
    material.copy_to(folder, "data.npz")
    run = folder / "run"
    for _ in range(chance.randint(1, _MOST_KILLS)):
        child = Child(_next(run), folder)
        time.sleep(chance.uniform(0, 1.2))
        child.send(number)
        failure = _ending(child.wait(), number) or _torn(run)
        if failure is not None:
            return failure
    return _resumed(material, folder, run)


def _killed_program(material: Material, number: signal.Signals, chance: random.Random, folder: Path) -> str | None:
    """The same with a program that is started anew, and loads for seconds."""
    material.copy_to(folder, "data.npz")
    run, words = folder / "run", [sys.executable, "-m", "usd3", *_next(folder / "run")]
    with subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as program:
        time.sleep(chance.uniform(0.1, 8))
        program.send_signal(number)
        err = program.communicate()[1]
    ended = Ended(program.returncode, 0, 0, err)
    return _ending(ended, number) or _torn(run) or _resumed(material, folder, run)


def _two(material: Material, chance: random.Random, folder: Path) -> str | None:
    """Two trainings begin at about the same time: one of them has the folder, the other is refused in one line."""
    material.copy_to(folder, "data.npz")
    first = Child(_first("run"), folder)
    time.sleep(chance.uniform(0, 0.3))
    second = Child(_first("run"), folder)
    ends = [first.wait(), second.wait()]
    if sorted(ended.status for ended in ends) != [0, 1]:
        return f"ended with {[ended.status for ended in ends]}: {ends[0].err[-200:]} {ends[1].err[-200:]}"
    failure = next((found for ended in ends if (found := complaint(ended, "train"))), None)
    return failure or _finished(material, folder / "run")


def _live(material: Material, chance: random.Random, folder: Path) -> str | None:
    """A run is resumed while it is at work: that is refused, and the run does not notice."""
    material.copy_to(folder, "data.npz")
    run = folder / "run"
    first = Child(_next(run), folder)
    while not (run / "recipe.yaml").is_file() and time.monotonic() - first.begun < 20:
        time.sleep(0.002)
    time.sleep(chance.uniform(0, 0.1))
    second = run_usd3(["train", "--resume", "run"], folder)
    ended = first.wait()
    if (ended.status, second.status) != (0, 1) and second.seconds < ended.seconds:
        return f"ended with {ended.status} and {second.status}: {ended.err[-200:]} {second.err[-200:]}"
    return complaint(ended, "train") or complaint(second, "train") or _finished(material, run)


def _next(run: Path) -> list[str]:
    """The command that goes on with a run, or begins it."""
    begun = (run / "recipe.yaml").is_file()
    return ["train", "--resume", run.name, "--progress", "false"] if begun else _first(run.name)


def _first(run: str) -> list[str]:
    return [*train_words("array", path="data.npz"), "--run", run]


def _ending(ended: Ended, number: signal.Signals) -> str | None:
    """A signal ends a run at once, or with one line that says how to go on; or the run was faster."""
    if ended.status in (0, -number):
        return None if "Traceback" not in ended.err else f"showed a traceback: {ended.err[-300:]}"
    told = [line for line in ended.lines if not line.startswith("stopping after this step")]
    one = len(told) == 1 and told[0].startswith("usd3 train: interrupted")
    return None if ended.status == 130 and one else f"{number.name} ended with {ended.status}: {ended.err[-300:]}"


def _torn(run: Path) -> str | None:
    """A checkpoint or a model that exists is whole."""
    try:
        for checkpoint in find_checkpoints(run / "checkpoints"):
            require_whole(checkpoint)
        if (run / "config.json").is_file():
            Pipeline.from_pretrained(run, device="cpu")
    except (ValueError, OSError) as error:
        return f"left something damaged: {error}"
    return None


def _resumed(material: Material, folder: Path, run: Path) -> str | None:
    """The run goes on, or begins where nothing was begun, and ends as if nothing had happened."""
    ended = run_usd3(_next(run), folder)
    if ended.status != 0:
        return f"the next one ended with {ended.status}: {ended.err[-300:]}"
    return complaint(ended, "train") or _finished(material, run)


def _finished(material: Material, run: Path) -> str | None:
    """A run that is complete, with the weights it should have, and nothing left over."""
    left = [path.name for path in run.rglob(".*")]
    if left:
        return f"left {', '.join(left)}"
    return None if material.has_weights(run) else "ended with other weights"
