"""Steps, trainings, stages and pieces of a study, and the command for all studies."""

import json
import subprocess
from functools import partial
from pathlib import Path

import pytest

from support.places import ROOT
from usd3._internal.yaml_json import read_yaml
from usd3.cli.main import main
from usd3.training.classifier import ClassifierConfig
from usd3.training.vqgan import VQGANConfig
from usd3_paper import Study, estimate, processes
from usd3_paper.estimate import Part, Speed
from usd3_paper.recipes import methods_of
from usd3_paper.study import Settings
from usd3_paper.work import Work, work_of

PAPER = ROOT / "paper"
STUDY = """
about: A study.
steps: 80
trainings: {trainings: 3, others: 1}
words: {how: "--training.steps {steps} --out {out}/c", rest: "b*{others}"}
stages:
  - compare --methods "a" {how}
  - compare --methods "a {rest}" --repeats {trainings} {how}
  - python {paper}/script.py {out}/c --out {out}/parts.json
results: {parts.json: file}
"""
TABLE = "title: A table\nplace: Table 7\nstudy: small\ncolumns: {loss: loss ↓}\nrows: {a: Method A, b: Method B}\n"


@pytest.fixture
def paper(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my paper"
    (folder / "studies").mkdir(parents=True)
    (folder / "table").mkdir()
    (folder / "studies" / "small.yaml").write_text(STUDY)
    (folder / "table" / "table.yaml").write_text(TABLE)
    return folder


@pytest.fixture
def called(monkeypatch):
    """The commands that were called, in place of calling them; a script writes the rows of one method."""
    calls = []

    def call(words, seconds):
        calls.append(list(words[1:]))
        if "compare" in words:
            Path(words[words.index("--out") + 1], "a").mkdir(parents=True, exist_ok=True)
        if "-m" not in words:
            found = {"about": "three objects", "rows": {"a": {"loss": {"mean": 0.5, "std": 0.0}}}}
            Path(words[words.index("--out") + 1]).write_text(json.dumps(found))
        return 0

    monkeypatch.setattr(processes, "call", call)
    return calls


def run(paper, *words):
    return main(["paper", "run", *words, "--paper", str(paper), "--trust_code", "true"])


def test_the_parts_of_a_command_and_the_numbers_of_trainings_are_filled_in(paper, tmp_path):
    study = Study.read(paper, "small")
    _, second, _ = study.commands(paper, tmp_path, Settings(None, None, None, 1))
    assert second[:5] == ["compare", "--methods", "a b*1", "--repeats", "3"]
    assert second[5:7] == ["--training.steps", "80"]
    _, second, _ = study.commands(paper, tmp_path, Settings(None, None, None, 1, steps=5, trainings=2))
    assert second[:7] == ["compare", "--methods", "a b*2", "--repeats", "2", "--training.steps", "5"]
    assert [study.uses(paper, name) for name in ("steps", "trainings", "budget")] == [True, True, False]


def test_a_study_has_the_steps_it_was_begun_with_and_may_get_more_trainings(paper, called, capsys):
    assert run(paper, "table") == 0
    assert len(called) == 3
    assert run(paper, "table", "--steps", "5") == 1
    assert "steps = 5: expected 80, as in" in capsys.readouterr().err
    assert run(paper, "table") == 0
    assert len(called) == 3  # nothing was left
    assert run(paper, "table", "--trainings", "4") == 0
    further = [words[-1] for words in called[3:]]
    assert [Path(path).name for path in further] == ["c", "parts.json"]  # the script reads what is new
    assert "4" in called[3]
    assert run(paper, "table", "--trainings", "0") != 0


def test_results_of_other_options_are_measured_again(paper, called):
    assert run(paper, "table") == 0
    assert run(paper, "table", "--trainings", "2") == 0
    called.clear()
    assert run(paper, "table") == 0  # the folder has those of two trainings
    assert [words[-1].rpartition("/")[2] for words in called] == ["c", "parts.json"]
    called.clear()
    assert run(paper, "table") == 0
    assert not called


def test_the_name_of_a_kind_is_no_file_of_its_data(paper, called, capsys):
    study = (paper / "studies" / "small.yaml").read_text().replace("compare", "compare {data}")
    (paper / "studies" / "small.yaml").write_text(study + 'data: {expected: x, file: "{path}", toy: up}\n')
    for words in (["table", "--data", "file"], ["all", "--data", "file"]):
        assert run(paper, *words) == 1
        assert "data = file: there is no such file; expected x" in capsys.readouterr().err
    Path("file").write_text("")
    assert Study.read(paper, "small").whole_name("file") == str(Path("file").absolute())
    assert run(paper, "table", "--data", "toy") == 0


def test_the_plan_of_a_study_has_those_that_it_needs(paper, called, capsys):
    study = (paper / "studies" / "small.yaml").read_text()
    (paper / "studies" / "small.yaml").write_text(f"{study}needs: [before]\n")
    (paper / "studies" / "before.yaml").write_text("about: C.\nstages: ['encode --out {out}/t']\nresults: {}\n")
    assert run(paper, "table", "--dry_run", "true") == 0
    plan = capsys.readouterr().out
    assert plan.index("# before") < plan.index("usd3 encode") < plan.index("# small")
    assert run(paper, "table") == 0
    capsys.readouterr()
    assert run(paper, "table", "--dry_run", "true") == 0
    assert "before" not in capsys.readouterr().out


def test_a_study_stops_after_its_minutes_and_the_same_command_goes_on(paper, called, monkeypatch, capsys):
    given = []
    whole = processes.call

    def slow(words, seconds):
        given.append(seconds)
        if "--repeats" in words:
            raise subprocess.TimeoutExpired(words, seconds)
        return whole(words, seconds)

    monkeypatch.setattr(processes, "call", slow)
    assert run(paper, "table", "--stop_after", "9") == 130
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "usd3 paper: interrupted (stopped after 9 minutes; the same command goes on)"
    assert 0 < given[1] <= given[0] <= 540
    monkeypatch.setattr(processes, "call", whole)
    assert run(paper, "table") == 0
    assert ["--repeats" in words for words in called] == [False, True, False]  # the first was done


def test_no_command_begins_after_the_deadline(paper, called, monkeypatch):
    monkeypatch.setattr(processes.time, "monotonic", iter([0.0, 1.0, 1.0, 61.0]).__next__)
    assert run(paper, "table", "--stop_after", "1") == 130
    assert len(called) == 1


def test_a_study_that_goes_on_is_not_finished(paper, called, monkeypatch):
    assert run(paper, "table") == 0
    monkeypatch.setattr(processes, "call", lambda words, seconds: 130)
    assert run(paper, "table", "--trainings", "4") == 130
    assert json.loads(Path("runs/paper/small/study.json").read_text())["finished"] is False


def test_all_studies_are_run_that_have_their_data(paper, called, monkeypatch, capsys):
    needing = STUDY.replace(
        "about: A study.", 'about: B.\nneeds: [before]\ndata: {expected: x, file: "{path}", toy: up}'
    )
    (paper / "studies" / "other.yaml").write_text(needing)
    (paper / "studies" / "before.yaml").write_text("about: C.\nstages: ['encode --out {out}/t']\nresults: {}\n")
    (paper / "other").mkdir()
    (paper / "other" / "table.yaml").write_text(TABLE.replace("study: small", "study: other").replace("7", "6"))
    assert run(paper, "all", "--dry_run", "true", "--price", "3.5") == 0
    plan = capsys.readouterr().out
    assert not called
    assert not Path("runs/paper/small").exists()
    assert plan.index("# before") < plan.index("# other") < plan.index("# small")
    assert "needs --data file=... or toy=..." in plan
    assert "COST" in plan
    assert f"usd3 encode --out {Path('runs/paper/before').absolute()}/t" in plan
    assert run(paper, "all") == 0
    said = capsys.readouterr().out
    assert "left out, as their data are missing: other" in said
    assert len(called) == 3
    assert run(paper, "all", "--data", "toy") == 0
    assert "left out" not in capsys.readouterr().out
    assert called[3][2] == "encode"
    assert run(paper, "all", "--data", "tyo") == 1
    assert (
        "data = tyo: expected kinds with their files, as in KIND=FILE; kinds are file, toy" in capsys.readouterr().err
    )
    assert run(paper, "all", "--data", "file=missing.npz") == 1
    assert "data = missing.npz: there is no such file" in capsys.readouterr().err


def test_a_study_that_fails_does_not_end_the_others(paper, called, monkeypatch, capsys):
    (paper / "studies" / "bad.yaml").write_text("about: B.\nstages: ['train --run {out}/m']\nresults: {m: evaluate}\n")
    (paper / "bad").mkdir()
    (paper / "bad" / "table.yaml").write_text(TABLE.replace("study: small", "study: bad").replace("7", "6"))
    whole = processes.call
    monkeypatch.setattr(processes, "call", lambda words, seconds: 1 if "train" in words else whole(words, seconds))
    assert run(paper, "all") == 1
    assert "1 of the studies failed: bad; the same command goes on" in capsys.readouterr().err
    assert len(called) == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["table", "--stop_after", "0"], "stop_after = 0"),
        (["table", "--price", "2"], "price = 2.0: expected null without an estimate"),
    ],
)
def test_what_cannot_be_is_refused(paper, called, capsys, words, told):
    assert run(paper, *words) != 0
    assert told in capsys.readouterr().err
    assert main(["paper", "show", "table", "--paper", str(paper), "--dry_run", "true"]) == 1
    assert main(["paper", "list", "--paper", str(paper), "--steps", "5"]) == 1
    assert "steps = 5: expected an option of run alone" in capsys.readouterr().err
    assert not called


