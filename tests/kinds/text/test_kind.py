"""Texts from the file to samples, prompts and numbers, as a user does it."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from usd3.cli.main import main
from usd3.kinds.dataset import Dataset, Windows
from usd3.kinds.options import DataConfig
from usd3.kinds.registry import kind_of_file, kind_of_objects
from usd3.kinds.text.kind import Text
from usd3.kinds.text.tokenizers import learnt_pieces
from usd3.pipeline.pipeline import Pipeline

TEXT = "".join(f"the {animal} sat on the {thing}.\n" for animal in ("cat", "dog") for thing in ("mat", "hat")) * 30
TINY = ["--model.dim", "16", "--model.depth", "1", "--model.heads", "2", "--training.steps", "2"]
ABC = Text(27, (16,), "characters", " abcdefghijklmnopqrstuvwxyz")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A text, and models of its characters and pieces that learnt next to nothing."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "book.txt").write_text(TEXT)
    begin = ["train", str(folder / "book.txt"), "small", *TINY, "--progress", "false"]
    characters = ["--run", str(folder / "run"), "--data.length", "32"]
    assert main([*begin, *characters]) == 0
    pieces = ["--run", str(folder / "pieces"), "--data.length", "16", "--data.text.vocabulary", "300"]
    assert main([*begin, *pieces, "--data.text.tokenizer", "bpe"]) == 0
    return folder


@pytest.fixture
def sample(trained, tmp_path, capsys):
    """A function that calls `usd3 sample` with a short drawing; returns what it prints and the folder."""

    def call(*options, run="run", code=0):
        assert main(["sample", str(trained / run), "--steps", "3", "--out", str(tmp_path / "out"), *options]) == code
        printed = capsys.readouterr()
        return printed.out if code == 0 else printed.err, tmp_path / "out"

    return call


def test_a_txt_file_is_a_text_and_a_string_too(tmp_path):
    assert kind_of_file(tmp_path / "Book.TXT") is Text
    assert kind_of_objects("It was the best of times") is Text
    dataset = Text.from_objects(TEXT, DataConfig("text", length=16))
    assert dataset.kind.objects(dataset.train.take(torch.tensor([4]))[0]) == [TEXT[4:20]]


def test_the_model_folder_is_complete_by_itself(trained):
    pipeline = Pipeline.from_pretrained(trained / "run")
    assert pipeline.kind.alphabet == "".join(sorted(set(TEXT)))
    assert pipeline.config.shape == [32]
    pieces = Pipeline.from_pretrained(trained / "pieces").kind
    assert pieces.objects(torch.tensor([pieces.codec.encode("the cat").tolist()])) == ["the cat"]


def test_samples_are_printed_and_written(sample):
    printed, out = sample("--num", "2", "--animate", "true")
    assert {file.name for file in out.iterdir()} == {"samples.txt", "samples.npz", "samples.png", "denoising.gif"}
    first, second = (out / "samples.txt").read_text().split("----- 2 -----\n")
    first = first.removeprefix("----- 1 -----\n").removesuffix("\n\n")
    assert (len(first), len(second.removesuffix("\n"))) == (32, 32)
    assert printed.startswith((out / "samples.txt").read_text())  # with the same lines between them


def test_one_text_is_written_as_it_is(sample, tmp_path):
    sample("--num", "1", "--out", str(tmp_path / "new.txt"))
    assert len((tmp_path / "new.txt").read_text()) == 32


def test_a_typed_text_with_a_gap_is_filled_and_no_longer(sample):
    printed, out = sample("--num", "3", "--prompt", "the ___ sat")
    lines = [line for line in re.findall(r"^the (?:.|\n){3} sat$", printed, re.MULTILINE) if line]
    assert len(lines) == 3
    stored = np.load(out / "samples.npz")
    assert stored["given"].tolist() == [True] * 4 + [False] * 3 + [True] * 4 + [False] * 21
    assert "pad" not in stored
    assert stored["tokens"].shape == (3, 32)  # the window is drawn whole, which is what the network has learnt
    assert (out / "samples.txt").read_text().count(" sat\n") == 3


def test_a_text_without_a_gap_is_continued_to_the_end_of_the_window(sample):
    _, out = sample("--num", "1", "--prompt", "the cat")
    text = (out / "samples.txt").read_text()
    assert text.startswith("the cat")
    assert len(text) == 32


def test_a_prompt_may_be_a_file_whose_last_line_end_does_not_count(sample, tmp_path):
    (tmp_path / "prompt.txt").write_bytes(b"the c_t\r\nsat\r\n")
    _, out = sample("--num", "1", "--prompt", str(tmp_path / "prompt.txt"))
    assert re.fullmatch(r"the c(.|\n)t\nsat", (out / "samples.txt").read_text())


def test_the_options_of_a_prompt_still_count(sample):
    _, out = sample("--num", "1", "--prompt", "the cat sat on the mat", "--fill", "4:7;12:14")
    given = np.load(out / "samples.npz")["given"]
    assert np.flatnonzero(~given).tolist() == [4, 5, 6, 12, 13, *range(22, 32)]  # after the text nothing is given
    assert re.fullmatch(r"the (.|\n){3} sat (.|\n){2} the mat", (out / "samples.txt").read_text())


def test_held_out_text_is_a_prompt(sample):
    _, out = sample("--num", "2", "--prompt", "test", "--prefix", "20")
    assert len(np.load(out / "samples.npz")["tokens"]) == 2
    starts = [text[:20] for text in re.findall(r"----- \d -----\n((?:.|\n){32})", (out / "samples.txt").read_text())]
    assert len(starts) == 2
    assert all(start in TEXT for start in starts)


def test_gaps_of_pieces_are_told(sample, trained, capsys):
    assert main(["sample", str(trained / "pieces"), "--steps", "3", "--num", "1", "--prompt", "the ____ sat"]) == 0
    assert re.search(r"the gaps are \d+ tokens?, which ha(s|ve) any number of characters", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("the Cat ___", "the prompt has the character 'C': expected those of the training text"),
        ("the cat " * 5, "the prompt = 40 characters: expected at most 32, a window: shorten it, or train with a "),
        ("the cat " * 4, "the prompt = 32 characters without a gap: expected a gap, a run of _"),
    ],
)
def test_unfit_prompts_get_one_clear_line(sample, prompt, message):
    error, _ = sample("--prompt", prompt, code=1)
    assert message in error
    assert error.count("\n") == 1


def test_an_evaluation_has_bits_words_and_ngrams(trained, tmp_path, capsys):
    fast = ["--runs", "2", "--steps", "3", "--limit", "4", "--bound_samples", "4"]
    for run in ("run", "pieces"):
        out = tmp_path / f"{run}.json"
        assert main(["evaluate", str(trained / run), *fast, "--out", str(out)]) == 0
        printed = capsys.readouterr().out
        for title in ("bits/character", "perplexity/token", "entropy", "distinct 4-grams", "words in training"):
            assert title in printed
        results = json.loads(out.read_text())
        rows, bits = results["rows"], results["bits_per_element"]
        assert [name for name in bits if name.endswith("grams")] == ["2-grams", "4-grams", "6-grams"]
        model = rows["model"]
        assert model["perplexity"]["mean"] == pytest.approx(2 ** bits["model (upper bound)"])
        rate = bits["model (upper bound)"] / model["bits_per_character"]["mean"]
        assert rate == pytest.approx(1) if run == "run" else rate > 1.5  # characters per token
        assert rows["the truth itself"]["known_words"]["mean"] == 1.0
        assert rows["6-grams"]["bits_per_character"]["mean"] < 0.5 < model["bits_per_character"]["mean"]
        assert rows["model, from nothing"]["entropy"]["mean"] > 0


def test_a_run_goes_on_and_is_shared_without_places(trained, tmp_path, capsys):
    run = tmp_path / "run"
    (tmp_path / "tokenizer.json").write_text(learnt_pieces(["/ / // " + TEXT], 300))
    tokenizer = ["--data.text.tokenizer", str(tmp_path / "tokenizer.json"), "--data.length", "16"]
    assert main(["train", str(trained / "book.txt"), "small", *TINY, *tokenizer, "--run", str(run)]) == 0
    assert main(["train", "--resume", str(run), "--training.steps", "3"]) == 0
    assert main(["export", str(run), "--out", str(tmp_path / "shared")]) == 0
    for name in ("config.json", "README.md"):
        assert str(tmp_path) not in (tmp_path / "shared" / name).read_text()
    assert "the last 0.1 of the text is held out" in (tmp_path / "shared" / "README.md").read_text()
    pipeline = Pipeline.from_pretrained(tmp_path / "shared")
    assert pipeline.kind.codec.decode(pipeline.kind.codec.encode("// the cat").tolist()) == "// the cat"


# ---- in Python ----------------------------------------------------------------------------------------------------


def test_texts_become_tokens_with_holes_and_come_back():
    tokens, given = ABC.tokens(["a cat", "d_g"])
    assert tokens.shape == given.shape == (2, 16)
    assert given.sum(1).tolist() == [5, 2]
    assert ABC.objects(tokens[:, :5])[0] == "a cat"
    assert given[1, :4].tolist() == [True, False, True, False]
    with pytest.raises(ValueError, match=r"objects\[1\] has the character '!'"):
        ABC.tokens(["a", "b!"])
    with pytest.raises(ValueError, match=r"objects\[0\] = 17 characters: expected at most 16"):
        ABC.tokens(["a" * 17])
    with pytest.raises(TypeError, match="objects is a str: expected a list of texts"):
        ABC.tokens("abc")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer": "words"}, "tokenizer = words: expected one of characters, bytes, pieces"),
        ({"alphabet": "aab"}, "alphabet = 'aab': expected 27 different characters"),
        ({"tokenizer": "bytes"}, "num_classes = 27: expected 256 for bytes"),
        ({"shape": (4, 4)}, "shape"),
        ({"characters_per_token": 0.0}, "characters_per_token"),
        ({"pieces": 3}, "pieces is a int: expected a text"),
    ],
)
def test_a_damaged_description_is_refused(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        replace(ABC, **changes)


def test_pieces_of_another_size_are_refused():
    kind = Text(999, (16,), "pieces", pieces=learnt_pieces([TEXT], 300))
    with pytest.raises(ValueError, match=r"pieces = .* tokens: expected 999"):
        kind.tokens(["the cat"])


def test_data_with_another_alphabet_are_refused():
    with pytest.raises(ValueError, match="alphabet of data"):
        ABC.require_same(replace(ABC, alphabet=ABC.alphabet[::-1]).as_dict(), "data")


def test_the_words_of_the_training_text_are_known():
    stream = torch.from_numpy(ABC.codec.encode(" the cat sat on the mat ")).long()
    dataset = Dataset("d", 27, Windows(stream, 16), Windows(stream, 16), kind=ABC)
    runs = torch.from_numpy(np.stack([ABC.codec.encode(" the dog sat on "), ABC.codec.encode(" cat cat catcat ")]))
    found = ABC.informed_by(dataset).structure(runs.long()[:, None])["known_words"]
    assert found.mean == pytest.approx((3 / 4 + 2 / 3) / 2)
    assert "known_words" not in ABC.structure(runs.long()[:, None])


def test_bits_are_told_per_character_and_per_byte():
    kind = Text(256, (4,), "bytes")
    found = kind.likelihoods(1.5, torch.tensor(list("né中xy".encode())).reshape(2, 4))
    assert found["bits_per_byte"].mean == 1.5
    assert found["bits_per_character"].mean == pytest.approx(1.5 * 8 / 5)
    assert found["perplexity"].mean == pytest.approx(2**1.5)


def test_a_bound_beyond_all_numbers_and_half_a_character_can_be_measured():
    found = Text(2, (4,), "characters", "a\ud800").likelihoods(2000.0, torch.tensor([[0, 1, 1, 1]]))
    assert found["perplexity"].mean == math.inf
    assert found["bits_per_byte"].mean == pytest.approx(2000 * 4 / 10)
