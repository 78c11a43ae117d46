import csv

import pytest
import torch

from usd3.bench import Bench, Budget, Problem, Size, as_table, bytes_moved, copy_bandwidth, load_other, write_csv
from usd3.bench import floor as floor_module
from usd3.bench import problem as problem_module
from usd3.bench.steps import _by_probabilities

QUICK = Budget(repeats=2, seconds=0.05)
SMALL = Size(2, 3, 5)


@pytest.fixture(autouse=True)
def small_copy(monkeypatch):
    monkeypatch.setitem(floor_module._COPIED, "cpu", 1 << 16)
    monkeypatch.setattr("usd3.bench.problem._MOST_SETS", 2)


@pytest.mark.parametrize("noise", ["uniform", "absorbing", "marginal"])
@pytest.mark.parametrize("time", ["continuous", "discrete"])
def test_inputs_fit_the_problem(noise, time):
    problem = Problem(SMALL, noise=noise, time=time)
    logits, x_t, x_0, t, s = problem.inputs()
    assert logits.shape == (2, 3, 5)
    assert logits.requires_grad
    assert x_t.shape == x_0.shape == (2, 3)
    assert (s < t).all()
    assert t.is_floating_point() == (time == "continuous")
    assert noise != "absorbing" or x_0.max() < 4
    alpha_bar = problem.alpha_bar(t)
    assert ((alpha_bar >= 0) & (alpha_bar < 1)).all()
    torch.testing.assert_close(problem.m.sum(), torch.tensor(1.0))
    again = problem.inputs()
    assert torch.equal(again.logits, logits)
    assert not torch.equal(problem.inputs(1).logits, logits)


def test_the_sets_are_as_many_as_a_cache_asks_for(monkeypatch):
    monkeypatch.setattr("usd3.bench.problem._MOST_SETS", 32)
    monkeypatch.setitem(problem_module._FOOTPRINT, "cpu", 3 * 120)
    assert len(Problem(SMALL).sets()) == 3
    assert Problem(SMALL).logits_bytes == 120
    assert Problem(SMALL, dtype="bf16").logits_bytes == 60


def test_the_floor_is_bytes_over_bandwidth():
    assert bytes_moved(Problem(SMALL), "loss") == 240
    assert bytes_moved(Problem(SMALL), "step") == 120
    assert floor_module.floor_ms(Problem(SMALL), "loss", bandwidth=240e3) == pytest.approx(1.0)
    assert copy_bandwidth("cpu", QUICK) > 1e6


def test_all_ways_to_compute_a_loss_agree():
    rows = Bench("cpu", QUICK).rows("loss", Problem(SMALL, time="discrete"))
    values = {row.contestant: row.value for row in rows}
    assert list(values) == ["usd3", "usd3 in place", "usd3 chunked", "usd3 eager", "cross entropy"]
    for name in ("usd3", "usd3 in place", "usd3 chunked"):
        assert values[name] == pytest.approx(values["usd3 eager"], rel=1e-4)
    plain = next(row for row in rows if row.contestant == "cross entropy")
    assert plain.times_cross_entropy == 1
    assert all(row.note == "" and row.ms > 0 and row.times_floor > 0 for row in rows)


def test_a_loss_from_hidden_states_agrees_with_the_one_from_logits():
    rows = Bench("cpu", QUICK, hidden=7).rows("projection", Problem(SMALL))
    values = {row.contestant: row.value for row in rows}
    assert list(values) == ["projection", "linear + usd3", "linear + usd3 in place", "linear + cross entropy"]
    assert values["projection"] == pytest.approx(values["linear + usd3"], rel=1e-4)
    assert values["linear + usd3 in place"] == pytest.approx(values["linear + usd3"], rel=1e-4)
    assert {row.H for row in rows} == {7}
    assert {row.floor_ms for row in rows} == {None}
    assert {row.note for row in rows} == {""}


