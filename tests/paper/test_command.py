"""`usd3 paper` as a user calls it, on a paper of one small table."""

import csv
import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from support.runs import tiny_recipe
from usd3._internal.locks import locked
from usd3.cli.main import main
from usd3.training.run import fit
from usd3_paper import Study, processes, state, study
from usd3_paper import command as paper_command
from usd3_paper.study import Settings

SCRIPT = """
import json, sys
out, tries = sys.argv[sys.argv.index("--out") + 1], sys.argv[sys.argv.index("--tries") + 1]
with open(tries, "a") as file:
    file.write(f"{sys.argv[1]}\\n")
if sys.argv[1] == "fails" and len(open(tries).read().split()) < 3:
    sys.exit(1)
row = lambda mean, std=0.0: {"loss": {"mean": mean, "std": std}, "score": {"mean": 12345.6, "std": 0.0}}
rows = {"b": row(0.25, 0.01), "a": row(0.75)}
found = {"about": "three objects", "recipes": {"a": f"usd3+{sys.argv[0]}"}, "rows": rows}
json.dump(found, open(out, "w"))
"""
STUDY = """
about: A study.
budget: 2
data: {expected: an .npz file, file: "{path}", toy: counting up}
steps: 80
stages:
  - python {paper}/script.py begins {data} --kind {kind} --budget {budget} --tries {out}/tries --out {out}/first.json
  - >-
    python {paper}/script.py fails --limit {limit} --steps {steps} --quarter {quarter} --tries {out}/tries
    --out {out}/second.json
results: {second.json: file}
pictures: [first.json]
files: [tries]
"""
TABLE = """
title: A table
place: Table 7
study: small
columns: {loss: loss ↓, score: score, unknown: not measured ↑}
rows: {a: Method A, b: Method B, c: Method C}
note: Look twice.
"""


