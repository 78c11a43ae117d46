"""Sets of sequences beside held-out ones: what the scores of known sets are, and the whole command."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from usd3.cli.compare_jobs import has_settings
from usd3.cli.main import main
from usd3.core.options import DiffusionConfig
from usd3.evaluation.settings import EvaluationSettings
from usd3.kinds.dataset import Dataset, Sequences
from usd3.kinds.options import DataConfig
from usd3.kinds.sequence.judge import SequenceJudge
from usd3.kinds.sequence.kind import LetterSequence
from usd3.kinds.sequence.options import SequenceSettings
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline

LENGTH = 30


def periodic(num: int, seed: int) -> torch.Tensor:
    """ACG and T alternate in a random phase, one letter in four is any other."""
    random = np.random.default_rng(seed)
    rows = (np.arange(LENGTH) + random.integers(4, size=(num, 1))) % 4
    return torch.from_numpy(np.where(random.random(rows.shape) < 0.25, random.integers(4, size=rows.shape), rows))


@pytest.fixture
def dna() -> Dataset:
    kind = LetterSequence(4, (LENGTH,), "ACGT", "dna")
    return Dataset("genes", 4, Sequences(periodic(120, 0)), Sequences(periodic(60, 1)), kind=kind)


def ended(tokens: torch.Tensor, seed: int) -> torch.Tensor:
    """The sequences, each with an end after 10 to 20 letters, and ends alone after it."""
    lengths = torch.from_numpy(np.random.default_rng(seed).integers(10, 21, size=len(tokens)))
    return torch.where(torch.arange(LENGTH) < lengths[:, None], tokens, 4)


@pytest.fixture
def shorter() -> Dataset:
    kind = LetterSequence(5, (LENGTH,), "ACGT", "dna", has_ends=True)
    train, test = (Sequences(ended(periodic(n, seed), seed)) for n, seed in ((120, 0), (60, 1)))
    return Dataset("genes", 5, train, test, kind=kind)


def test_the_held_out_sequences_are_at_distance_zero_of_themselves(dna):
    scores = SequenceJudge(dna, SequenceSettings()).scores(dna.test.tokens)
    for key in ("kmer_3", "kmer_4", "kmer_5", "kmer_6", "composition", "gc_distance", "copies"):
        assert scores[key] == 0, key
    assert scores["kmer_correlation"] == pytest.approx(1)
    assert scores["told_apart"] == pytest.approx(0.5, abs=0.01)
    assert scores["gc"] == pytest.approx(float(((dna.test.tokens == 1) | (dna.test.tokens == 2)).double().mean()))
    assert 0 < scores["nearest"] < 0.5
    assert set(scores) == set(LetterSequence.columns) - {"length", "length_distance"}


def test_copies_of_training_sequences_are_found(dna):
    tokens = torch.cat([dna.train.tokens[:30], periodic(90, 7)])
    scores = SequenceJudge(dna, SequenceSettings()).scores(tokens)
    assert scores["copies"] == pytest.approx(0.25)
    assert SequenceJudge(dna, SequenceSettings()).scores(dna.train.tokens)["nearest"] == 0


def test_reference_rows_show_the_scale(dna):
    """What knows the period is near the held-out sequences, what does not is far; in bits, too."""
    rows = SequenceJudge(dna, SequenceSettings()).references(60)
    chains = [f"Markov chain, order {order}" for order in (5, 3, 1)]
    assert list(rows) == ["real sequences", *chains, "letters shuffled"]
    assert rows["real sequences"]["told_apart"].mean < 0.75 < 0.95 < rows["letters shuffled"]["told_apart"].mean
    for key in ("kmer_3", "kmer_6"):
        assert rows["real sequences"][key].mean < 0.6 * rows["letters shuffled"][key].mean
        assert rows["Markov chain, order 1"][key].mean < 0.8 * rows["letters shuffled"][key].mean
    bits = [rows[name]["bits_per_element"].mean for name in chains]
    assert max(bits[:2]) < bits[2] < 1.6
    assert "copies" not in rows["letters shuffled"]
    assert rows["real sequences"]["nearest"].mean > 0  # that of the held-out ones, not of training ones to themselves
    assert set().union(*rows.values()) - {"bits_per_element"} <= set(LetterSequence.columns)


def test_there_is_no_row_of_more_real_sequences_than_there_are(dna, capsys):
    rows = SequenceJudge(dna, SequenceSettings()).references(121)
    assert "real sequences" not in rows
    assert "no row of real sequences: there are 120 to train on, and 121 in a set" in capsys.readouterr().err


def test_lengths_are_compared_where_they_differ(shorter):
    judge = SequenceJudge(shorter, SequenceSettings())
    scores = judge.scores(shorter.test.tokens)
    lengths = (shorter.test.tokens != 4).sum(1).double()
    assert scores["length"] == pytest.approx(float(lengths.mean()))
    assert scores["length_distance"] == 0
    whole = judge.scores(periodic(60, 3))
    assert (whole["length"], whole["length_distance"]) == (LENGTH, pytest.approx(LENGTH - float(lengths.mean())))
    rows = judge.references(60)
    assert rows["letters shuffled"]["length"].mean == pytest.approx(rows["real sequences"]["length"].mean)
    assert 5 < rows["Markov chain, order 5"]["length"].mean < 20  # it cannot count, but it ends


def test_what_follows_an_end_does_not_count(shorter):
    judge = SequenceJudge(shorter, SequenceSettings())
    tokens = shorter.test.tokens.clone()
    after = (tokens == 4).cumsum(1) > 1
    noisy = torch.where(after, torch.randint(5, tokens.shape, generator=torch.Generator().manual_seed(0)), tokens)
    assert judge.scores(noisy) == judge.scores(tokens)


def test_unknown_letters_do_not_count(dna):
    pad = torch.zeros(60, LENGTH, dtype=torch.bool)
    pad[:, ::6] = True
    hidden = Sequences(dna.test.tokens.masked_fill(pad, 0), pad)
    judge = SequenceJudge(Dataset("genes", 4, dna.train, hidden, kind=dna.kind), SequenceSettings())
    scores = judge.scores(dna.test.tokens)
    assert scores["composition"] == 0  # at the positions that are known
    assert scores["kmer_3"] < 0.3
    assert math.isnan(scores["kmer_6"])  # no 6-mer is known


def test_proteins_have_no_gc_and_chains_of_lower_order():
    kind = LetterSequence(20, (12,), "ACDEFGHIKLMNPQRSTVWY", "protein")
    rows = torch.randint(20, (40, 12), generator=torch.Generator().manual_seed(0))
    judge = SequenceJudge(Dataset("p", 20, Sequences(rows[:30]), Sequences(rows[30:]), kind=kind), SequenceSettings())
    found = judge.references(10)
    assert [name for name in found if "Markov" in name] == ["Markov chain, order 3", "Markov chain, order 1"]
    assert "gc" not in found["real sequences"]
    assert judge.about["classifier"] == "counts of 2-mers"


def test_a_set_is_as_large_as_the_held_out_one_unless_the_user_says_so(dna):
    judge = SequenceJudge(dna, SequenceSettings())
    assert judge.num == 60
    assert judge.settings_with(60) == {"sequences": {"num": None}}  # so that a comparison knows its own results
    assert judge.settings_with(10) == {"sequences": {"num": 10}}
    assert SequenceJudge(dna, SequenceSettings(num=9)).num == 9
    with pytest.raises(ValueError, match=r"sequences\.num = 3"):
        SequenceSettings(num=3)


@pytest.mark.parametrize("num", [None, 50])
def test_too_few_held_out_sequences_are_refused_before_anything_is_drawn(dna, num):
    few = Dataset("genes", 4, dna.train, Sequences(periodic(3, 1)), kind=dna.kind)
    message = "held-out sequences of genes = 3: expected at least 4, to compare with: train with a larger --data.test_f"
    with pytest.raises(ValueError, match=message):
        SequenceJudge(few, SequenceSettings(num=num))


def test_categories_in_another_order_are_scored_the_same(dna):
    decode = torch.tensor([2, 0, 3, 1])
    encode = decode.argsort()
    train, test = (Sequences(encode[part.tokens]) for part in (dna.train, dna.test))
    scrambled = Dataset("genes", 4, train, test, decode, dna.kind)
    drawn = periodic(60, 9)
    scores = [SequenceJudge(data, SequenceSettings()).scores(drawn) for data in (dna, scrambled)]
    assert scores[0] == scores[1]


# ---- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A file of sequences with a few unknown letters and several lengths, and an untrained model of them."""
    monkeypatch.chdir(tmp_path)
    letters = "ACGT"
    rows = ["".join(letters[i] for i in row[: 20 + n % 11]) for n, row in enumerate(periodic(60, 0).tolist())]
    rows[3:40:6] = [row[:5] + "N" + row[6:] for row in rows[3:40:6]]
    Path("genes.fa").write_text("".join(f">{i}\n{row}\n" for i, row in enumerate(rows)))
    with pytest.warns(UserWarning, match="7 N"):
        dataset = DataConfig("sequence", "genes.fa").load()
    torch.manual_seed(0)
    config = PipelineConfig(dataset.num_classes, list(dataset.shape), kind=dataset.kind.as_dict(), steps=2)
    config.data = DataConfig("sequence", str(tmp_path / "genes.fa"))
    config.model = ModelConfig(dim=8, depth=1, heads=1, time_dim=4, timeless=True)
    config.diffusion = DiffusionConfig("absorbing", "linear")
    Pipeline(config).save_pretrained("model")
    return dataset