def test_a_step_is_compared_with_cross_entropy():
    rows = Bench("cpu", QUICK).rows("step", Problem(SMALL, noise="absorbing"))
    assert [row.contestant for row in rows] == ["usd3", "usd3 eager", "cross entropy"]
    assert {row.note for row in rows} == {""}
    assert rows[-1].times_floor is None  # the floor of a step says nothing about it


def test_the_eager_code_is_compiled_where_that_is_asked_for(monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda function, mode, dynamic: (compiled.append(mode), function)[1])
    bench = Bench("cpu", QUICK, compile_eager=True)
    for kind in ("loss", "step"):
        found = {row.contestant: row for row in bench.rows(kind, Problem(SMALL))}
        assert found["usd3 compiled"].note == ""
        assert len(found) * 2 == bench.count(kind)
    assert len(compiled) == 2


def test_the_probabilities_that_are_compiled_draw_from_the_step(generator):
    problem = Problem(Size(1, 1, 4))
    diffusion = problem.diffusion("eager")
    logits, x_t, t = torch.randn(1, 1, 4, generator=generator), torch.tensor([[1]]), torch.tensor([0.8])
    many = torch.arange(4000) * 0
    drawn = _by_probabilities(diffusion, logits[many], x_t[many], t[many], t[many] / 2)
    expected = diffusion.backward(logits, x_t, t, t / 2).probs()[0, 0].float()
    torch.testing.assert_close(torch.bincount(drawn.flatten(), minlength=4) / 4000, expected, atol=0.04, rtol=0)


@pytest.mark.parametrize("kind", ["loss", "step", "projection"])
@pytest.mark.parametrize("brief", [False, True])
def test_progress_knows_how_much_there_is(kind, brief, tmp_path):
    file = tmp_path / "other.py"
    file.write_text("def loss(logits, *rest): return logits.sum()")
    bench, told = Bench("cpu", QUICK, other=load_other(file), hidden=4), []
    bench.rows(kind, Problem(SMALL), brief, told.append)
    assert len(told) == bench.count(kind, brief)


def test_every_row_of_a_csv_file_says_what_and_where(tmp_path):
    bench = Bench("cpu", QUICK)
    rows = bench.rows("loss", Problem(SMALL), brief=True)
    write_csv(tmp_path / "loss.csv", rows, bench.about, extra=[None, 2, "x"])
    with open(tmp_path / "loss.csv", newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["contestant"] for row in read] == ["usd3", "usd3 eager", "cross entropy"]
    assert [row["extra"] for row in read] == ["", "2", "x"]
    for row in read:
        assert None not in row.values()
        for name in ("kind", "B", "D", "K", "ms", "ms_low", "ms_high", "floor_ms", "times_floor", "value"):
            assert row[name], name
        for name in ("machine", "threads", "python", "torch", "usd3", "bandwidth_gb_s"):
            assert row[name], name
        assert {"commit", "triton", "graph_ms", "peak_bytes", "peak_logits", "note"} <= set(row)


def test_a_table_leaves_out_columns_without_entries():
    rows = Bench("cpu", QUICK).rows("loss", Problem(SMALL), brief=True)
    names = as_table(rows).head
    assert "graph ms" not in names
    assert "note" not in names
    assert {"B, D, K", "contestant", "ms", "x floor", "x CE", "value"} <= set(names)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"noise": "pink"}, "noise = pink: expected one of uniform, absorbing, marginal"),
        ({"time": "lunch"}, "time = lunch: expected one of continuous, discrete"),
        ({"dtype": "int8"}, "dtype = int8: expected one of fp32, bf16"),
        ({"objective": "x"}, "objective = x: expected one of usd3"),
    ],
)
def test_a_problem_that_does_not_exist_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Problem(SMALL, **wrong)


@pytest.mark.parametrize("text", ["1,2", "1,2,x", "", "1,2,3,4", "1,2,1", "0,2,3", "1,-2,3"])
def test_a_size_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="expected"):
        Size.parse(text)


def test_a_size_is_read_as_it_is_written():
    assert Size.parse(" 4,16, 32") == Size(4, 16, 32)
    assert str(Size(4, 16, 32)) == "4,16,32"
