"""Samples as FASTA files, texts and pictures, and prompts with holes, on the command line with untrained models."""

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from support.pixels import has, pixels
from usd3.cli.main import main
from usd3.core.options import DiffusionConfig
from usd3.kinds.options import DataConfig
from usd3.kinds.rendering import Drawn, Request
from usd3.kinds.sequence.fasta import read_fasta
from usd3.kinds.sequence.kind import LetterSequence
from usd3.nets.options import ModelConfig
from usd3.pictures.figures import UNKNOWN
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline

DNA = LetterSequence(4, (8,), "ACGT", "dna")
LONGER = LetterSequence(5, (8,), "ACGT", "dna", has_ends=True)
WORDS = LetterSequence(4, (8,), "ab ", "other", has_ends=True, is_fasta=False)
KINDS = {"dna": DNA, "longer": LONGER, "words": WORDS}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with an untrained model of each kind."""
    folder = tmp_path_factory.mktemp("models")
    for name, kind in KINDS.items():
        torch.manual_seed(0)
        config = PipelineConfig(kind.num_classes, list(kind.shape), kind=kind.as_dict(), given="random", prefix=3)
        config.data = DataConfig("sequence")
        config.model = ModelConfig(dim=8, depth=1, heads=1, time_dim=4, timeless=True)
        config.diffusion = DiffusionConfig("absorbing", "linear")
        Pipeline(config).save_pretrained(folder / name)
    return folder


@pytest.fixture
def sample(models, tmp_path, monkeypatch):
    """`usd3 sample` with a few steps, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda name, *options: main(["sample", str(models / name), "--steps", "4", "--device", "cpu", *options])


def strings(path: str) -> dict[str, str]:
    records = read_fasta(Path(path))
    text, ends = bytes(records.codes).decode(), records.starts.tolist()
    return {name: text[a:b] for name, a, b in zip(records.names, ends, ends[1:])}


def test_new_sequences_are_numbered_in_one_file(sample):
    assert sample("dna", "--num", "3", "--out", "new.fasta") == 0
    found = strings("new.fasta")
    assert list(found) == ["sample-1", "sample-2", "sample-3"]
    assert all(re.fullmatch("[ACGT]{8}", sequence) for sequence in found.values())
    assert sample("dna", "--out", "all", "--animate", "true") == 0
    assert {file.name for file in Path("all").iterdir()} == {
        "samples.fa",
        "samples.npz",
        "samples.png",
        "denoising.gif",
    }
    assert len(strings("all/samples.fa")) == 4


def test_strings_are_written_one_in_a_line(sample):
    assert sample("words", "--num", "5", "--out", "new.txt") == 0
    text = Path("new.txt").read_text()
    assert text.count("\n") == 5
    assert all(re.fullmatch("[ab ]{0,8}", line) for line in text.splitlines())
    assert sample("words", "--out", "all") == 0
    assert {file.name for file in Path("all").iterdir()} == {"samples.txt", "samples.npz", "samples.png"}


def test_a_file_with_holes_is_filled_whole_and_keeps_its_names(sample):
    prompts = {f"gene {i}": "ACNNGT-A" if i % 2 else "NCGTACGT" for i in range(6)}
    Path("holes.fa").write_text("".join(f">{name}\n{text}\n" for name, text in prompts.items()))
    assert sample("dna", "--prompt", "holes.fa", "--out", "filled.fa") == 0
    found = strings("filled.fa")
    assert list(found) == list(prompts)
    for name, text in prompts.items():
        assert re.fullmatch(text.replace("N", "[ACGT]").replace("-", "[ACGT]"), found[name])
    Path("holes.fa.gz").write_bytes(gzip.compress(Path("holes.fa").read_bytes()))
    assert sample("dna", "--prompt", "holes.fa.gz", "--num", "2", "--first", "1", "--out", "two.fa") == 0
    assert list(strings("two.fa")) == ["gene 1", "gene 2"]


def test_a_typed_sequence_is_filled_in_several_ways(sample):
    assert sample("dna", "--prompt", "acnnnnGT", "--num", "4", "--out", "filled.fa") == 0
    found = strings("filled.fa")
    assert list(found) == [f"sample-{i}" for i in range(1, 5)]
    assert all(re.fullmatch("AC....GT", text) for text in found.values())
    assert len(set(found.values())) > 1


def test_options_say_which_letters_stay_and_holes_are_drawn_all_the_same(sample):
    Path("whole.fa").write_text(">a\nAAAAAAAA\n>b\nCCNCCCCC\n")
    assert sample("dna", "--prompt", "whole.fa", "--given", "0:4;6:8", "--seed", "1", "--out", "new") == 0
    stored = np.load("new/samples.npz")
    assert stored["given"].astype(int).tolist() == [[1, 1, 1, 1, 0, 0, 1, 1], [1, 1, 0, 1, 0, 0, 1, 1]]
    found = strings("new/samples.fa")
    assert re.fullmatch("AAAA..AA", found["a"])
    assert re.fullmatch("CC.C..CC", found["b"])


