"""usd3 studio as it is typed; the page itself has tests of its own."""

import sys

import pytest

from usd3.cli.main import main


@pytest.fixture
def served(monkeypatch):
    """What the server was started with."""
    import usd3.studio.server

    calls = []
    monkeypatch.setattr(usd3.studio.server, "serve", lambda *arguments: calls.append(arguments))
    return calls


def test_the_model_is_a_word_and_may_be_missing(served, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["studio"]) == 0
    assert main(["studio", "sudoku", "--no-browser", "--port", "9000", "--minutes", "0.5", "--device", "cpu"]) == 0
    (first, *usual), (second, *chosen) = served
    assert usual == [8421, 300.0, True]
    assert chosen == [9000, 30.0, False]
    assert (first.chosen, second.chosen) == (None, "sudoku")
    assert first.roots == (tmp_path,)


@pytest.mark.parametrize("word", ["--no-browser", "--browser=false"])
def test_the_browser_can_stay_closed(word, served):
    assert main(["studio", word]) == 0
    assert served[0][-1] is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "model = nothing: expected"),
        (["--port", "-1"], "port = -1"),
        (["--port", "70000"], "port = 70000"),
        (["--minutes", "0"], "minutes = 0"),
        (["--minutes", "nan"], "minutes = nan"),
        (["--no-port"], "no-port"),
        (["a", "b"], "one word too many"),
    ],
)
def test_wrong_words_end_in_one_clear_line(arguments, message, served, capsys):
    assert main(["studio", *arguments]) != 0
    line = capsys.readouterr().err
    assert message in line
    assert line.count("\n") == 1
    assert not served


def test_without_its_libraries_the_studio_says_how_to_install_them(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith("usd3.studio.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["studio"]) == 1
    assert "pip install 'usd3[studio]'" in capsys.readouterr().err
