"""The script that measures the training step of a language model: what its losses are, and what its rows say."""

import csv
import importlib
import sys
from types import ModuleType

import pytest
import torch
from torch.nn import functional as F

from support.places import ROOT

CPU = torch.device("cpu")
K, WIDTH, SHAPE = 11, 16, (3, 8)
SIZES = ("--batch=2", "--length=8", "--layers=1", "--width=16", "--steps=2", "--warm_up=1")
TINY = ["--device", "cpu", *SIZES]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module("language_model")
    sys.modules.pop("language_model", None)
    sys.modules.pop("shared", None)


@pytest.fixture
def libraries(script, monkeypatch):
    """Stand-ins for the libraries that compute the same, with the dtypes that theirs were called with."""
    seen = []

    def of_hidden(hidden, weight, targets, **options):
        seen.append((hidden.dtype, weight.dtype, hidden.dim(), targets.shape))
        return F.cross_entropy((hidden @ weight.T).float(), targets)

    for library in script.LIBRARIES.values():
        parts = library.module.split(".")
        for end in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(parts[end - 1]))
        setattr(sys.modules[library.module], library.function, of_hidden)
    return seen


def trained(script, name):
    """The row of a loss, and the gradients of the last step."""
    torch.manual_seed(0)
    network = script.Network(K, WIDTH, 1, CPU, compile=False)
    torch.manual_seed(1)
    data, head = script.batches("uniform", K, SHAPE, 2, CPU), script.output_layer(name, WIDTH, K, CPU)
    torch.manual_seed(2)
    row = script.measure(network, head, script.loss_named(name, K), data, 1)
    return row, [network.net.embed.weight.grad, head.weight.grad]


def assert_same(one, other):
    assert one[0]["loss"] == pytest.approx(other[0]["loss"], rel=0.02)
    for a, b in zip(one[1], other[1], strict=True):
        assert (a - b).norm() < 0.05 * b.norm()  # bfloat16


@pytest.mark.parametrize("name", ["liger", "liger large chunks", "cce"])
def test_a_library_gets_rows_in_bfloat16_and_trains_every_weight_as_torch_does(script, libraries, name):
    assert_same(trained(script, name), trained(script, "torch"))
    assert set(libraries) == {(torch.bfloat16, torch.bfloat16, 2, torch.Size([SHAPE[0] * SHAPE[1]]))}


@pytest.mark.parametrize("noise", ["uniform", "absorbing"])
def test_a_projection_trains_as_logits_do(script, noise):
    assert_same(trained(script, f"{noise} projection"), trained(script, noise))


def test_every_row_begins_with_the_same_weights(script):
    network = script.Network(K, WIDTH, 1, CPU, compile=False)
    data = script.batches("zipf", K, SHAPE, 3, CPU)
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        head = script.output_layer("torch", WIDTH, K, CPU)
        found.append(script.measure(network, head, script.loss_named("torch", K), data, 1)["loss"])
    assert found[0] == found[1]


def test_data_leave_the_last_category_to_the_mask(script):
    for kind in ("uniform", "zipf"):
        tokens = torch.stack(script.batches(kind, 4, (5, 20), 3, CPU))
        assert tokens.unique().tolist() == [0, 1, 2]


def test_a_loss_without_a_gradient_is_no_row(script):
    network = script.Network(K, WIDTH, 1, CPU, compile=False)
    head = script.output_layer("torch", WIDTH, K, CPU)

    def detached(body, head, tokens, targets):
        return script.cross_entropy(script.hidden_of(body, tokens).detach(), head.weight, targets)

    with pytest.raises(RuntimeError, match="no gradient"):
        script.measure(network, head, detached, script.batches("uniform", K, SHAPE, 2, CPU), 1)


def test_it_writes_a_row_for_each_loss_and_says_what_is_missing(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    monkeypatch.setitem(sys.modules, "cut_cross_entropy", None)
    file = tmp_path / "rows.csv"
    script.main([*TINY, "--classes", "9", "12", "--csv", str(file)])
    printed = capsys.readouterr().out
    assert printed.count("liger_kernel is left out") == printed.count("cut_cross_entropy is left out") == 1
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    ours = [name for name in script.LOSSES if name not in ("body", "torch compiled", *script.LIBRARIES)]
    assert [(row["loss_of"], row["classes"]) for row in rows] == [
        ("body", ""),
        *((name, classes) for classes in ("9", "12") for name in ours),
    ]
    assert all(float(row["ms"]) > 0 and row["machine"] for row in rows)


def test_a_library_that_fails_is_left_out_alone(script, libraries, tmp_path, monkeypatch, capsys):
    def fails(*_, **__):
        raise RuntimeError("no kernel for this")

    monkeypatch.setattr(sys.modules["cut_cross_entropy"], "linear_cross_entropy", fails)
    monkeypatch.setattr(script, "usable", lambda names, *_: names)
    losses = ["cce", "liger", "torch"]
    script.main([*TINY, "--classes", "9", "--losses", *losses, "--csv", str(tmp_path / "rows.csv")])
    assert "cce, K = 9, is left out: RuntimeError: no kernel for this" in capsys.readouterr().out
    with (tmp_path / "rows.csv").open(newline="") as lines:
        assert [row["loss_of"] for row in csv.DictReader(lines)] == ["liger", "torch"]