# ---- the estimate -------------------------------------------------------------------------------------------------


def commands_of(name, root, **options):
    return Study.read(PAPER, name).commands(PAPER, root, Settings("bach", None, None, 1, **options))


def test_each_training_counts_once_and_what_is_done_does_not_count(tmp_path):
    commands = commands_of("music", tmp_path, trainings=2)
    objects = {"shape": [128], "categories": 129, "held_out": 100}
    works, unknown = work_of(commands, [], objects)
    assert not unknown
    assert sum(work.trainings for work in works) == 2 * 14
    assert {work.steps for work in works} == {12_000}
    assert works[0].calls == 2 * (3 * 100 * 100 + 100 * 64)  # three continuations in 100 steps, and the bound
    for done, trained in ((1, 5), (3, 11)):  # the first rows, and all main ones
        works, _ = work_of(commands[done:], commands[:done], objects)
        assert sum(work.trainings for work in works) == 2 * 14 - trained
    works, _ = work_of(commands_of("music", tmp_path, trainings=1)[1:], commands, objects)
    assert not works  # more is done than is asked for


def test_models_that_are_trained_apart_and_their_corrector_sweeps_count(tmp_path):
    objects = {"shape": [8, 8], "categories": 512, "held_out": 1000}
    for name, calls in (("corrector-discrete", 5000 * (9 * 100 + 2 * (2 + 2 + 5 + 5) * 15)), ("images", None)):
        study = Study.read(PAPER, name)
        works, unknown = work_of(study.commands(PAPER, tmp_path, Settings("x", None, None, 1)), [], objects)
        if calls is not None:
            assert [(work.trainings, work.steps, work.calls) for work in works] == [(1, 20_000, calls)]
        else:
            assert unknown == ["python"]
            assert [work.minutes for work in works if work.minutes] == [30.0]  # SDDM's
            assert sum(work.trainings for work in works) == 16


