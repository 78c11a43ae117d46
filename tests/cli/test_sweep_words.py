"""The words of `usd3 evaluate --sweep`."""

from dataclasses import astuple

import pytest

from usd3.cli.sample import CorrectorOptions
from usd3.cli.sweep_words import Variant, label, variants


def test_the_paper_has_nine_settings():
    found = [astuple(own.corrector)[:3] for own in variants("paper")]
    assert found[0] == (0, 0.001, None)
    pairs = {(2, 0.001), (2, 0.005), (5, 0.001), (5, 0.002)}
    assert set(found[1:]) == {(*pair, last) for pair in pairs for last in (10, 20)}
    assert len(found) == 9


def test_equal_calls_are_equal():
    base, *others = variants("equal-calls")
    assert base == Variant(CorrectorOptions(0, last=None), 64)
    assert {steps + own.num_steps * min(own.last or 0, steps - 1) for own, steps in others} == {128}
    assert {own.kind for own, _ in others} == {"mcmc", "gibbs"}


@pytest.mark.parametrize(
    ("word", "options", "steps", "name"),
    [
        ("0", {"num_steps": 0, "last": None}, None, "no corrector"),
        ("0@128", {"num_steps": 0, "last": None}, 128, "128 steps, no corrector"),
        ("2,0.001,10", {"num_steps": 2, "last": 10}, None, "N = 2, Δn = 0.001, last 10"),
        ("5,auto,all", {"num_steps": 5, "step_size": "auto", "last": None}, None, "N = 5, Δn = auto, all steps"),
        ("1,0.5,8@64", {"num_steps": 1, "step_size": 0.5, "last": 8}, 64, "64 steps, N = 1, Δn = 0.5, last 8"),
        (
            "gibbs:2,4,all",
            {"num_steps": 2, "last": None, "count": 4},
            None,
            "Gibbs, N = 2, 4 of all elements, all steps",
        ),
        (
            "gibbs:1,2.5%,9,informed@32",
            {"num_steps": 1, "last": 9, "share": 0.025, "informed": True},
            32,
            "32 steps, Gibbs, N = 1, 2.5 % of the least likely elements, last 9",
        ),
    ],
)
def test_a_word_is_a_corrector_and_a_number_of_steps(word, options, steps, name):
    kind = "gibbs" if word.startswith("gibbs") else "mcmc"
    (found,) = variants(word)
    assert found == Variant(CorrectorOptions(**options, kind=kind), steps)
    assert label(found) == name


@pytest.mark.parametrize(
    "word",
    ["2,0.1", "0,1,3", "2,0.1,3,informed", "gibbs:2,0,3", "gibbs:2,0%,3", "gibbs:2,0.5,3", "gibbs:0", "1,1,1@", "0@0"],
)
def test_other_words_are_refused(word):
    with pytest.raises(ValueError, match=f"sweep = {word}: expected NUM_STEPS,STEP_SIZE,LAST"):
        variants(f"0 {word}")


def test_the_same_corrector_with_another_number_of_steps_is_another_word():
    assert len(variants("0 0@64 0@128")) == 3
    with pytest.raises(ValueError, match="sweep = 64 steps, no corrector: expected correctors that differ"):
        variants("0@64 0@64")
