"""From sequences of characters to tokens: unknown letters, ends, pieces, an honest split, and clear errors."""

import tracemalloc
import warnings

import numpy as np
import pytest

from usd3.kinds.sequence import reading
from usd3.kinds.sequence.alphabet import Alphabet
from usd3.kinds.sequence.options import SequenceOptions
from usd3.kinds.sequence.reading import alphabet_for, encoded, prompt_rows, split
from usd3.kinds.sequence.records import Records, records_of

DNA = Alphabet("ACGT", "dna")


def rows_of(*strings: str, alphabet: Alphabet = DNA, **options):
    names = tuple(f"s{i}" for i in range(len(strings)))
    return encoded(records_of(strings, names), alphabet, SequenceOptions(**options), "the file")


def random_strings(num: int, length: int, seed: int = 0) -> list[str]:
    return ["".join(row) for row in np.random.default_rng(seed).choice(list("ACGT"), (num, length))]


# ---- letters ------------------------------------------------------------------------------------------------------


def test_clean_dna_has_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert alphabet_for(records_of(["ACGT"]), SequenceOptions(), True, "the file") == DNA


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ACGTACGt", "the file: 1 small letter is read as a capital one"),
        ("ACGTACgt", "the file: 2 small letters are read as capital ones"),
        ("ACGTNN-ACG", r"the file: 2 N, 1 - \(30.00% of the letters\) are unknown, and not learnt"),
        ("ACGTUACGT", "the file: 1 letter U is read as T"),
    ],
)
def test_one_warning_says_what_becomes_of_letters(text, message):
    with pytest.warns(UserWarning, match=message) as warned:
        assert alphabet_for(records_of([text]), SequenceOptions(), True, "the file") == DNA
    assert len(warned) == 1


def test_a_letter_outside_the_alphabet_of_the_user_is_refused():
    records = records_of(["ACGT", "ACEG"], ("one", "two"))
    message = r"letter of two of the file = 'E': expected one of ACGT, or N - for unknown ones \(data.sequence.alpha"
    with pytest.raises(ValueError, match=message):
        alphabet_for(records, SequenceOptions(alphabet="ACGT"), True, "the file")


def test_an_alphabet_of_the_user_makes_gaps_letters():
    options = SequenceOptions(alphabet="ACGT-")
    with pytest.warns(UserWarning, match=r"1 N \(16.67% of"):
        alphabet = alphabet_for(records_of(["AC--GN"]), options, True, "the file")
    rows = rows_of("AC--GN", "TTTTTT", alphabet=alphabet)
    assert rows.tokens.tolist() == [[0, 1, 4, 4, 2, 0], [3] * 6]
    assert rows.unknown.tolist() == [[False] * 5 + [True], [False] * 6]


@pytest.mark.parametrize("value", ["A", "AA", "A\n", "AC>"])
def test_an_alphabet_that_cannot_be_one_is_refused(value):
    with pytest.raises(ValueError, match=r"data\.sequence\.alphabet = "):
        SequenceOptions(alphabet=value)


# ---- tokens -------------------------------------------------------------------------------------------------------


def test_unknown_letters_are_marked_and_sequences_without_others_left_out():
    with pytest.warns(UserWarning, match="the file: 1 sequence without a known letter is left out"):
        rows = rows_of("ANGT", "NNNN", "acg-")
    assert rows.names == ("s0", "s2")
    assert rows.unknown.tolist() == [[False, True, False, False], [False, False, False, True]]
    assert np.where(rows.unknown, -1, rows.tokens.astype(int)).tolist() == [[0, -1, 2, 3], [0, 1, 2, -1]]
    assert not rows.has_ends


