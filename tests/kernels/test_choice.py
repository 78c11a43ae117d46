"""Which implementation runs."""

import importlib.util

import pytest
import torch

import usd3
from support.problems import CPP, TRITON, device_of
from usd3.kernels import IMPLEMENTATIONS, choice, chosen, loss

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def ran(monkeypatch):
    """The implementations whose rows are asked for."""
    seen, rows = [], loss.loss_rows
    monkeypatch.setattr(loss, "loss_rows", lambda *args: (seen.append(args[-1]), rows(*args))[1])
    return seen


def step(impl):
    d, device = usd3.Diffusion(usd3.Uniform(3), usd3.Linear(), impl=impl), device_of(impl)
    x = torch.zeros(1, 2, dtype=torch.long, device=device)
    return d.loss_from_logits(torch.zeros(1, 2, 3, device=device), x, x, 0.5).loss


def test_only_known_names_are_taken():
    with pytest.raises(ValueError, match=r"^impl = fast: expected one of auto, eager, chunked, cpp, triton$"):
        usd3.Diffusion(usd3.Uniform(3), usd3.Linear(), impl="fast")
    for impl in IMPLEMENTATIONS:
        assert usd3.Diffusion(usd3.Uniform(3), usd3.Linear(), impl=impl).impl == impl
    assert usd3.Diffusion(usd3.Uniform(3), usd3.Linear()).impl == "auto"


@pytest.mark.parametrize(("has_compiler", "expected"), [(True, "cpp"), (False, "chunked")])
def test_auto_is_cpp_on_a_cpu_with_a_compiler(monkeypatch, has_compiler, expected):
    monkeypatch.setattr(choice, "cpp_runs", lambda: has_compiler)
    assert chosen("auto", CPU) == expected  # even with Triton's interpreter


@pytest.mark.parametrize("impl", ["chunked", CPP, TRITON])
def test_an_implementation_runs_where_it_is_forced(ran, impl):
    step(impl)
    assert ran == [impl]


def test_eager_runs_no_kernel(ran):
    step("eager")
    assert ran == []


@pytest.mark.parametrize("installed", [True, False])
def test_auto_takes_triton_on_a_gpu_that_has_it(monkeypatch, installed):
    monkeypatch.setattr(choice, "triton_runs_on", lambda kind: installed)
    assert chosen("auto", GPU) == ("triton" if installed else "chunked")


@pytest.mark.parametrize("impl", ["eager", "chunked"])
def test_a_forced_choice_holds_on_every_device(impl):
    assert chosen(impl, CPU) == chosen(impl, GPU) == impl


def test_triton_is_refused_in_one_line_where_it_cannot_run(monkeypatch):
    monkeypatch.setattr(choice, "triton_runs_on", lambda kind: False)
    d = usd3.Diffusion(usd3.Uniform(3), usd3.Linear(), impl="triton")
    x, logits = torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, 2, 3)
    for call in (
        lambda: d.loss_from_logits(logits, x, x, 0.5),
        lambda: d.loss_terms(logits, x, x, 0.5),
        lambda: d.draw(logits, x, 0.5, 0.2),
        lambda: d.sample(lambda x, t: logits, (1, 2), 2),
    ):
        with pytest.raises(
            ValueError, match=r"^impl = triton: expected auto, eager or chunked: Triton does not run on cpu$"
        ):
            call()


@pytest.mark.parametrize(("device", "has_compiler"), [(GPU, True), (CPU, False)])
def test_cpp_is_refused_in_one_line_where_it_cannot_run(monkeypatch, device, has_compiler):
    monkeypatch.setattr(choice, "cpp_runs", lambda: has_compiler)
    with pytest.raises(ValueError, match=r"^impl = cpp: expected auto, eager or chunked: C\+\+ does not run on "):
        chosen("cpp", device)


def test_triton_runs_on_recent_gpus_and_in_the_interpreter(monkeypatch):
    runs = choice._triton_runs_on  # without its memory
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert runs("cpu")
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert not runs("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda i: (7, 0))
    assert runs("cuda")
    assert not runs("mps")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda i: (6, 1))
    assert not runs("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda i: (9, 0))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not runs("cuda")