def test_a_whole_sequence_is_drawn_anew_only_where_the_user_says(sample, capsys):
    Path("whole.fa").write_text(">a\nAAAAAAAA\n>b\nCCCCCCCC\n")
    for prompt in ("AAAAAAAA", "whole.fa"):
        assert sample("dna", "--prompt", prompt, "--out", "new") == 1
        error = f"prompt = {prompt}, without a hole: expected holes, N for each letter to draw, or --prefix, --fill or"
        assert error in capsys.readouterr().err
    assert sample("dna", "--prompt", "AAAAAAAA", "--prefix", "3", "--out", "new") == 0
    assert np.load("new/samples.npz")["given"].astype(int).tolist() == [1, 1, 1, 0, 0, 0, 0, 0]


def test_the_answers_to_a_typed_sequence_are_printed(sample, capsys):
    assert sample("dna", "--prompt", "ACGTNNNN", "--num", "10", "--out", "filled.fa") == 0
    printed = capsys.readouterr().out
    assert Path("filled.fa").read_text().startswith(printed.partition("\n\n")[0] + "\n")
    assert printed.count(">") == 8
    assert sample("words", "--prompt", "ab_", "--num", "2", "--out", "filled.txt") == 0
    assert capsys.readouterr().out.startswith(Path("filled.txt").read_text() + "\n")
    Path("holes.fa").write_text(">a\nACGTNNNN\n")
    assert sample("dna", "--prompt", "holes.fa", "--out", "file.fa") == 0
    assert ">" not in capsys.readouterr().out  # it is in the file that the user asked for


class Ends(nn.Module):
    """A model that takes every element for an end, nearly always."""

    def __init__(self, num_classes, end):
        super().__init__()
        self.logits = nn.Parameter(8.0 * nn.functional.one_hot(torch.tensor(end), num_classes))

    def forward(self, x_t, t):
        return self.logits.expand(*x_t.shape, -1)


@pytest.mark.parametrize("timeless", [True, False])
@pytest.mark.parametrize("decode", [None, [4, 0, 1, 2, 3]])
@pytest.mark.parametrize(
    ("noise", "samplers"), [("absorbing", ["exact", "first_hitting"]), ("uniform", ["exact", "euler"])]
)
def test_no_filled_sequence_lacks_a_given_letter(noise, samplers, decode, timeless):
    """Although the model would end all of them: an end before a given letter is impossible. Open ends stay open."""
    config = PipelineConfig(5, [8], DiffusionConfig(noise, "linear"), kind=LONGER.as_dict(), decode=decode)
    network = Ends(6 if noise == "absorbing" else 5, 4 if decode is None else decode.index(4))
    network.ignores_time = timeless
    pipeline = Pipeline(config, network)
    prompts = ["NNNNACGT", "ACNNNNNT", "AC-N-G", "ACNN", "AC"]
    tokens, given = (part.repeat(10, 1) for part in LONGER.tokens(prompts))
    for sampler in samplers:
        found = LONGER.objects(pipeline.sample(tokens=tokens, given=given, num_steps=3, sampler=sampler))
        for text, prompt in zip(found, prompts * 10):
            letters = "[ACGT]"
            assert re.fullmatch(re.sub("[N-]", letters, prompt) + (letters + "*" if prompt == "AC" else ""), text)
        assert "AC" in found[4::5]
    assert pipeline.generate(tokens=tokens, given=given, num_steps=3)[1][-1] == "T"


def test_holes_of_a_shorter_sequence_are_filled_with_letters_by_the_command(sample):
    assert sample("longer", "--prompt", "ACNNGT", "--num", "40", "--out", "filled.fa") == 0
    assert all(re.fullmatch("AC[ACGT]{2}GT", text) for text in strings("filled.fa").values())
    rows = np.array([[0, 1, 2, 3, 4, 4, 4, 4], [0, 1, 2, 3, 0, 1, 2, 3]] * 20)
    np.save("rows.npy", rows)
    assert sample("longer", "--prompt", "rows.npy", "--given", "0:1;3:4", "--out", "open.fa") == 0
    found = strings("open.fa").values()
    assert all(re.fullmatch("A[ACGT]{2}T[ACGT]*", text) for text in found)
    assert len({len(text) for text in found}) > 2


