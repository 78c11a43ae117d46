"""Classes on the command line, from files of classes to objects of a class; and the options of draws."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from usd3.cli.main import main
from usd3.pipeline.pipeline import Pipeline

SMALL = "--model.dim 16 --model.depth 1 --model.heads 2 --training.steps 2 --training.validate_every 0 --progress false"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a.fa and b.fa, and runs/ab, trained on them as classes."""
    folder = tmp_path_factory.mktemp("labels")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        random = np.random.default_rng(0)
        for name in "ab":
            words = ("".join(letters) for letters in random.choice(list("ACGT"), (40, 12)))
            (folder / f"{name}.fa").write_text("".join(f">{name}{i}\n{word}\n" for i, word in enumerate(words)))
        assert main(["train", "promoter=a.fa,none=b.fa", *SMALL.split(), "--run", "runs/ab"]) == 0
    return folder


@pytest.fixture(autouse=True)
def here(place, monkeypatch):
    monkeypatch.chdir(place)


def error_of(capsys, *words):
    capsys.readouterr()
    assert main(list(words)) != 0
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def drawn_with(monkeypatch, *words):
    """The arguments of Pipeline.sample in a command."""
    seen, sample = [], Pipeline.sample

    def recorded(self, *arguments, **options):
        seen.append(options)
        return sample(self, *arguments, **options)

    monkeypatch.setattr(Pipeline, "sample", recorded)
    assert main(["sample", "runs/ab", "--num", "3", "--steps", "2", "--device", "cpu", *words]) == 0
    return seen[0]


def test_files_of_classes_are_labels(place, capsys):
    config = json.loads((place / "runs/ab/config.json").read_text())
    assert config["labels"] == {"label": ["promoter", "none"]}
    assert config["data"]["path"] == f"promoter={place}/a.fa,none={place}/b.fa"
    assert main(["info", "runs/ab"]) == 0
    assert "label: promoter, none\n" in capsys.readouterr().out
    assert main(["evaluate", "runs/ab", "--runs", "1", "--steps", "2", "--sequences.num", "4"]) == 0


def test_the_options_of_a_draw_reach_it(place, monkeypatch):
    words = "--where label=none --guidance 3 --top_p 0.9 --top_k 2 --temperature 0.5 --sampler entropy:bound=0.3"
    seen = drawn_with(monkeypatch, *words.split(), "--out", "drawn.npz")
    expected = {"guidance_scale": 3.0, "top_p": 0.9, "top_k": 2, "temperature": 0.5, "sampler": "entropy:bound=0.3"}
    assert {key: seen[key] for key in expected} == expected
    assert seen["labels"] == {"label": "none"}
    with np.load(place / "drawn.npz") as arrays:
        assert arrays["tokens_label"].tolist() == [1, 1, 1]
        assert arrays["label_classes"].tolist() == ["promoter", "none"]


def test_the_corrector_is_the_one_that_was_asked_for(place, monkeypatch):
    words = "--corrector.kind gibbs --corrector.num_steps 2 --corrector.share 0.5 --corrector.last 3"
    corrector = drawn_with(monkeypatch, *words.split(), "--out", "corrected.npz")["corrector"]
    assert (type(corrector).__name__, corrector.num_steps, corrector.share, corrector.last) == (
        "GibbsCorrector",
        2,
        0.5,
        3,
    )


def test_an_exported_model_says_what_its_classes_are(place):
    assert main(["export", "runs/ab", "--out", "shared"]) == 0
    card = (place / "shared/README.md").read_text()
    assert "- label: promoter, none" in card
    assert "usd3 sample shared --where label=promoter --guidance 2" in card
    assert "promoter=a.fa,none=b.fa beside it" in card
    assert "  path: promoter=a.fa,none=b.fa\n" in card
    assert str(place) not in card
    assert main(["sample", "shared", "--where", "label=none", "--steps", "2", "--out", "s.npz", "--device", "cpu"]) == 0


def test_a_run_goes_on_with_the_same_classes_alone(place, capsys):
    for path in ("none=a.fa,promoter=b.fa", "x=a.fa,y=b.fa"):
        error = error_of(capsys, "train", "--resume", "runs/ab", "--training.steps", "4", "--data.path", path)
        assert "as those that the run had; start a new run" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--where", "label=enhancer"], "label = enhancer: expected one class, of promoter, none"),
        (["--where", "lable=none"], "name in where = lable: expected one of label (is label meant?)"),
        (["--where", "label!=none"], "where = label!=none: expected NAME=CLASS for a label, once"),
        (["--guidance", "2"], "guidance = 2.0: expected 1 where nothing is given and no label is set"),
        (["--guidance=-1", "--where", "label=none"], "guidance = -1.0"),
        (["--top_p", "0"], "top_p = 0.0: expected a number in (0, 1]"),
        (["--top_k", "0"], "top_k = 0"),
        (["--sampler", "entropie"], "sampler = entropie: expected one of"),
        (["--sampler", "revision:eta=7"], "eta = 7.0: expected a number in [0, 1]"),
        (["--corrector.count", "3"], "corrector.count = 3: expected 1, its default, for corrector.kind mcmc"),
        (["--corrector.kind", "gibbs"], "corrector.num_steps = 0: expected at least 1 with other options"),
        (["--corrector.step_size", "0.1"], "corrector.num_steps = 0: expected at least 1 with other options"),
        (["--steps", "0"], "steps = 0"),
        (["--corrector.kind", "gibbs", "--corrector.step_size", "1"], "corrector.step_size = 1"),
        (
            ["--corrector.kind", "gibbs", "--corrector.num_steps", "1", "--corrector.informed", "true"],
            "informed = True",
        ),
    ],
)
def test_wrong_requests(words, message, capsys):
    assert message in error_of(capsys, "sample", "runs/ab", "--steps", "2", "--device", "cpu", *words)


def test_wrong_files_of_classes(capsys):
    assert "none.fa: no such file" in error_of(capsys, "train", "promoter=a.fa,none=none.fa", *SMALL.split())
    assert "at least two classes" in error_of(
        capsys, "train", "sequence", "--data.path", "a=a.fa,a=b.fa", *SMALL.split()
    )
    Path("film.yaml").write_text("model:\n  net: film\n  hollow: false\n  timeless: false\n")
    error = error_of(capsys, "train", "promoter=a.fa,none=b.fa", "film.yaml", *SMALL.split())
    assert "model.net = film: expected transformer for data with labels" in error


def test_labels_of_images_are_those_of_their_flips():
    from usd3.cli.encode import _labels

    class Images:
        train_labels, test_labels = torch.tensor([2, 0, 1]), torch.tensor([1])

    assert [part.tolist() for part in _labels(Images, flips=True)] == [[2, 0, 1, 2, 0, 1], [1]]
    assert [part.tolist() for part in _labels(Images, flips=False)] == [[2, 0, 1], [1]]
    Images.test_labels = None
    assert _labels(Images, flips=True) is None
