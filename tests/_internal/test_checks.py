"""Checks of values: collected in a call, read once."""

import math

import pytest
import torch

from usd3._internal.checks import Checks, LoopChecks


@pytest.fixture(params=[Checks, LoopChecks])
def checks(request):
    return request.param(True)


@pytest.mark.parametrize(
    ("values", "seen"), [([0, 3, 4], "4"), ([-1, 3], "-1"), ([0.5, math.nan], "nan"), ([0.5, math.inf], "inf")]
)
def test_a_value_outside_of_an_interval_is_refused_and_named(checks, values, seen):
    checks.refuse_outside("x", torch.tensor([0, 3]), 0, 3, "0..3")
    checks.refuse_outside("y", torch.tensor(values), 0, 3, "0..3")
    with pytest.raises(ValueError, match=rf"^y contains {seen}: expected 0\.\.3$"):
        checks.raise_first()


def test_both_ends_of_an_interval_and_no_values_at_all_are_fine(checks):
    checks.refuse_outside("x", torch.tensor([0, 3]), 0, 3, "0..3")
    checks.refuse_outside("x", torch.zeros(0), 0, 3, "0..3")
    checks.raise_first()


def test_a_number_that_is_nan_is_refused(checks):
    checks.refuse_nan("logits", torch.tensor(1.0), "numbers")
    checks.raise_first()
    checks.refuse_nan("logits", torch.tensor(math.nan), "numbers")
    with pytest.raises(ValueError, match="logits contains nan: expected numbers"):
        checks.raise_first()


def test_a_nan_among_numbers_of_other_types_is_found():
    checks = Checks(True)
    checks.refuse("x", torch.tensor([1, 2]), lambda v: v > 2, "at most 2")
    checks.refuse_number("t", 0.5, False, "at most 1")
    checks.refuse_nan("logits", torch.tensor(math.nan), "numbers")
    with pytest.raises(ValueError, match="logits contains nan: expected numbers"):
        checks.raise_first()


def test_categories_are_not_rounded_beside_a_number_of_half_precision(monkeypatch):
    """A GPU reads all numbers of a call at once; bfloat16 has no 259."""
    monkeypatch.setattr("torch.compiler.is_compiling", lambda: True)  # so does a compiled call
    for dtype in (torch.bfloat16, torch.float16):
        checks = Checks(True)
        checks.refuse_outside("x", torch.tensor([0, 259, 2051]), 0, 2051, "0..2051")
        checks.refuse_nan("logits", torch.tensor(1.0, dtype=dtype), "numbers")
        checks.raise_first()
        checks.refuse_outside("x", torch.tensor([2049]), 0, 2048, "0..2048")
        checks.refuse_nan("logits", torch.tensor(1.0, dtype=dtype), "numbers")
        with pytest.raises(ValueError, match="x contains 2049"):
            checks.raise_first()


def test_the_first_check_that_failed_is_the_one_that_is_named():
    checks = Checks(True)
    checks.refuse_number("t", 2.5, True, "at most 1")
    checks.refuse_outside("x", torch.tensor([7]), 0, 3, "0..3")
    with pytest.raises(ValueError, match=r"t contains 2\.5: expected at most 1"):
        checks.raise_first()
    checks.raise_first()  # they are read once


@pytest.mark.parametrize("kind", [Checks, LoopChecks])
def test_a_flag_that_is_set_is_refused(kind):
    checks = kind(True)
    flag = checks.flag("logits", torch.device("cpu"), math.nan, "numbers")
    assert flag is not None
    checks.raise_first()
    flag = checks.flag("logits", torch.device("cpu"), math.nan, "numbers")
    assert flag is not None
    flag.fill_(True)
    with pytest.raises(ValueError, match="logits contains nan: expected numbers"):
        checks.raise_first()


def test_a_loop_has_one_flag_which_stays_set():
    checks = LoopChecks(True)
    flags = [checks.flag("logits", torch.device("cpu"), math.nan, "numbers") for _ in range(3)]
    assert flags[0] is flags[1] is flags[2]
    assert flags[0] is not None
    flags[0].fill_(True)
    checks.flag("logits", torch.device("cpu"), math.nan, "numbers")
    with pytest.raises(ValueError, match="logits contains nan: expected numbers"):
        checks.raise_first()


@pytest.mark.parametrize("kind", [Checks, LoopChecks])
def test_checks_that_are_off_refuse_nothing(kind):
    checks = kind(False)
    checks.refuse_outside("x", torch.tensor([7]), 0, 3, "0..3")
    checks.refuse_nan("x", torch.tensor(math.nan), "numbers")
    assert checks.flag("x", torch.device("cpu"), math.nan, "numbers") is None
    checks.refuse_number("x", 7, True, "0..3")
    checks.raise_first()
