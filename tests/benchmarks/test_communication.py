"""The calculation of what a step spends on communication, and what the page of training says of it."""

import importlib
import re
import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from support.places import ROOT
from usd3.training.recipes import recipe_from


@pytest.fixture
def communication(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module("communication")
    sys.modules.pop("communication", None)


def sent_in_a_ring(gpus, size):
    """Bytes that each GPU sends in an all-reduce, round by round: parts are added up once around, then copied."""
    holds = [{part: {gpu} for part in range(gpus)} for gpu in range(gpus)]  # whose numbers each part has
    sent = [0.0] * gpus
    for turn in range(2 * (gpus - 1)):
        moves = [(gpu, (gpu - turn) % gpus) for gpu in range(gpus)]
        parts = [(gpu, part, set(holds[gpu][part])) for gpu, part in moves]
        for gpu, part, numbers in parts:
            sent[gpu] += size / gpus
            holds[(gpu + 1) % gpus][part] |= numbers
    assert all(numbers == set(range(gpus)) for parts in holds for numbers in parts.values())
    return sent


@pytest.mark.parametrize("gpus", [2, 8])
def test_an_all_reduce_in_one_machine_takes_as_long_as_a_ring(communication, gpus):
    cluster = communication.Cluster(gpus, 1, link=10.0, card=1.0)
    assert sent_in_a_ring(gpus, 400.0) == pytest.approx([10 * cluster.all_reduce(400.0)] * gpus)


def test_between_machines_each_card_sends_its_part_alone(communication):
    cluster = communication.Cluster(4, 3, link=float("inf"), card=10.0)
    assert cluster.all_reduce(400.0) == pytest.approx(sent_in_a_ring(3, 100.0)[0] / 10)


def test_the_arithmetic_is_what_torch_counts(communication):
    model, objects = communication.of_recipe("text-large")
    assert objects == 256
    recipe = recipe_from(["text-large"])
    process = recipe.diffusion.build(recipe.data.text.vocabulary)
    with torch.device("meta"):
        net = recipe.model.build(process, [model.length])
        x = torch.zeros(2, model.length, dtype=torch.long)
        with FlopCounterMode(display=False) as counter:
            net(x, torch.ones(2)).logits(x)
    assert 3 * counter.get_total_flops() == pytest.approx(model.flops(2 * model.length), rel=0.01)


def test_the_page_has_the_table_that_the_command_prints(communication, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["communication.py"])
    communication.main()
    printed = capsys.readouterr().out
    page = (ROOT / "docs" / "training.md").read_text()
    rows = [line for line in printed.splitlines() if re.match(r"\| \d+ x 8 ", line)]
    assert len(rows) == 3
    assert all(row in page for row in rows)
