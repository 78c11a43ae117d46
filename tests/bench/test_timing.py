import subprocess
import time

import pytest
import torch

from usd3.bench import Budget, Call, machine, measure, measure_all
from usd3.bench.machine import _commit

QUICK = Budget(repeats=3, seconds=0.2)


def test_a_sleep_takes_as_long_as_it_sleeps():
    found = measure(lambda: time.sleep(0.01), "cpu", QUICK)
    assert 9.9 < found.ms_median < 40
    assert found.ms_low <= found.ms_median <= found.ms_high
    assert found.graph_ms is None
    assert found.peak_bytes_beyond_inputs is None


def test_nothing_takes_next_to_nothing():
    assert 0 <= measure(lambda: None, "cpu", QUICK).ms_median < 0.1


def test_calls_are_interleaved_and_sets_taken_in_turn():
    order = []
    first = Call("first", [lambda i=i: (order.append(("first", i)), time.sleep(0.006)) for i in range(3)])
    second = Call("second", [lambda: (order.append(("second", 0)), time.sleep(0.006))])
    measure_all([first, second], "cpu", Budget(repeats=6, seconds=5))
    timed = order[4:]
    assert {i for name, i in timed if name == "first"} == {0, 1, 2}
    for round_ in zip(timed[::2], timed[1::2]):
        assert {name for name, _ in round_} == {"first", "second"}


def test_time_runs_out_but_three_samples_are_taken():
    calls = []
    measure(lambda: (calls.append(1), time.sleep(0.02)), "cpu", Budget(repeats=100, seconds=0.01))
    assert len(calls) == 2 + 3  # two of the warm-up


def test_a_reset_restores_before_every_sample_and_is_not_timed():
    seen = []

    def work():
        seen.append("call")
        time.sleep(0.006)  # longer than a batch, so that a sample is one call

    def restore():
        seen.append("reset")
        time.sleep(0.05)

    found = measure_all([Call("", [work], reset=restore)], "cpu", QUICK)[0]
    assert seen == ["call"] + 4 * ["reset", "call"]
    assert found.ms_median < 40


def test_a_call_that_fails_gets_a_note_and_the_others_go_on():
    def fail():
        raise RuntimeError("no\nluck")

    def exhaust():
        raise torch.OutOfMemoryError("a long story")

    calls = [Call("bad", [fail]), Call("large", [exhaust]), Call("good", [lambda: None])]
    told = []
    bad, large, good = measure_all(calls, "cpu", QUICK, told.append)
    assert (bad.ms_median, bad.note) == (None, "RuntimeError: no luck")
    assert large.note == "out of memory"
    assert good.note == ""
    assert good.ms_median is not None
    assert sorted(told) == sorted(2 * ["bad", "large", "good"])


@pytest.mark.parametrize(
    ("returned", "value"),
    [(torch.tensor(2.0), 2.0), ((torch.tensor(3.0), None), 3.0), (torch.ones(2), None), ((), None)],
)
def test_the_number_a_call_returns_is_kept(returned, value):
    assert measure(lambda: returned, "cpu", QUICK).value == value


@pytest.mark.parametrize("wrong", [{"repeats": 0}, {"seconds": 0}, {"seconds": -1.0}])
def test_a_budget_of_nothing_is_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        Budget(**wrong)


def test_machine_says_on_what_it_was_measured():
    about = machine("cpu")
    assert list(about) == ["machine", "threads", "python", "torch", "triton", "usd3", "commit"]
    assert about["machine"]
    assert about["torch"] == torch.__version__
    assert all(isinstance(value, str) for value in about.values())


def test_the_commit_is_empty_outside_a_repository(tmp_path, monkeypatch):
    assert _commit(tmp_path) == ""
    monkeypatch.setenv("PATH", str(tmp_path))  # no git at all
    assert _commit(tmp_path) == ""


def test_the_commit_tells_of_changes(tmp_path):
    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "machine.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "first")
    clean = _commit(tmp_path)
    assert clean
    assert "+" not in clean
    (tmp_path / "machine.py").write_text("2")
    assert _commit(tmp_path) == f"{clean}+changes"
