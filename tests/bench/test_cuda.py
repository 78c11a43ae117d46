import pytest
import torch

from support.runs import tiny_recipe
from usd3.bench import Bench, Budget, Call, Problem, Size, measure, measure_all
from usd3.bench.cost import COLUMNS, CostSettings, measure_cost

pytestmark = pytest.mark.gpu
QUICK = Budget(repeats=5, seconds=0.5)


def test_time_and_memory_of_a_copy():
    source = torch.ones(1 << 26, dtype=torch.uint8, device="cuda")
    found = measure(source.clone, "cuda", QUICK)
    assert 0.005 < found.ms_median < 10
    assert 0.005 < found.graph_ms < 10
    assert found.peak_bytes_beyond_inputs == source.numel()


def test_what_cannot_be_captured_has_no_graph_time_and_does_no_harm():
    x = torch.ones(4, device="cuda")
    asking, after = measure_all(
        [Call("asking", [x.tolist]), Call("after", [lambda: torch.rand(4, device="cuda")])], "cuda"
    )
    assert asking.graph_ms is None
    assert asking.note.startswith("no graph: ")
    assert asking.ms_median > 0
    assert after.note == ""


def test_running_out_of_memory_is_noted():
    found = measure(lambda: torch.empty(1 << 50, dtype=torch.uint8, device="cuda"), "cuda", QUICK)
    assert found.note == "out of memory"


@pytest.mark.parametrize("kind", ["loss", "step", "projection"])
def test_every_row_has_a_time_and_a_peak(kind):
    for row in Bench("cuda", QUICK, hidden=16).rows(kind, Problem(Size(4, 16, 129), device=torch.device("cuda"))):
        assert row.note == ""
        assert row.ms > 0
        assert row.peak_bytes is not None


@pytest.mark.filterwarnings("ignore")  # of torch.compile's own
def test_what_a_method_costs_does_not_depend_on_those_before(tmp_path):
    settings = CostSettings(steps=5, draw=4, draw_steps=20, timed_draw_steps=5, corrector_steps=2)
    found = [measure_cost(tiny_recipe(tmp_path), settings, torch.device("cuda")).values for _ in range(3)]
    assert all(values[name].mean > 0 for values in found for name in COLUMNS)
    first, *others = (values["train_mib"].mean for values in found)
    assert others == pytest.approx([first] * 2, rel=0.02)
