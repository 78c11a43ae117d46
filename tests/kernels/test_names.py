"""A computation of `usd3.kernels`, its implementations, its tests and its benchmark share one name."""

from pathlib import Path

import pytest

from support.places import ROOT
from usd3 import kernels

SHARED = {"__init__", "choice", "padding", "read_rows"}  # no computations: what they all, or the networks, use
MODULES = {path.stem for path in Path(kernels.__file__).parent.glob("*.py")} - SHARED
COMPUTATIONS = {name for name in MODULES if not name.startswith(("chunked_", "cpp_", "triton_"))}
IN_NETWORKS = {"dropout"}  # which torch computes elsewhere, and benchmarks/train_step.py measures
# which the core computes in plain torch, and benchmarks/host.py measures
ON_LOGITS = COMPUTATIONS - IN_NETWORKS - {"coefficients"}


def test_there_are_three_computations_on_logits_one_on_times_and_one_in_networks():
    assert {"loss", "draw", "projection", "coefficients", *IN_NETWORKS} == COMPUTATIONS


@pytest.mark.parametrize("name", sorted(ON_LOGITS))
def test_a_computation_has_tests_and_a_benchmark_of_its_name(name):
    assert f"chunked_{name}" in MODULES
    for path in (f"tests/kernels/test_{name}.py", f"benchmarks/{name}.py"):
        assert (ROOT / path).is_file(), path


@pytest.mark.parametrize("name", sorted(MODULES - COMPUTATIONS))
def test_an_implementation_is_named_by_its_computation(name):
    """`chunked_common`, `cpp_common` and `triton_common` are what the implementations share."""
    _, computation = name.split("_", 1)
    assert computation.split("_")[0] in COMPUTATIONS | {"common"}