@pytest.fixture
def paper(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my paper"
    (folder / "studies").mkdir(parents=True)
    (folder / "table").mkdir()
    (folder / "script.py").write_text(SCRIPT)
    (folder / "studies" / "small.yaml").write_text(STUDY)
    (folder / "table" / "table.yaml").write_text(TABLE)
    (folder / "table" / "published.csv").write_text("label,loss,unknown\na,0.70 ± 0.01,3\nb,0.80,~4 h\nc,0.60,-\n")
    return folder


def run(paper, *words):
    return main(["paper", *words, "--paper", str(paper), "--trust_code", "true"])


def test_a_study_goes_on_where_it_failed_and_its_table_shows_both_numbers(paper, capsys):
    assert run(paper, "run", "table", "--data", "toy") == 1
    said = capsys.readouterr().err
    assert "small 1/2: python" in said
    assert "counting up --kind toy --budget 2" in said
    assert said.splitlines()[-1].endswith("failed; the same command goes on from there")
    assert run(paper, "run", "table", "--data", "toy") == 0
    tries = Path("runs/paper/small/tries").read_text().split()
    assert tries == ["begins", "fails", "fails"]  # what was done is not done again
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    assert ["Method", "A", "ours", "0.750*", "12,346", "-"] in lines
    assert ["paper", "0.70", "±", "0.01*", "-", "3*"] in lines
    assert ["Method", "B", "ours", "0.250", "±", "0.010**", "12,346", "-"] in lines
    assert ["Method", "C", "paper", "0.60**", "-", "-"] in lines
    assert "A table (Table 7)" in printed
    assert "Look twice." in printed
    assert "three objects" in printed


def test_a_study_that_another_process_runs_is_refused(paper, capsys):
    own = Path("runs/paper/small").absolute()
    with locked(own, "study", "out"):
        assert run(paper, "run", "table", "--data", "toy") == 1
    assert f"out = {own}: expected a folder that no other process uses" in capsys.readouterr().err
    assert not list(own.iterdir())


def test_the_written_tables_say_the_same(paper):
    run(paper, "run", "table", "--data", "toy")
    run(paper, "run", "table", "--data", "toy")
    results = json.loads(Path("runs/paper/small/results.json").read_text())
    assert results["commands"][0].startswith("python paper/script.py begins counting up --kind toy --budget 2")
    assert results["rows"]["a"]["loss"]["mean"] == 0.75
    assert set(results["machine"]) >= {"machine", "torch", "commit"}
    files = {ending: Path(f"runs/paper/small/table.{ending}").read_text() for ending in ("md", "csv", "tex")}
    assert "| Method B | ours | **0.250 ± 0.010** | 12,346 | - |" in files["md"]
    assert "|  | paper | 0.80 | - | **~4 h** |" in files["md"]
    rows = list(csv.DictReader(files["csv"].splitlines()))
    assert [(row["label"], row["source"]) for row in rows] == [
        ("a", "ours"),
        ("a", "paper"),
        ("b", "ours"),
        ("b", "paper"),
        ("c", "paper"),
    ]
    assert r"Method B & ours & \textbf{0.250 $\pm$ 0.010} & 12,346 & - \\" in files["tex"]


def test_a_table_tells_all_machines_and_versions_that_a_study_was_run_with(paper, monkeypatch, capsys):
    now = study.now()
    older = now | {"date": "2026-01-02", "machine": now["machine"] | {"commit": "abcdef0"}}
    monkeypatch.setattr(study, "now", lambda: older)
    assert run(paper, "run", "table", "--data", "toy") == 1  # its first command was done, its second failed
    monkeypatch.setattr(study, "now", lambda: now)
    assert run(paper, "run", "table", "--data", "toy") == 0
    told = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Ours: three objects"))
    assert re.search(rf"{now['date']}; begun on .*commit abcdef0, 2026-01-02\.$", told)
    monkeypatch.setattr(study, "now", lambda: older)
    assert run(paper, "run", "table", "--data", "toy") == 0  # nothing is measured again
    assert told in capsys.readouterr().out


@pytest.mark.parametrize("kept", [True, False])
def test_a_study_that_was_run_before_it_kept_all_places_goes_on(kept, paper):
    assert run(paper, "run", "table", "--data", "toy") == 1
    file = Path("runs/paper/small/study.json")
    state = json.loads(file.read_text())
    older = state.pop("measured")[0] | {"date": "2026-01-02"}
    file.write_text(json.dumps(state | ({"measured": older} if kept else {})))
    assert run(paper, "run", "table", "--data", "toy") == 0
    results = json.loads(Path("runs/paper/small/results.json").read_text())
    assert results.get("earlier", []) == ([older] if kept else [])


def test_tables_of_a_study_are_written_even_if_the_one_asked_for_has_no_numbers(paper, capsys):
    (paper / "other").mkdir()
    other = TABLE.replace("loss: loss ↓, score: score, ", "").replace("Table 7", "Table 8")
    (paper / "other" / "table.yaml").write_text(other)
    run(paper, "run", "other", "--data", "toy")
    assert run(paper, "run", "other", "--data", "toy") == 1
    said = capsys.readouterr()
    assert "expected data that give not measured ↑" in said.err
    assert "results.json, table.md, table.csv, table.tex, first.json in" in said.out


def test_a_study_stands_for_all_its_tables(paper, capsys):
    (paper / "other").mkdir()
    (paper / "other" / "table.yaml").write_text(TABLE.replace("A table", "Its brother").replace("Table 7", "Table 8"))
    assert run(paper, "run", "small", "--data", "toy") == 1
    assert run(paper, "run", "small", "--data", "toy") == 0
    for said in (capsys.readouterr().out, (run(paper, "show", "small"), capsys.readouterr().out)[1]):
        assert said.index("A table (Table 7)") < said.index("Its brother (Table 8)")
    written = {file.name for file in Path("runs/paper/small").glob("*.md")}
    assert written == {"table.md", "other.md"}
    assert run(paper, "publish", "small") == 0
    assert (paper / "other" / "table.md").is_file()
    capsys.readouterr()
    assert run(paper, "show", "tabel") == 1
    expected = "name = tabel: expected one of table, other, or the study of some (is table meant?)"
    assert expected in capsys.readouterr().err


def test_data_that_cannot_fill_a_table_are_refused_before_anything_is_run(paper, capsys):
    (paper / "table" / "table.yaml").write_text(TABLE + "data: [file]\n")
    assert run(paper, "run", "table", "--data", "toy") == 1
    assert "data = toy: expected other data for table, which toy cannot fill: an .npz file" in capsys.readouterr().err
    assert not Path("runs").exists()
    (paper / "other").mkdir()
    (paper / "other" / "table.yaml").write_text(TABLE.replace("Table 7", "Table 8"))
    run(paper, "run", "other", "--data", "toy")
    assert "without Table 7, table, which toy cannot fill" in capsys.readouterr().err
    assert Path("runs/paper/small/tries").is_file()


def test_data_of_which_nothing_came_do_not_bind(paper, capsys):
    """A slip in --data is mended by the same command with other data."""
    (paper / "script.py").rename(paper / "gone.py")
    assert run(paper, "run", "table", "--data", "toy") == 1
    (paper / "gone.py").rename(paper / "script.py")
    Path("mine.npz").write_text("")
    assert [run(paper, "run", "table", "--data", "mine.npz") for _ in range(2)] == [1, 0]
    assert run(paper, "run", "table", "--data", "toy") == 1
    assert "data = toy: expected" in capsys.readouterr().err


def test_results_are_published_and_shown(paper, capsys):
    assert run(paper, "show", "table") == 0
    shown = capsys.readouterr().out
    assert "No results of ours yet: `usd3 paper run table --data DATA` gives them (DATA: an .npz file" in shown
    assert re.search(r"Method C +0\.60 ", shown)
    assert run(paper, "publish", "table") == 1
    assert "`usd3 paper run table --data DATA` gives them" in capsys.readouterr().err
    run(paper, "run", "table", "--data", "toy")
    run(paper, "run", "table", "--data", "toy")
    capsys.readouterr()
    assert run(paper, "show", "table") == 0
    assert "0.250 ± 0.010**" in capsys.readouterr().out
    other = TABLE.replace("loss: loss ↓, score: score, ", "").replace("Table 7", "Table 8")
    (paper / "other").mkdir()
    (paper / "other" / "table.yaml").write_text(other)
    assert run(paper, "show", "other") == 1
    assert "three objects: expected data that give not measured ↑" in capsys.readouterr().err
    assert run(paper, "publish", "table") == 0
    assert not (paper / "other" / "table.md").exists()
    there = Path("runs/paper/small/table.md").read_text()
    assert "Not measured: Method C." in there
    assert (paper / "table" / "table.md").read_text() == there.replace("(first.json)", "(../studies/small/first.json)")
    for name in ("first.json", "tries"):
        assert (paper / "studies" / "small" / name).read_text() == Path("runs/paper/small", name).read_text()
    capsys.readouterr()
    assert run(paper, "show", "table") == 0
    assert "0.250 ± 0.010**" in capsys.readouterr().out
    assert run(paper, "list") == 0
    listed = capsys.readouterr().out
    assert "A table" in listed
    assert "an .npz file" in listed


def test_data_budget_limit_and_steps_reach_the_commands(paper, tmp_path):
    file = tmp_path / "my data.npz"
    file.touch()
    made = Study.read(paper, "small").commands(paper, tmp_path / "out", Settings(str(file), 0.5, 40, 1, steps=20))
    assert made[0][3:8] == [str(file), "--kind", "file", "--budget", "0.5"]
    assert made[1][3:9] == ["--limit", "40", "--steps", "20", "--quarter", "5"]
    assert Study.read(paper, "small").commands(paper, tmp_path, Settings("toy", None, None, 1))[1][4] == "null"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "nothing"], "name = nothing: expected one of table"),
        (["run"], "name = None: expected that of a table or figure: table"),
        (["run", "table"], "data = None: expected an .npz file (--data says where they are)"),
        (
            ["run", "table", "--data", "missing.npz"],
            "data = missing.npz: there is no such file; expected an .npz file (--data",
        ),
        (["run", "table", "--data", "toy", "--budget", "0"], "budget = 0"),
        (["run", "table", "more"], "'more' is one word too many"),
        (["run", "table", "--data", "toy", "--inception", "w.pt"], "inception = w.pt: expected null for table"),
        (["list", "table"], "name = table: expected none for list"),
        (["sell", "table"], "action"),
    ],
)
def test_what_cannot_be_is_refused(paper, capsys, words, told):
    assert run(paper, *words) != 0
    assert told in capsys.readouterr().err
    assert not Path("runs").exists()


