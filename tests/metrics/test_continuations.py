import math
import pickle

import numpy as np
import pytest
import torch

from usd3.metrics import (
    EditDiversity,
    NgramHellinger,
    NgramOutliers,
    Summary,
    edit_diversity,
    evaluate_continuations,
    format_table,
    ngram_hellinger,
    ngram_outliers,
)
from usd3.metrics.edits import pair_edits

CLASSES = [(NgramHellinger, ngram_hellinger), (NgramOutliers, ngram_outliers)]


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture
def songs(rng):
    return rng.integers(0, 6, (3, 7, 24)), rng.integers(0, 6, (7, 24))


@pytest.mark.parametrize(("kind", "function"), CLASSES)
@pytest.mark.parametrize("skip", [0, 8])
def test_mean_and_std_over_runs(kind, function, skip, songs):
    generated, true = songs
    metric = kind(2, num_runs=3, skip=skip)
    metric.update(torch.from_numpy(generated), torch.from_numpy(true))
    runs = [function(run[:, skip:], true[:, skip:], 2).mean() for run in generated]
    assert metric.compute() == pytest.approx((np.mean(runs), np.std(runs, ddof=1)))
    assert isinstance(metric.compute(), Summary)


@pytest.mark.parametrize(("kind", "function"), CLASSES)
def test_one_run(kind, function, songs):
    generated, true = songs[0][0], songs[1]
    metric = kind(3)
    metric.update(generated, true)
    assert metric.compute() == pytest.approx((function(generated, true, 3).mean(), 0.0))
    same = kind(3)
    same.update(generated[None], true)
    assert same.compute() == metric.compute()


def test_edit_diversity_over_pairs(songs):
    generated, _ = songs
    metric = EditDiversity(skip=8)
    metric.update(generated)
    pairs = pair_edits(generated[..., 8:]).mean(1)
    assert metric.compute() == pytest.approx((edit_diversity(generated[..., 8:]).mean(), pairs.std(ddof=1)))


def updates(generated, true, pad, cut):
    for part in (slice(0, cut), slice(cut, None)):
        yield generated[:, part], true[part], pad[part]


def feed(metric, generated, true, pad):
    metric.update(generated, pad) if isinstance(metric, EditDiversity) else metric.update(generated, true, pad)


METRICS = {
    "hellinger": lambda: NgramHellinger(2, num_runs=3, skip=4),
    "outliers": lambda: NgramOutliers(1, num_runs=3, skip=4),
    "edit": lambda: EditDiversity(skip=4),
    "edit with runs": lambda: EditDiversity(skip=4, num_runs=3),
}


@pytest.mark.parametrize("name", METRICS)
def test_batches_and_processes(name, songs, rng):
    pad = rng.random((7, 24)) < 0.1
    whole, batches, copy = (METRICS[name]() for _ in range(3))
    feed(whole, *songs, pad)
    parts = list(updates(*songs, pad, 2))
    for part in parts:
        feed(batches, *part)
    assert batches.compute() == pytest.approx(whole.compute())
    processes = [METRICS[name](), METRICS[name]()]
    for process, part in zip(processes, parts):
        feed(process, *part)
    processes[0].merge_state(processes[1])
    assert processes[0].compute() == pytest.approx(whole.compute())
    copy.merge_state(pickle.loads(pickle.dumps(whole)))  # a process without songs
    with pytest.warns(UserWarning, match="before the ``update``"):
        assert copy.compute() == pytest.approx(whole.compute())


@pytest.mark.parametrize("name", METRICS)
def test_reduction_is_a_sum(name, songs):
    """What torchmetrics does between processes, with this process gathered twice."""
    once, twice = METRICS[name](), METRICS[name]()
    feed(once, *songs, None)
    feed(twice, *songs, None)
    twice._sync_dist(dist_sync_fn=lambda x, group: [x, x])
    assert int(twice.count) == 2 * int(once.count)
    assert twice.compute() == pytest.approx(once.compute())


def test_forward_and_reset(songs):
    generated, true = songs
    metric = NgramHellinger(1, num_runs=3)
    first = metric(generated[:, :3], true[:3])
    assert first.mean == pytest.approx(np.mean([ngram_hellinger(run[:3], true[:3], 1) for run in generated]))
    metric(generated[:, 3:], true[3:])
    assert metric.compute().mean == pytest.approx(np.mean([ngram_hellinger(run, true, 1) for run in generated]))
    metric.reset()
    metric.update(generated[:, :3], true[:3])
    assert metric.compute() == pytest.approx(first)


