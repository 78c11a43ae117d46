"""Ctrl-C before a training has begun, at many moments."""

import os
import signal
import subprocess
import sys

import lightning.pytorch as pl
import pytest

from support.runs import tiny_recipe
from usd3._internal import interrupts as _interrupts
from usd3.cli.main import main
from usd3.training.run import fit

INTERRUPTED = """
import os, signal, sys
calls, last = 0, int(sys.argv[1])
def count(frame, event, argument):
    global calls
    calls += event == "call"
    if calls == last:
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process ignores it
import usd3.__main__
sys.argv = ["usd3", "train", "--run", "never"]
sys.setprofile(count)
sys.exit(usd3.__main__.main())
"""


@pytest.mark.parametrize("call", [20, 50, 2_000, 20_000, 60_000])
def test_while_the_program_is_loaded_it_ends_with_one_line(call, tmp_path):
    words = [sys.executable, "-c", INTERRUPTED, str(call)]
    result = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "usd3 train: interrupted\n")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def as_program(monkeypatch):
    """The signals as a command of the program has them."""
    monkeypatch.setattr(_interrupts, "_seen", [])
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _interrupts.exit_on_interrupt()
    _interrupts.raise_on_interrupt()
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("part", range(8))
def test_while_a_training_is_set_up_it_leaves_nothing_behind(part, as_program, tmp_path, capsys, monkeypatch):
    path = tiny_recipe(tmp_path).data.path
    calls, last = 0, 500 + 1_500 * part  # from the first moments of the command to the last before training

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"
        if calls == last:
            sys.setprofile(None)
            os.kill(os.getpid(), signal.SIGINT)

    words = ["train", "array", "small", "--data.path", path, "--run", str(tmp_path / "run"), "--progress", "false"]
    original = sys.modules["usd3.cli.commands"].raise_on_interrupt
    monkeypatch.setattr("usd3.cli.commands.raise_on_interrupt", lambda: (original(), sys.setprofile(count)))
    try:
        assert main([*words, "--training.accelerator", "cpu", "--training.steps", "100000"]) == 130
    finally:
        sys.setprofile(None)
    assert calls == last
    assert capsys.readouterr().err == "usd3 train: interrupted (nothing was begun)\n"
    assert [file.name for file in tmp_path.iterdir()] == ["data.npz"]


def test_an_import_is_not_broken_off_but_what_follows_is(as_program, tmp_path, monkeypatch):
    code = "import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\nexcept BaseException:\n    pass\n"
    (tmp_path / "interrupted_import.py").write_text(code + "whole = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def load_and_wait():
        __import__("interrupted_import")
        while True:
            pass

    with pytest.raises(KeyboardInterrupt):
        load_and_wait()
    assert sys.modules["interrupted_import"].whole


def test_what_others_swallowed_is_raised_when_the_training_begins(as_program, tmp_path, capsys, monkeypatch):
    from usd3.training import run as experiment

    original = experiment.pipeline_for

    def swallowing(*given):
        try:
            signal.raise_signal(signal.SIGINT)
        except BaseException:
            return original(*given)

    monkeypatch.setattr(experiment, "pipeline_for", swallowing)
    path = tiny_recipe(tmp_path).data.path
    words = ["train", "array", "small", "--data.path", path, "--run", str(tmp_path / "run"), "--progress", "false"]
    assert main([*words, "--training.accelerator", "cpu", "--training.steps", "20"]) == 130
    assert capsys.readouterr().err == "usd3 train: interrupted (nothing was begun)\n"
    assert not (tmp_path / "run").exists()


class Interrupted(pl.Callback):
    """Ctrl-C in a hook of Lightning, where its logs are half open or half closed."""

    def __init__(self, hook):
        self.hook, self.ended = hook, []

    def setup(self, trainer, module, stage):
        self.interrupt("setup")

    def teardown(self, trainer, module, stage):
        self.interrupt("teardown")

    def interrupt(self, hook):
        if hook == self.hook:
            signal.raise_signal(signal.SIGINT)
        self.ended.append(hook)


@pytest.mark.parametrize("hook", ["setup", "teardown"])
def test_the_set_up_and_the_end_of_a_trainer_are_not_broken_off(hook, as_program, tmp_path):
    recipe, interrupted = tiny_recipe(tmp_path, steps=2, validate_every=0), Interrupted(hook)
    with pytest.raises((KeyboardInterrupt, SystemExit)):  # as Lightning has it
        fit(recipe, tmp_path / "run", progress=False, callbacks=[interrupted])
    assert hook in interrupted.ended
    assert (tmp_path / "run" / "model.safetensors").exists() is (hook == "teardown")
    fit(recipe, tmp_path / "run", resume=hook == "teardown", progress=False)  # no interrupt is deferred any more


def test_a_second_time_stops_at_once(as_program, tmp_path):
    class Twice(pl.Callback):
        went_on = False

        def on_train_batch_end(self, *_):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            self.went_on = True

    twice = Twice()
    with pytest.raises((KeyboardInterrupt, SystemExit)):  # as Lightning has it
        fit(tiny_recipe(tmp_path, validate_every=0), tmp_path / "run", progress=False, callbacks=[twice])
    assert not twice.went_on


def test_who_ignores_interruptions_goes_on_ignoring_them():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _interrupts.exit_on_interrupt()
        _interrupts.raise_on_interrupt()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