@pytest.mark.filterwarnings("ignore:.*are unknown")
def test_a_model_is_measured_beside_the_reference_rows(model, capsys):
    command = ["evaluate", "model", "--steps", "3", "--runs", "2", "--bound_samples", "4", "--device", "cpu"]
    assert main([*command, "--out", "found.json"]) == 0
    results = json.loads(Path("found.json").read_text())
    printed = capsys.readouterr().out
    held_out = len(model.test)
    assert f"2 sets of {held_out} sequences in 3 steps, seed 0, against {held_out} held-out sequences" in printed
    for word in ("3-mers ↓", "GC distance ↓", "length distance ↓", "told apart ↓", "Markov chain, order 5"):
        assert word in printed
    assert results["rows"]["model"]["told_apart"]["mean"] > 0.5
    pad = model.test.pad
    nats = Pipeline.from_pretrained("model", device="cpu").bound(model.test.tokens.long(), pad=pad, num_samples=4)
    letters = model.kind.num_counted(model.test.tokens.long(), pad)
    bits = results["bits_per_element"]
    assert bits["model (upper bound)"] == pytest.approx(float(nats.sum()) / letters / math.log(2))
    assert 0.5 < bits["Markov chain, order 1"] < 2.2
    assert printed.count("bits per element of held-out sequences") == 4
    settings = EvaluationSettings(steps=3, runs=2, bound_samples=4, prefix=0, from_nothing=True)
    assert has_settings(results, settings)


@pytest.mark.filterwarnings("ignore:.*are unknown")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prefix", "3"], "prefix = 3: expected null or 0, as objects are drawn from nothing"),
        (["--images.num", "9"], "images.num = 9: expected no such option, as the data are no images"),
        (["--data_path", "rna.fa"], "letters of data = ACGU: expected ACGT"),
        (["--data_path", "gone.fa"], "gone.fa: no such file; expected a FASTA file (--data_path PATH says"),
    ],
)
def test_wrong_options_end_in_one_line(model, capsys, options, message):
    Path("rna.fa").write_text(Path("genes.fa").read_text().replace("T", "U"))
    assert main(["evaluate", "model", "--device", "cpu", *options]) == 1
    errors = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(errors) == 1
    assert message in errors[0]