def test_another_budget_is_refused_for_a_study_that_was_begun(paper, capsys):
    run(paper, "run", "table", "--data", "toy")
    assert run(paper, "run", "table", "--data", "toy", "--budget", "3") == 1
    assert "budget = 3.0: expected 2, as in" in capsys.readouterr().err
    assert run(paper, "run", "table", "--data", str(paper)) == 1
    assert "expected toy, as in" in capsys.readouterr().err


def test_what_was_made_in_another_way_is_not_taken_for_it(paper, capsys):
    """A file of other options, and what a needed study made of other data."""
    for _ in range(2):
        run(paper, "run", "table", "--data", "toy")
    assert run(paper, "run", "table", "--data", "toy", "--limit", "9") == 1
    assert "second.json was made by `python" in capsys.readouterr().err.splitlines()[-1]
    after = "about: After.\nneeds: [small]\ndata: {expected: x, file: '{path}'}\nstages: []\nresults: {}\n"
    (paper / "studies" / "after.yaml").write_text(after)
    (paper / "table" / "table.yaml").write_text(TABLE.replace("study: small", "study: after"))
    assert run(paper, "run", "table", "--data", str(paper)) == 1
    assert "expected toy, as in" in capsys.readouterr().err


def test_results_name_no_folder_of_this_machine_and_the_machine_that_ran_them(paper, tmp_path, monkeypatch):
    (tmp_path / "mine.npz").touch()
    words = ["run", "table", "--data", str(paper / ".." / "mine.npz")]
    run(paper, *words)
    run(paper, *words)
    before = Path("runs/paper/small/results.json").read_text()
    assert str(tmp_path) not in before
    assert json.loads(before)["recipes"] == {"a": "usd3+paper/script.py"}
    assert "begins mine.npz --kind file" in json.loads(before)["commands"][0]
    monkeypatch.setattr(state, "machine", lambda device: {"machine": "another"})
    assert run(paper, *words) == 0
    assert Path("runs/paper/small/results.json").read_text() == before


