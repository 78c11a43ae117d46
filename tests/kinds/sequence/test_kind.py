"""Sequences as a kind of data: from a file or strings to tokens, and back."""

import numpy as np
import pytest
import torch

from support.pixels import pixels
from usd3.kinds.options import DataConfig
from usd3.kinds.registry import kind_from, kind_of_file, kind_of_objects
from usd3.kinds.sequence.kind import LetterSequence
from usd3.kinds.sequence.options import SequenceOptions

DNA = LetterSequence(4, (6,), "ACGT", "dna")
LONGER = LetterSequence(5, (6,), "ACGT", "dna", has_ends=True)
WORDS = LetterSequence(4, (4,), "aeb", "other", has_ends=True, is_fasta=False)


def strings_of(dataset) -> list[str]:
    return sorted(dataset.kind.objects(dataset.train.tokens.long()) + dataset.kind.objects(dataset.test.tokens.long()))


@pytest.mark.parametrize("name", ["a.fa", "A.FASTA", "a.fna", "a.faa", "a.fa.gz", "a.b.fasta.gz"])
def test_fasta_files_are_of_this_kind(tmp_path, name):
    assert kind_of_file(tmp_path / name) is LetterSequence


@pytest.mark.parametrize("name", ["a.gz", "fa", "a.fa.txt", "a.npy.gz"])
def test_other_files_are_not(tmp_path, name):
    assert kind_of_file(tmp_path / name) is not LetterSequence


def test_a_file_is_read_with_its_names(tmp_path):
    strings = ["ACGTAC", "GGGGGG", "ACNTAC", "TTTTTT", "CCCCCC"]
    (tmp_path / "genes.v2.fa").write_text("".join(f">gene {i}\n{s}\n" for i, s in enumerate(strings)))
    with pytest.warns(UserWarning, match="1 N"):
        dataset = DataConfig("sequence", str(tmp_path / "genes.v2.fa"), test_fraction=0.2).load()
    assert (dataset.name, dataset.kind, len(dataset.test)) == ("genes", DNA, 1)
    assert sorted(dataset.train.names + dataset.test.names) == [f"gene {i}" for i in range(5)]
    split = dataset.train if dataset.train.pad is not None else dataset.test
    row = split.names.index("gene 2")
    assert split.pad[row].tolist() == [False, False, True, False, False, False]
    assert dataset.kind.strings(split.tokens, split.pad)[row] == "ACNTAC"


def test_a_text_may_have_a_sequence_in_each_line(tmp_path):
    """It is data like a list of strings; a .txt file that begins as FASTA is FASTA."""
    words = ["banana", "bandana", "cabana", "nadir"]
    (tmp_path / "words.txt").write_text("\ufeff" + "\r\n".join(words) + "\n\n", encoding="utf-8")
    dataset = DataConfig("sequence", str(tmp_path / "words.txt")).load()
    assert (dataset.name, dataset.kind.is_fasta, dataset.train.names) == ("words", False, ())
    assert strings_of(dataset) == sorted(words)
    (tmp_path / "genes.txt").write_text("\n; genes\n>one\nACGT\n>two\nTTTT\n")
    dataset = DataConfig("sequence", str(tmp_path / "genes.txt")).load()
    assert (dataset.kind.is_fasta, strings_of(dataset)) == (True, ["ACGT", "TTTT"])
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    for name, message in (("bytes.txt", "bytes.txt: expected a text in UTF-8"), ("no.txt", "no.txt: no such file")):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            DataConfig("sequence", str(tmp_path / name)).load()


@pytest.mark.parametrize("container", [list, tuple, np.array, lambda rows: np.array(rows, dtype=object)])
def test_strings_become_tokens_and_come_back(container):
    words = ["be", "eab", "a", "bee", "abba"]
    objects = container(words)
    assert kind_of_objects(objects) is LetterSequence
    dataset = LetterSequence.from_objects(objects, DataConfig("sequence", sequence=SequenceOptions()))
    assert dataset.kind == LetterSequence(4, (4,), "abe", "other", has_ends=True, is_fasta=False)
    assert strings_of(dataset) == sorted(words)
    assert dataset.kind.describe() == "strings of at most 4 letters, 3 different ones"


def test_words_are_no_proteins_with_unknown_letters():
    words = ["AXLE", "TAXI", "EXIT", "LATE"]
    dataset = LetterSequence.from_objects(words, DataConfig("sequence"))
    assert (dataset.kind.letters, dataset.kind.form) == ("AEILTX", "other")
    assert strings_of(dataset) == sorted(words)
    given = DataConfig("sequence", sequence=SequenceOptions(alphabet="ACGT"))
    with pytest.warns(UserWarning, match="1 N .* are unknown"):
        assert LetterSequence.from_objects(["ACGT", "ANGT"], given).kind.letters == "ACGT"


def test_a_series_of_strings_is_a_list():
    pandas = pytest.importorskip("pandas")
    series = pandas.Series(["ACGT", "CCGA", "TTTT"])
    assert kind_of_objects(series) is LetterSequence
    dataset = LetterSequence.from_objects(series, DataConfig("sequence"))
    assert dataset.kind == LetterSequence(4, (4,), "ACGT", "dna", is_fasta=False)
    assert strings_of(dataset) == sorted(series)


@pytest.mark.parametrize("objects", [[], ["a", 1], np.zeros(3), np.array(["ab"]).reshape(1, 1), "ACGT", {"a": 1}, None])
def test_other_objects_are_not_claimed(objects):
    assert not LetterSequence.claims_objects(objects)


