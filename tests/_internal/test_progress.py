import io

import pytest
from rich.console import Console

from usd3._internal import progress as module
from usd3._internal.progress import counted, progress


@pytest.fixture
def shown(monkeypatch):
    """What is written, on a terminal or not."""

    def make(terminal: bool, width: int = 160) -> io.StringIO:
        out = io.StringIO()
        console = Console(file=out, force_terminal=terminal, width=width)
        monkeypatch.setattr(module, "Console", lambda **_: console)
        return out

    return make


def test_a_terminal_gets_a_bar(shown):
    out = shown(terminal=True)
    with progress("training", 10, start=2) as advance:
        advance(5, "loss 1.5")
        advance(10, "loss 1.2")
    text = out.getvalue()
    for part in ("training", "10/10", "loss 1.2", "elapsed", "left"):
        assert part in text


def test_nothing_is_cut_off_on_a_narrow_terminal(shown):
    out = shown(terminal=True, width=80)
    with progress("training (s)", 1140) as advance:
        advance(1139, "step 12851  loss 0.001  bits/element 1.273")
    text = out.getvalue()
    for part in ("training (s)", "1139/1140", "step 12851  loss 0.001  bits/element 1.273", "left"):
        assert part in text
    assert "…" not in text


def test_elsewhere_lines_now_and_then(shown, monkeypatch):
    out = shown(terminal=False)
    clock = iter([0.0, 5.0, 12.0, 13.0, 26.0, 30.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    with progress("training", 10) as advance:
        for done in (1, 2, 2, 3, 5, 10):
            advance(done, "loss 1.5")
    lines = out.getvalue().splitlines()
    assert lines == [
        "training 1/10  loss 1.5  0:05 elapsed, 0:45 left",
        "training 5/10  loss 1.5  0:26 elapsed, 0:26 left",
        "training 10/10  loss 1.5  0:30 elapsed, 0:00 left",
    ]


def test_calls_are_counted(shown):
    out = shown(terminal=False)
    with counted("sampling", 3) as count:
        for step in "abc":
            count(step)
    assert "sampling 3/3" in out.getvalue()
