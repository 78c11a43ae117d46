"""When a function is captured, replayed, or called as it is. On a GPU: test_samplers_cuda.py and test_step_cuda.py."""

import gc
import pickle
import weakref

import pytest
import torch
from torch import nn

from support.fake_cuda import FakeCuda
from usd3._internal.graphs import SETTLED, GraphCache, GraphedFunction, waiting_is_an_error


@pytest.fixture
def cuda(monkeypatch):
    return FakeCuda(monkeypatch)


def graphed(cuda, fn, **options):
    function = GraphedFunction(fn, **options)
    cuda.follow(function)
    return function


def test_a_function_is_captured_after_three_calls_and_returns_the_same(cuda):
    calls = []

    def fn(x, y):
        calls.append((torch.is_grad_enabled(), cuda.sync_mode))
        return 2 * x + y

    function = graphed(cuda, fn)
    for i in range(1, 8):
        assert torch.equal(function(torch.full((3,), float(i)), torch.ones(3)), torch.full((3,), 2.0 * i + 1))
        assert function.captured is (i >= SETTLED)
    # the first call may wait for the device; the capture is the fourth, and without gradients
    assert calls[:4] == [(True, 0), (True, 2), (True, 2), (False, 2)]
    assert (cuda.captures, cuda.error_modes, cuda.sync_mode) == (1, ["thread_local"], 0)


def test_the_output_of_a_pure_function_belongs_to_the_caller(cuda):
    function = graphed(cuda, lambda x: (x + 1, x + 2))
    for _ in range(4):
        function(torch.zeros(2))
    first, second = function(torch.zeros(2))
    function(torch.ones(2))
    assert first.tolist() == [1, 1]
    assert second.tolist() == [2, 2]


def test_the_output_of_a_training_step_stays_in_the_graph(cuda):
    weight = nn.Parameter(torch.zeros(2))
    seen = []

    def fn(x):
        seen.append(weight.grad is None)
        weight.grad = torch.ones(2)
        return x + 1

    function = graphed(cuda, fn, trained=[weight])
    for _ in range(4):
        function(torch.zeros(2))
    kept = function(torch.zeros(2))
    function(torch.ones(2))
    assert kept.tolist() == [2, 2]
    assert seen[:4] == [True, False, False, True]  # the graph has a gradient of its own
    assert cuda.error_modes == ["global"]


def test_a_function_that_waits_is_called_as_it_is_and_nobody_is_warned(cuda):
    calls = []

    def fn(x):
        calls.append(1)
        cuda.wait()
        return x + 1

    function = graphed(cuda, fn)
    for _ in range(6):
        assert function(torch.ones(1)).item() == 2
    assert not function.captured
    assert (len(calls), cuda.captures) == (7, 0)  # the second call was made again


def test_the_warm_up_of_a_training_step_is_never_made_again(cuda):
    calls = []

    def fn(x):
        calls.append(1)
        cuda.wait()
        return x + 1

    function = graphed(cuda, fn, trained=[nn.Parameter(torch.zeros(1))])
    for _ in range(6):
        function(torch.ones(1))
    assert function.captured
    assert len(calls) == 3 + 1 + 3


def failing(cuda):
    """A function whose capture fails, with draws."""

    def fn(x):
        drawn = torch.rand(1)
        if cuda.captures:
            cuda.captures -= 1
            raise RuntimeError("not permitted\nand more")
        return x + drawn

    return fn


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("trains", [False, True])
def test_a_failed_capture_leaves_the_generator_and_the_allocator_usable(cuda, breaks, trains):
    cuda.breaks = breaks
    weights = [nn.Parameter(torch.zeros(1))] if trains else []
    function = graphed(cuda, failing(cuda), trained=weights)
    torch.manual_seed(0)
    expected = torch.rand(5)
    torch.manual_seed(0)
    drawn = [function(torch.zeros(1)) for _ in range(3)]
    if trains:
        with pytest.warns(UserWarning, match="training goes on without a CUDA graph, .*: not permitted$"):
            drawn.append(function(torch.zeros(1)))
    else:
        drawn.append(function(torch.zeros(1)))
    drawn.append(function(torch.zeros(1)))
    assert torch.equal(torch.cat(drawn), expected)
    assert cuda.ended_pools == ([(0, 1)] if breaks else [])
    assert not function.captured


@pytest.mark.parametrize("breaks", [False, True])
def test_always_raises_with_the_reason(cuda, breaks):
    cuda.breaks = breaks
    function = graphed(cuda, failing(cuda), mode="always")
    for _ in range(3):
        function(torch.zeros(1))
    with pytest.raises(RuntimeError, match=r"cuda_graph = always: expected a step .* \(not permitted\)$"):
        function(torch.zeros(1))


def test_never_calls_the_function_as_it_is(cuda):
    function = graphed(cuda, lambda x: x + 1, mode="never")
    for _ in range(6):
        function(torch.zeros(1))
    assert cuda.captures == 0


@pytest.mark.parametrize("fails", [False, True])
def test_no_dead_graph_is_freed_during_a_capture(cuda, fails):
    """A dead cycle may hold an earlier graph, and CUDA refuses to free a graph while another is captured."""
    collects = []

    def fn(x):
        collects.append(gc.isenabled())
        if fails and not gc.isenabled():
            raise RuntimeError("waits for the device")
        return x + 1

    function = graphed(cuda, fn)
    for _ in range(4):
        function(torch.zeros(1))
    assert collects[:4] == [True, True, True, False]
    assert gc.isenabled()


def test_an_interrupted_capture_ends(cuda):
    def fn(x):
        if cuda.captures:
            raise KeyboardInterrupt
        return x

    function = graphed(cuda, fn)
    for _ in range(3):
        function(torch.zeros(1))
    with pytest.raises(KeyboardInterrupt):
        function(torch.zeros(1))
    assert not function.captured
    assert cuda.sync_mode == 0


def test_a_function_that_is_dropped_takes_its_graph_with_it(cuda):
    function = graphed(cuda, lambda x: x + 1)
    for _ in range(5):
        function(torch.zeros(1))
    cuda.follow(None)
    graph = weakref.ref(function._graph)
    gc.disable()
    try:
        del function
        assert graph() is None
    finally:
        gc.enable()


def test_waiting_is_an_error_inside_alone(cuda):
    cuda.sync_mode = 1
    with pytest.raises(RuntimeError, match="synchronizing"), waiting_is_an_error():
        cuda.wait()
    assert cuda.sync_mode == 1


class OnCuda(torch.Tensor):
    """Says that it is on a GPU."""

    device = torch.device("cuda", 0)


def test_a_cache_keeps_a_graph_for_each_name_and_shape_and_forgets_them_when_pickled(cuda, monkeypatch):
    monkeypatch.setitem(torch.cuda.default_generators, 0, torch.cuda.default_generators[None])
    monkeypatch.setattr("usd3._internal.graphs._MAX_GRAPHS", 2)
    cache = GraphCache()
    assert cache("cpu", lambda x: x + 1, torch.ones(2)).tolist() == [2, 2]
    assert not cache._functions
    on_cuda = lambda size: torch.ones(size).as_subclass(OnCuda)
    for name, size in [("a", 2), ("a", 2), ("a", 3), ("b", 2)]:
        assert cache(name, lambda x: x + 1, on_cuda(size)).sum() == 2 * size
    assert [(key[0], key[-1]) for key in cache._functions] == [("a", (2,)), ("a", (3,))]
    cache("c", lambda x: x + 1, on_cuda(2).requires_grad_())
    assert not pickle.loads(pickle.dumps(cache))._functions