@pytest.mark.parametrize("skip", [0, 8])
def test_evaluate_continuations(skip, songs, rng):
    generated, true = songs
    pad = rng.random(true.shape) < 0.05
    result = evaluate_continuations(generated, true, skip=skip, pad=pad)
    for n in (1, 2, 3):
        for key, kind in (("hellinger", NgramHellinger), ("outliers", NgramOutliers)):
            metric = kind(n, num_runs=3, skip=skip)
            metric.update(generated, true, pad)
            assert result.pop(f"{n}g_{key}") == pytest.approx(metric.compute())
    edit = EditDiversity(skip=skip)
    edit.update(generated, torch.from_numpy(pad))
    assert result == {"edit_diversity": pytest.approx(edit.compute())}
    assert "edit_diversity" not in evaluate_continuations(generated[:1], true)
    assert evaluate_continuations(generated[0], true) == evaluate_continuations(generated[:1], true)


def test_format_table():
    rows = {
        "uniform": {"1g_hellinger": Summary(0.3921, 0.0012), "edit_diversity": Summary(0.7, 0.0)},
        "absorbing, 20 steps": {"3g_outliers": Summary(0.05, 0.01), "1g_hellinger": Summary(math.nan, 0.0)},
    }
    lines = format_table(rows).split("\n")
    assert lines[0].split("  ")[-1] == "edit"
    assert lines[1].split() == ["uniform", "0.392", "±", "0.001", "-", "-", "-", "-", "-", "0.700"]
    assert lines[2].startswith("absorbing, 20 steps  -")
    for name in ("1g Hellinger", "2g Hellinger", "3g Hellinger", "1g outliers", "2g outliers", "3g outliers"):
        assert name in lines[0]
    assert lines[0].index("1g Hellinger") == lines[1].index("0.392")
    assert lines[0].index("3g outliers") == lines[2].index("0.050 ± 0.010")
    assert lines[0].index("edit") == lines[1].index("0.700")


X = np.zeros((2, 3, 8), int)


def filled(metric, *args):
    metric.update(*args)
    return metric


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NgramHellinger(0), "n = 0: expected an integer >= 1"),
        (lambda: NgramOutliers(1, num_runs=0), "num_runs = 0: expected"),
        (lambda: EditDiversity(skip=-1), "skip = -1: expected"),
        (lambda: EditDiversity(num_runs=1), "num_runs = 1: expected an integer >= 2"),
        (lambda: NgramHellinger(1).update(X, X[0]), r"generated.shape = \(2, 3, 8\): expected 1 runs"),
        (lambda: NgramHellinger(1).update(X[0, 0], X[0]), r"generated.shape = \(8,\): expected \(R, N, L\)"),
        (lambda: NgramHellinger(1, 2).update(X, X[0, :2]), r"truth.shape = \(2, 8\): expected 3 songs"),
        (lambda: NgramHellinger(2, skip=7).update(X[0], X[0]), "skip = 7: expected at most 6, 2 less than"),
        (lambda: EditDiversity(skip=8).update(X), "skip = 8: expected at most 7"),
        (lambda: EditDiversity().update(X[:1]), r"samples.shape = \(1, 3, 8\): expected"),
        (lambda: filled(EditDiversity(), X).update(X[[0, 0, 0]]), r"samples.shape = \(3, 3, 8\): expected 1 pairs"),
        (lambda: EditDiversity(num_runs=3).update(X), r"samples.shape = \(2, 3, 8\): expected 3 pairs"),
        (lambda: evaluate_continuations(X, X[0], skip=6), "skip = 6: expected at most 5"),
        (lambda: evaluate_continuations(X, X[0], pad=X > 0), r"pad.shape = \(2, 3, 8\): expected \(3, 8\)"),
        (lambda: format_table({}), "rows = {}: expected at least one row"),
        (lambda: format_table({"a": {"4g": Summary(0, 0)}}), r"rows = \['4g'\]: expected only the columns 1g_"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_nothing_to_compute():
    with (
        pytest.warns(UserWarning, match="before the ``update``"),
        pytest.raises(ValueError, match="at least one song"),
    ):
        NgramHellinger(1).compute()
