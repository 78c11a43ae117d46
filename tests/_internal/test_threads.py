import os
import subprocess
import sys

import pytest
import torch

from usd3._internal.threads import WAIT_SETTINGS, _Holder, waiting_asleep

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()

# A callback that sleeps after work for two threads: what the process computes meanwhile is a thread that waits awake.
_BUSY = """
import time
import torch, usd3

torch.set_num_threads(2)
def model(x, t):
    torch.zeros(2**17).add_(1)
    return torch.zeros(*x.shape, 3)
def seconds(work):
    before = time.process_time()
    work()
    return time.process_time() - before
nap = lambda step=None: time.sleep(0.03)
d = usd3.Diffusion(usd3.Uniform(3), usd3.Cosine())
draw = lambda: d.sample(model, (1, 2), num_steps=16, callback=nap)
outside = lambda: [(model(torch.zeros(1, 2), None), nap()) for _ in range(16)]
draw(), outside()
before, inside, after = seconds(outside), seconds(draw), seconds(outside)
print(before, inside, after, torch.get_num_threads())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="libgomp runs the threads on Linux")
@pytest.mark.skipif(CORES < 2, reason="threads wait asleep on one core")
def test_threads_that_wait_keep_no_core_busy_while_objects_are_drawn_and_wait_as_before_afterwards():
    free = {name: value for name, value in os.environ.items() if name not in (*WAIT_SETTINGS, "OMP_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", _BUSY], env=free, capture_output=True, text=True, check=True)
    before, inside, after, threads = map(float, done.stdout.split())
    assert inside < 0.5 * min(before, after), done.stdout
    assert threads == 2


@pytest.fixture
def two_threads(monkeypatch):
    for name in WAIT_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.skipif(sys.platform != "linux", reason="libgomp runs the threads on Linux")
def test_a_call_inside_another_shares_the_team_that_is_held(two_threads, monkeypatch):
    started, ended = [], []
    monkeypatch.setattr(_Holder, "__init__", lambda self: started.append(self))
    monkeypatch.setattr(_Holder, "end", lambda self: ended.append(self))
    with waiting_asleep():
        outer = list(started)
        with waiting_asleep():
            pass
        assert ended == []
    assert len(outer) >= 1
    assert started == outer
    assert set(ended) == set(started)


@pytest.mark.parametrize("setting", WAIT_SETTINGS)
def test_a_policy_of_the_user_holds(two_threads, monkeypatch, setting):
    monkeypatch.setattr(_Holder, "__init__", lambda self: pytest.fail("a team is held"))
    monkeypatch.setenv(setting, "ACTIVE" if setting == "OMP_WAIT_POLICY" else "1000")
    with waiting_asleep():
        pass