@pytest.mark.parametrize(
    ("strings", "error", "message"),
    [
        (["a\nb", "c"], ValueError, r"strings\[0\] = 'a\\nb': expected a string without line breaks"),
        (["a", None], TypeError, r"strings\[1\] is a NoneType: expected a string"),
        ("ab", TypeError, "strings is a str: expected a list of strings"),
        (["aa", "aa"], ValueError, "different sequences of the strings = 1: expected at least 2"),
        (["a" * 5000, "b"], ValueError, "longest sequence of the strings = 5,000 letters: expected data.sequence.le"),
        ([], ValueError, "sequences of the strings = 0: expected at least 2"),
    ],
)
def test_strings_that_cannot_be_learnt_are_refused(strings, error, message):
    with pytest.raises(error, match=message):
        LetterSequence.from_objects(strings, DataConfig("sequence"))


def test_one_letter_of_several_lengths_can_be_learnt():
    dataset = LetterSequence.from_objects(["A", "AA", "AAA"], DataConfig("sequence"))
    assert dataset.kind.num_classes == 2
    assert strings_of(dataset) == ["A", "AA", "AAA"]


def test_what_follows_an_end_is_not_written():
    assert LONGER.objects(torch.tensor([[0, 1, 4, 2, 4, 4], [4, 0, 0, 0, 0, 0], [3] * 6])) == ["AC", "", "TTTTTT"]
    with pytest.raises(ValueError, match=r"tokens = others: expected categories 0..4"):
        LONGER.objects(torch.tensor([[5] * 6]))


def test_holes_of_strings_are_no_given_elements():
    tokens, given = LONGER.tokens(["AC-NGT", "AC", "_A"])
    assert given.int().tolist() == [[1, 1, 0, 0, 1, 1], [1, 1, 0, 0, 0, 0], [0, 1, 1, 1, 1, 1]]
    assert tokens.dtype == torch.long
    assert LONGER.objects(tokens[1:2].where(given[1:2], 4)) == ["AC"]
    tokens, given = WORDS.tokens(("a_b", "ebba"))
    assert given.int().tolist() == [[1, 0, 1, 1], [1] * 4]
    assert tokens[0].tolist() == [0, 0, 2, 3]
    with pytest.raises(ValueError, match="letter of sequence 1 = '-': expected one of aeb, or _ for unknown ones"):
        WORDS.tokens(["a-b"])


def test_a_sequence_does_not_end_before_what_is_given():
    """Nor before the end of a prompt with holes. Where the end itself is drawn, the length is open."""
    tokens, given = LONGER.tokens(["A-N-GT", "AC__", "AC", "____-_"])
    no_end = ~LONGER.possible(tokens, given)[..., 4]
    assert no_end.int().tolist() == [[0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 0, 0], [0] * 6, [0] * 6]
    assert LONGER.possible(tokens, given)[..., :4].all()
    tokens, given = torch.tensor([[0, 1, 2, 4, 4, 4]]), torch.tensor([[True, False, False, False, True, True]])
    assert LONGER.possible(tokens, given) is None  # a real sequence, which ends in a gap, may end there again
    assert LONGER.possible(*LONGER.tokens(["AC"])) is None
    assert DNA.possible(*DNA.tokens(["AC--GT"])) is None


def test_bits_are_counted_per_letter_and_one_end():
    tokens = torch.tensor([[0, 1, 4, 4, 4, 4], [0, 1, 2, 3, 0, 1]])
    pad = torch.zeros(2, 6, dtype=torch.bool)
    pad[1, 0] = True
    assert LONGER.num_counted(tokens, None) == 3 + 6
    assert LONGER.num_counted(tokens, pad) == 3 + 5
    assert DNA.num_counted(tokens.clamp(max=3), pad) == 11


def test_models_of_other_letters_are_not_the_same():
    DNA.require_same(DNA.as_dict(), "data")
    with pytest.raises(ValueError, match="letters of data = ACGU: expected ACGT"):
        DNA.require_same(LetterSequence(4, (6,), "ACGU", "rna").as_dict(), "data")
    with pytest.raises(ValueError, match="has_ends of data = True: expected False"):
        DNA.require_same(LONGER.as_dict(), "data")
    with pytest.raises(ValueError, match="kind of data = array: expected sequence"):
        DNA.require_same({"name": "array"}, "data")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"letters": ""}, "letters = : expected different letters"),
        ({"letters": "ACGA"}, "letters = ACGA: expected different letters"),
        ({"form": "dnaa"}, "form = dnaa: expected one of dna"),
        ({"has_ends": True}, "num_classes = 4: expected 5, one for each letter"),
    ],
)
def test_a_damaged_model_folder_is_told(change, message):
    with pytest.raises(ValueError, match=message):
        kind_from(DNA.as_dict() | change, 4, [6])


def test_a_model_says_what_it_is_about():
    assert DNA.describe() == "DNA sequences of 6 letters"
    assert LONGER.describe() == "DNA sequences of at most 6 letters"
    protein = LetterSequence(20, (9,), "ACDEFGHIKLMNPQRSTVWY", "protein")
    assert protein.describe() == "protein sequences of 9 letters"
    assert DNA.describe_split(DataConfig("sequence")).startswith("0.1 held out of the sequences, equal ones and")
    assert DNA.sample_examples("random", 32) == [" --num 100 --out new.fa", " --prompt holes.fa --out filled.fa"]


def test_methods_are_drawn_below_each_other(tmp_path):
    one, two = torch.zeros(1, 6, dtype=torch.long), torch.ones(5, 6, dtype=torch.long)
    assert DNA.picture_methods({"usd3": one}, {}, tmp_path / "one.png")
    assert DNA.picture_methods({"usd3": one, "mdlm": two}, {}, tmp_path / "both.png")
    low, high = (len(pixels(tmp_path / name)) for name in ("one.png", "both.png"))
    assert high - low == pytest.approx(3 * 0.17 * 160, abs=2)  # three of the second method