@pytest.mark.parametrize("strings", [["NNNN", "NNNN"], ["NN", "nnNN"], ["XXXX", "X--."]])
def test_sequences_of_unknown_letters_alone_are_no_data(strings):
    """Otherwise N would be an amino acid, and the sequences would differ in their lengths alone."""
    message = "sequences of the file with a known letter = 0: expected at least 2, one to train on and one held out"
    with pytest.raises(ValueError, match=message):
        alphabet_for(records_of(strings), SequenceOptions(), True, "the file")
    with pytest.raises(ValueError, match=message):
        rows_of(*strings)  # of an alphabet that the user named


def test_shorter_sequences_are_filled_with_ends():
    with pytest.warns(UserWarning, match="1 sequence without a known letter"):
        rows = rows_of("ACG", "T", "NN")
    assert rows.has_ends
    with pytest.warns(UserWarning, match="1 sequence without a known letter"):
        assert not rows_of("ACG", "NN").has_ends
    assert rows.tokens.tolist() == [[0, 1, 2], [3, 4, 4]]
    assert not rows.unknown.any()


def test_longer_sequences_are_cut_into_pieces_of_which_the_last_overlaps():
    rows = rows_of("ACGTA", "CC", "GGTT", length=2)
    letters = ["".join("ACGT"[i] for i in row) for row in rows.tokens]
    assert letters == ["AC", "GT", "TA", "CC", "GG", "TT"]
    assert rows.names == ("s0:1-2", "s0:3-4", "s0:4-5", "s1", "s2:1-2", "s2:3-4")
    assert rows.origins.tolist() == [0, 0, 0, 1, 2, 2]
    assert rows.overlaps.tolist() == [False, False, True, False, False, False]
    assert not rows.has_ends


def test_sequences_shorter_than_the_pieces_end():
    rows = rows_of("ACGTA", "C", length=3)
    assert rows.tokens.tolist() == [[0, 1, 2], [2, 3, 0], [1, 4, 4]]
    assert rows.has_ends
    assert rows_of("ACGTA", "C", length=9).tokens.shape == (2, 5)


def test_rows_are_the_same_in_parts(monkeypatch):
    strings = [s[: 3 + i % 4] for i, s in enumerate(random_strings(20, 7))]
    whole = rows_of(*strings)
    monkeypatch.setattr(reading, "_AT_ONCE", 15)
    assert np.array_equal(rows_of(*strings).tokens, whole.tokens)


def test_many_letters_have_a_larger_type():
    letters = "".join(chr(0x4E00 + i) for i in range(300))
    rows = rows_of(letters[:150], letters[150:], alphabet=Alphabet(letters, "other"))
    assert rows.tokens.tolist() == [list(range(150)), list(range(150, 300))]


def test_a_genome_needs_the_option_that_cuts_it():
    message = "longest sequence of the file = 4,097 letters: expected data.sequence.length, such as 1024, which cuts"
    with pytest.raises(ValueError, match=message):
        rows_of("A" * 4097, "C")
    assert rows_of("A" * 4097, "C" * 4097, length=4097).tokens.shape == (2, 4097)


def test_few_long_sequences_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(reading, "_MOST_ELEMENTS", 1000)
    message = "11 sequences of up to 100, 10 on average: expected more similar ones: data.sequence.length cuts"
    with pytest.raises(ValueError, match=message):
        rows_of("A" * 100, *["C"] * 10)
    assert rows_of(*["A" * 100] * 11).tokens.shape == (11, 100)


def test_one_sequence_far_longer_than_the_others_is_told_with_the_cure():
    message = (
        "the file: the longest sequence has 3,000 letters, the mean is 77: filled up to the longest, the data are 39 "
        "times larger; --data.sequence.length 40 cuts longer ones into pieces"
    )
    strings = [*["ACGT" * 10] * 80, "ACGTAC" * 500]
    with pytest.warns(UserWarning, match=message):
        rows_of(*strings)
    assert rows_of(*strings, length=40).tokens.shape == (80 + 75, 40)  # no warning
    rows_of(*["ACGT" * 10] * 80, "ACGT" * 40)  # four times the others is usual