def test_a_shorter_sequence_goes_on_or_ends_where_its_holes_say(sample):
    assert sample("longer", "--prompt", "ACG", "--num", "20", "--out", "open.fa") == 0
    opened = strings("open.fa").values()
    assert all(text.startswith("ACG") for text in opened)
    assert len({len(text) for text in opened}) > 1
    Path("holes.txt").write_text("ab_b\n\n_a\r\n")
    assert sample("words", "--prompt", "holes.txt", "--out", "filled") == 0
    given = np.load("filled/samples.npz")["given"].astype(int).tolist()
    assert given == [[1, 1, 0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1, 1]]
    Path("fasta.txt").write_text(">a name\nACGNNNNN\n")
    assert sample("dna", "--prompt", "fasta.txt", "--out", "filled.fa") == 0
    assert list(strings("filled.fa")) == ["a name"]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("ACGTNN", "length of the prompt = 6: expected 8 letters, as the model has, with N for each that is to be"),
        ("ACGTNNEE", "letter of the prompt = 'E': expected one of ACGT, or N - for unknown ones"),
        ("gone.fa", "prompt = gone.fa: no such file"),
        ("empty.fa", "prompt = empty.fa: expected at least one sequence"),
        ("binary.txt", "prompt = binary.txt: expected a text in UTF-8"),
        ("table.csv", "prompt = table.csv: expected a file that ends with .npy, .npz, .fa"),
    ],
)
def test_a_prompt_that_does_not_fit_ends_in_one_line(sample, capsys, prompt, message):
    Path("empty.fa").write_text("; nothing\n")
    Path("binary.txt").write_bytes(b"\xff\xfe\x00")
    Path("table.csv").write_text("a,b\n")
    assert sample("dna", "--prompt", prompt, "--out", "new.fa") == 1
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1
    assert message in errors[0]
    assert not Path("new.fa").exists()


def test_nothing_is_overwritten(sample, capsys):
    Path("mine.fa").write_text("mine")
    assert sample("dna", "--out", "mine.fa") == 1
    assert "out = mine.fa: expected a name that is not taken" in capsys.readouterr().err
    assert Path("mine.fa").read_text() == "mine"


def test_unknown_letters_of_held_out_sequences_stay_unknown(tmp_path):
    pad = torch.zeros(2, 8, dtype=torch.bool)
    pad[0, 2] = True
    drawn = Drawn(torch.zeros(2, 8, dtype=torch.long), pad=pad, names=["a", "b"])
    DNA.renderer(Request()).write(drawn, tmp_path / "a.fa")
    assert strings(tmp_path / "a.fa") == {"a": "AANAAAAA", "b": "AAAAAAAA"}


def test_pictures_and_films_have_the_same_letters(tmp_path):
    """A film ends with the colours of the letters; what is not known yet is grey, what has ended is white."""
    tokens = torch.tensor([[0, 1, 2, 3, 0, 1, 4, 4]])
    frames = [torch.full((1, 8), 5), tokens]
    given = torch.tensor([True] + [False] * 7)
    drawn = Drawn(tokens, given=given, frames=frames, mask=5)
    LONGER.renderer(Request()).write(drawn, tmp_path / "out")
    first, last = (pixels(tmp_path / "out" / "denoising.gif", frame) for frame in (0, 1))
    colours = ["#009E73", "#0072B2", "#E69F00", "#D55E00"]
    assert [has(first, colour) for colour in colours] == [False] * 4
    assert [has(last, colour) for colour in colours] == [True] * 4
    assert (has(first, UNKNOWN), has(last, UNKNOWN)) == (True, False)
    assert (tmp_path / "out" / "samples.png").stat().st_size > 1000


@pytest.mark.filterwarnings("ignore:.*are unknown")
def test_from_fasta_to_fasta_in_two_commands(tmp_path, monkeypatch, capsys):
    """Trained for two steps, with several lengths and unknown letters; the recipe is that of the file's kind."""
    monkeypatch.chdir(tmp_path)
    letters = np.random.default_rng(0).choice(list("ACGTN"), (30, 12), p=[0.24] * 4 + [0.04])
    rows = ["".join(row[: 8 + i % 5]) for i, row in enumerate(letters)]
    Path("genes.fa").write_text("".join(f">gene {i}\n{row}\n" for i, row in enumerate(rows)))
    tiny = (
        "--model.dim 16 --model.depth 1 --model.heads 2 --model.time_dim 8 --training.steps 2 --training.batch_size 4"
    )
    assert main(["train", "genes.fa", "small", *tiny.split(), "--training.accelerator", "cpu"]) == 0
    folder = "runs/genes-small"
    config = PipelineConfig.read(Path(folder))
    assert (config.diffusion.noise, config.model.timeless, config.given) == ("absorbing", True, "random")
    assert config.build_kind() == LetterSequence(5, (12,), "ACGT", "dna", has_ends=True)
    assert main(["sample", folder, "--num", "5", "--steps", "4", "--out", "new.fa"]) == 0
    assert Path("new.fa").read_text().count(">") == 5
    assert main(["sample", folder, "--prompt", "test", "--given", "0:9", "--steps", "4", "--out", "test.fa"]) == 0
    found = strings("test.fa")
    held_out = config.data.load().test.names
    assert tuple(found) == held_out
    assert all(found[name].startswith(rows[int(name.split()[1])][:9]) for name in held_out)
    assert main(["export", folder, "--out", "shared"]) == 0
    card = Path("shared/README.md").read_text()
    assert "A model of DNA sequences of at most 12 letters" in card
    assert "usd3 sample shared --num 100 --out new.fa" in card