def test_minutes_and_costs_are_those_of_the_measured_speeds(tmp_path, monkeypatch):
    commands = commands_of("music", tmp_path)
    objects = {"shape": [128], "categories": 129, "held_out": 100}
    monkeypatch.setattr(estimate, "_timed", lambda recipe, objects, device: Speed(10.0, 0.0))
    printed = estimate.estimate([Part("music", commands, [], objects)], tmp_path, price=6.0)
    (line,) = [line.split() for line in printed.splitlines() if line.startswith("music")]
    assert line == ["music", "36", "432,000", "72.0", "7.20"]  # 432,000 steps of 10 ms; 6 an hour
    assert "Measured on this machine" in printed
    monkeypatch.setattr(estimate, "_timed", lambda *_: pytest.fail("measured again"))
    assert estimate.estimate([Part("music", commands, [], objects)], tmp_path, price=6.0) == printed


def test_a_network_is_timed_by_real_steps_and_draws(tmp_path):
    tiny = ["train", "bach-small", "--run", "x", "--model.dim", "16", "--model.depth", "1", "--model.heads", "2"]
    (model,) = methods_of([*tiny, "--training.batch_size", "8"])
    objects = {"shape": [6], "categories": 5, "held_out": 3}
    (speed,) = estimate.speeds([(Work(model.recipe), objects)] * 2, tmp_path).values()
    assert speed.step_ms > 0
    assert speed.call_ms > 0