def test_memory_is_linear_in_the_letters(monkeypatch):
    """Two bytes a letter for the result and a few more on the way, beside the table of all characters."""
    monkeypatch.setattr(reading, "_AT_ONCE", 2**16)
    letters = 4_000_000
    records = Records(np.frombuffer(b"ACGT" * (letters // 4), np.uint8), np.array([0, letters]))
    tracemalloc.start()
    rows = encoded(records, DNA, SequenceOptions(length=1000), "the file")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows.tokens.shape == (4000, 1000)
    assert peak < 5 * letters


# ---- split --------------------------------------------------------------------------------------------------------


def test_equal_sequences_are_in_one_split():
    strings = random_strings(40, 8) * 3
    rows = rows_of(*strings)
    train, test = split(rows, 0.2, 0, "the file")
    assert len(train) + len(test) == 120
    assert len(test) == 24
    seen = {bytes(row) for row in train.tokens.numpy()}
    assert not any(bytes(row) in seen for row in test.tokens.numpy())
    assert [strings[int(name[1:])] for name in test.names] == ["".join("ACGT"[i] for i in row) for row in test.tokens]


def test_unknown_letters_make_a_difference_and_become_padding():
    rows = rows_of("ACG", "NCG", "ACN", "TTT")
    train, test = split(rows, 0.25, 0, "the file")
    pads = [part.pad for part in (train, test)]
    assert sum(0 if pad is None else int(pad.sum()) for pad in pads) == 2
    assert len(test) == 1


def test_pieces_of_a_sequence_stay_together():
    train, test = split(rows_of(*random_strings(10, 50), length=5), 0.2, 0, "the file")
    origins = [{name.partition(":")[0] for name in part.names} for part in (train, test)]
    assert not origins[0] & origins[1]
    assert len(origins[1]) == 2


@pytest.mark.parametrize("seed", range(5))
def test_pieces_of_a_single_sequence_are_split_unless_they_overlap(seed):
    train, test = split(rows_of(random_strings(1, 53)[0], length=5), 0.3, seed, "the file")
    assert len(test) in (2, 3)
    assert {"s0:46-50", "s0:49-53"} <= set(train.names) or {"s0:46-50", "s0:49-53"} <= set(test.names)


def test_one_sequence_cannot_be_split():
    with pytest.raises(ValueError, match="different sequences of the file = 1: expected at least 2, one to train on"):
        split(rows_of("ACGT", "ACGT"), 0.1, 0, "the file")


# ---- prompts ------------------------------------------------------------------------------------------------------


def test_holes_of_a_prompt_are_not_given():
    tokens, given = prompt_rows(records_of(["ANG-", "tttt"]), DNA, 4, has_ends=False)
    assert given.tolist() == [[True, False, True, False], [True] * 4]
    assert tokens[given].tolist() == [0, 2, 3, 3, 3, 3]


def test_a_shorter_prompt_goes_on_unless_it_has_holes():
    tokens, given = prompt_rows(records_of(["AC", "AN", "ACGT"]), DNA, 4, has_ends=True)
    assert given.tolist() == [[True, True, False, False], [True, False, True, True], [True] * 4]
    assert tokens[1].tolist() == [0, 0, 4, 4]  # it ends after its hole


@pytest.mark.parametrize(
    ("text", "has_ends", "message"),
    [
        ("ACG", False, "length of p = 3: expected 4 letters, as the model has, with N for each that is to be drawn"),
        ("ACGTA", True, "length of p = 5: expected at most 4 letters"),
        ("ACGE", True, "letter of p = 'E': expected one of ACGT, or N - for unknown ones"),
    ],
)
def test_a_prompt_that_does_not_fit_is_told(text, has_ends, message):
    with pytest.raises(ValueError, match=message):
        prompt_rows(records_of([text], ("p",)), DNA, 4, has_ends)
