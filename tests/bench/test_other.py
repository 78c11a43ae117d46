import re

import pytest

from support.places import ROOT
from usd3.bench import Bench, Budget, Problem, Size, load_other

DOCS = (ROOT / "docs" / "benchmarks.md").read_text()
QUICK = Budget(repeats=2, seconds=0.05)


def test_the_example_of_the_documentation_is_timed_beside_ours(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(next(block for block in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL) if "def loss" in block))
    other = load_other(file)
    assert other.name == "mine"
    bench = Bench("cpu", QUICK, other=other)
    for kind in ("loss", "step"):
        for time in ("continuous", "discrete"):
            last = bench.rows(kind, Problem(Size(2, 3, 5), time=time))[-1]
            assert last.contestant == "mine"
            assert last.note == ""
            assert last.ms > 0


def test_the_python_of_the_documentation_runs(capsys):
    exec(next(block for block in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL) if "Bench(" in block), {})
    assert "cross entropy" in capsys.readouterr().out


def test_a_file_may_have_one_function_and_no_name(tmp_path):
    (tmp_path / "fast.py").write_text("def step(logits, x_t, t, s, problem): return x_t")
    other = load_other(tmp_path / "fast.py")
    assert (other.name, other.loss) == ("fast", None)
    rows = Bench("cpu", QUICK, other=other).rows("loss", Problem(Size(2, 3, 5)), brief=True)
    assert "fast" not in [row.contestant for row in rows]


def test_what_fails_while_it_is_timed_is_noted(tmp_path):
    (tmp_path / "broken.py").write_text("def loss(*inputs): raise RuntimeError('not yet')")
    last = Bench("cpu", QUICK, other=load_other(tmp_path / "broken.py")).rows("loss", Problem(Size(2, 3, 5)), True)[-1]
    assert (last.contestant, last.ms, last.note) == ("broken", None, "RuntimeError: not yet")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("none.py", None, "expected a Python file"),
        ("text.txt", "loss = 1", "expected a Python file"),
        ("empty.py", "", r"expected a function loss\(logits, x_t, x_0, t, problem\)"),
        ("number.py", "loss = 1\ndef step(*a): pass", "loss of other = .*number.py is a int: expected a function"),
        ("syntax.py", "def loss(:", "fails when it is loaded, SyntaxError"),
        ("exits.py", "raise SystemExit(3)", "fails when it is loaded, SystemExit: 3"),
    ],
)
def test_a_file_that_is_none_is_refused_in_one_line(name, text, message, tmp_path):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises((ValueError, TypeError, OSError, ImportError), match=message) as caught:
        load_other(tmp_path / name)
    assert "\n" not in str(caught.value)