def test_an_interruption_waits_for_the_command_that_runs(paper, monkeypatch, capsys):
    """It may have a checkpoint to write."""
    script = """
import os, pathlib, signal, time
def save(*_):
    time.sleep(0.5)  # longer than subprocess.run would wait
    pathlib.Path("saved").touch()
    os._exit(1)
signal.signal(signal.SIGTERM, save)
while not pathlib.Path("waiting").exists():
    time.sleep(0.01)
os.kill(os.getppid(), signal.SIGINT)
time.sleep(100)
"""
    code = """
import pathlib, signal, subprocess, sys
from usd3.cli import jobs
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
class Telling(subprocess.Popen):
    def wait(self, *options):
        pathlib.Path("waiting").touch()
        return super().wait(*options)
subprocess.Popen = Telling
jobs.call([sys.executable, "slow.py"])
"""
    Path("slow.py").write_text(script)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert ended.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert Path("saved").exists()

    def interrupted(words, seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "call", interrupted)
    assert run(paper, "run", "table", "--data", "toy") == 130
    assert capsys.readouterr().err.splitlines()[-1] == "usd3 paper: interrupted (the same command goes on)"


def test_the_studies_of_a_stranger_are_not_run(paper, monkeypatch, capsys):
    paper = paper.rename(paper.with_name("paper"))  # in the current folder
    (paper / "studies" / "small.yaml").write_text("about: A.\nstages: ['python {paper}/evil.py']\nresults: {}\n")
    (paper / "evil.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    assert main(["paper", "run", "table", "--paper", str(paper)]) == 1
    assert "or trust_code: true, which runs the commands of its studies" in capsys.readouterr().err
    assert main(["paper", "run", "table"]) == 1  # the tables of the checkout, and not those of the current folder
    assert "name = table: expected one of" in capsys.readouterr().err
    assert not Path("ran").exists()
    monkeypatch.setattr(paper_command, "OURS", paper)  # what came with the code needs no further word
    main(["paper", "run", "table"])
    assert Path("ran").exists()


def test_the_code_is_that_of_the_checkout(tmp_path, monkeypatch, capsys):
    """A package of the same name in the current folder, or in a folder that Python searches first, is not run."""
    for strange in (tmp_path / "usd3_paper", tmp_path / "paper" / "usd3_paper"):
        strange.mkdir(parents=True)
        (strange / "__init__.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "usd3_paper"]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["paper", "list"]) == 0
    assert "music-full" in capsys.readouterr().out
    assert not (tmp_path / "ran").exists()


def test_a_training_that_goes_on_may_import_what_it_did(tmp_path):
    (tmp_path / "recipe.yaml").touch()
    words = [
        "train",
        "a.yaml",
        "--model.net",
        "mine.Net",
        "--seed",
        "1",
        "--trust_code",
        "true",
        "--run",
        str(tmp_path),
    ]
    resumed = ["train", "--resume", str(tmp_path), "--model.net", "mine.Net", "--trust_code", "true"]
    assert processes._resumed(words) == resumed
    assert processes._resumed([*words[:-1], "elsewhere"]) == [*words[:-1], "elsewhere"]


def test_a_folder_without_studies_is_refused(tmp_path, capsys):
    assert main(["paper", "list", "--paper", str(tmp_path)]) == 1
    assert "expected the folder paper/ of a checkout" in capsys.readouterr().err


def test_a_study_runs_what_it_needs_first_and_resumes_its_trainings(paper, tmp_path):
    """With real commands: a training that was begun elsewhere goes on, and its evaluation is read."""
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(asdict(tiny_recipe(tmp_path))))
    needed = "about: Before.\nstages: ['train {paper}/../tiny.yaml --run {out}/model']\nresults: {}\n"
    (paper / "studies" / "before.yaml").write_text(needed)
    small = """about: After.
needs: [before]
stages: ["evaluate {before}/model --steps 3 --runs 2 --bound_samples 2 --out {out}/found.json"]
results: {found.json: evaluate}
"""
    (paper / "studies" / "small.yaml").write_text(small)
    table = "title: A\nplace: Table 1\nstudy: small\ncolumns: {1g_hellinger: 1g ↓, steps: steps}\nrows: {model: ours}\n"
    (paper / "table" / "table.yaml").write_text(table)
    (paper / "table" / "published.csv").unlink()
    fit(tiny_recipe(tmp_path, steps=4), tmp_path / "runs/paper/before/model", progress=False)
    assert run(paper, "run", "table") == 0
    results = json.loads(Path("runs/paper/small/results.json").read_text())
    assert results["rows"]["model"]["steps"]["mean"] == 4  # its own recipe holds when it goes on
    assert 0 < results["rows"]["model"]["1g_hellinger"]["mean"] < 1
    assert "Markov chain" in results["references"]
    assert run(paper, "run", "table") == 0  # everything is there


def test_methods_that_fail_are_missing_in_the_table_and_tried_again(paper, tmp_path, capsys, monkeypatch):
    """`compare` and `cost` end with an error where some methods failed, and the others have results."""
    small = "about: A.\nstages: ['cost --out {out}/cost']\nresults: {cost: cost}\n"
    (paper / "studies" / "small.yaml").write_text(small)
    details = {"draw": None, "timed_draw_steps": 5, "recipe": {}}
    found = {
        "settings": {"shape": None, "steps": 5, "timed_draw_steps": 0},
        "machine": {"machine": "this", "torch": "2"},
        "rows": {"a": {"loss": {"mean": 0.5, "std": 0.0}, "score": {"mean": None, "std": None}}},
        "recipes": {"a": "a"},
        "details": {"a": details},
    }
    tries = []

    def failing(words, seconds):
        tries.append(words)
        out = tmp_path / "runs/paper/small/cost"
        out.mkdir(exist_ok=True)
        (out / "cost.json").write_text(json.dumps(found))
        return len(tries) < 2

    monkeypatch.setattr("usd3_paper.processes.call", failing)
    assert run(paper, "run", "table") == 1
    said = capsys.readouterr()
    assert ["Method", "A", "ours", "0.500", "-", "-"] in [line.split() for line in said.out.splitlines()]
    assert "failed; the same command goes on from there" in said.err
    assert run(paper, "run", "table") == 0
    assert run(paper, "run", "table") == 0
    assert len(tries) == 2


def test_an_interrupted_study_shows_what_it_has(paper, capsys, monkeypatch):
    small = STUDY.replace("{second.json: file}", "{first.json: file, second.json: file}")
    (paper / "studies" / "small.yaml").write_text(small.replace("[first.json]", "[first.json, second.json]"))
    whole = processes.call
    monkeypatch.setattr(processes, "call", lambda words, seconds: 130 if "fails" in words else whole(words))
    assert run(paper, "run", "table", "--data", "toy") == 130
    said = capsys.readouterr()
    assert ["Method", "A", "ours", "0.750*", "12,346", "-"] in [line.split() for line in said.out.splitlines()]
    assert said.out.splitlines()[-1].startswith("results.json, table.md, table.csv, table.tex, first.json in ")
    assert said.err.splitlines()[-1] == "usd3 paper: interrupted (the same command goes on)"
    assert "second.json)" not in Path("runs/paper/small/table.md").read_text()  # no picture that is not there
    assert run(paper, "publish", "table") == 1
    assert "second.json: no such file; `usd3 paper run table --data DATA` writes it" in capsys.readouterr().err
    monkeypatch.setattr(processes, "call", whole)
    run(paper, "run", "table", "--data", "toy")
    assert run(paper, "run", "table", "--data", "toy") == 0
    assert "second.json)" in Path("runs/paper/small/table.md").read_text()


def test_a_comparison_without_a_measured_method_has_no_table(paper, tmp_path, capsys, monkeypatch):
    (paper / "studies" / "small.yaml").write_text(
        "about: A.\nstages: ['compare --out {out}/c']\nresults: {c: compare}\n"
    )

    def begun(words, seconds):
        (tmp_path / "runs/paper/small/c").mkdir()
        (tmp_path / "runs/paper/small/c/comparison.json").write_text('{"methods": {"a": "usd3"}}')
        return 130

    monkeypatch.setattr(processes, "call", begun)
    assert run(paper, "run", "table") == 130
    said = capsys.readouterr()
    assert not said.out
    assert said.err.splitlines()[-1] == "usd3 paper: interrupted (the same command goes on)"
    assert not Path("runs/paper/small/results.json").exists()