def test_networks_for_images_count_too(tmp_path, monkeypatch):
    small = {"filters": [4, 8], "blocks": 1, "discriminator_width": 4}
    monkeypatch.setattr(estimate, "VQGANConfig", partial(VQGANConfig, **small))
    monkeypatch.setattr(estimate, "ClassifierConfig", partial(ClassifierConfig, width=4, blocks=1))
    study = Study.read(PAPER, "image-tokens")
    works, unknown = work_of(study.commands(PAPER, tmp_path, Settings("x", None, None, 1)), [], {"shape": [8, 8]})
    assert [(work.images, work.steps) for work in works] == [
        ("classifier", 4000),
        ("classifier", 16_000),
        ("vqgan", 16_000),
    ]
    assert unknown == ["encode"]
    found = estimate.speeds([(work, {}) for work in works], tmp_path)
    assert found.keys() == {"classifier", "vqgan"}
    assert all(speed.step_ms > 0 for speed in found.values())


# ---- the studies of the project -----------------------------------------------------------------------------------


def test_the_recipes_of_a_command_are_read_as_the_command_line_reads_them():
    words = "usd3:usd3+discrete*2 tauldr-cosine:tauldr+paper/recipes/cosine.yaml old:runs/old"
    command = ["compare", "pop909", "--methods", words, "--repeats", "3", "--training.steps", "7"]
    usd3, tauldr, old = methods_of(command)
    assert (usd3.label, usd3.trainings, usd3.recipe.diffusion.num_steps, usd3.recipe.training.steps) == (
        "usd3",
        2,
        1000,
        7,
    )
    assert (tauldr.trainings, tauldr.recipe.diffusion.schedule, tauldr.recipe.diffusion.t_min) == (3, "cosine", 0.01)
    assert (
        tauldr.recipe.training.batch_size == read_yaml(ROOT / "src/usd3/recipes/pop909.yaml")["training"]["batch_size"]
    )
    assert (old.recipe, old.trained) == (None, Path("runs/old"))


def test_every_comparison_is_by_steps_with_equal_batches():
    """Minutes on a shared GPU give unequal steps. Only SDDM on images may end by the clock, and says so."""
    for file in (PAPER / "studies").glob("*.yaml"):
        study = Study.read(PAPER, file.stem)
        data = "x" if study.data else None
        for command in study.commands(PAPER, Path("out"), Settings(data, None, None, 1)):
            if command[0] == "compare":
                recipes = [method.recipe.training for method in methods_of(command) if method.recipe]
                assert {training.minutes for training in recipes} == {None}, file
                assert {training.steps for training in recipes} == {study.steps}, file
                if file.stem != "music-sizes":  # our large network has its own training there
                    assert len({training.batch_size for training in recipes}) == 1, file
    assert Study.read(PAPER, "music").trainings == {"trainings": 3, "others": 1}
