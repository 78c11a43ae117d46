"""Which alphabet sequences have, and what each character means in it."""

from collections import Counter

import pytest

from usd3.kinds.sequence.alphabet import NO_LETTER, UNKNOWN, Alphabet, alphabet_of, counted, form_of
from usd3.kinds.sequence.records import records_of

PROTEIN = "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVVHSLAKWKRQTLGQHDFSAGEGLYTHMKALRPDEDRLS"
ENGLISH = "THEQUICKBROWNFOXJUMPSOVERTHELAZYDOG"


@pytest.mark.parametrize(
    ("text", "letters", "form"),
    [
        ("ACGTACGT", "ACGT", "dna"),
        ("AAC", "ACGT", "dna"),
        ("acgtnnACGT", "ACGT", "dna"),
        ("ACGTNNNNNNNNNNNNNNNN----", "ACGT", "dna"),
        ("ACGTACGTACGTACGTACGTRY", "ACGT", "dna"),
        ("ACGTACGTU", "ACGT", "dna"),
        ("ACGUACGUN", "ACGU", "rna"),
        (PROTEIN, "ACDEFGHIKLMNPQRSTVWY", "protein"),
        (PROTEIN.lower() + "X-", "ACDEFGHIKLMNPQRSTVWY", "protein"),
        (PROTEIN + "*U", "ACDEFGHIKLMNPQRSTVWYU*", "protein"),
        (ENGLISH, "".join(sorted(set(ENGLISH))), "other"),  # too many of B, J, O, U and Z
        ("RYRYRYACGT", "ACDEFGHIKLMNPQRSTVWY", "protein"),  # too many codes for one of several nucleotides
        ("CCO(=O)c1", "()1=COc", "other"),
        ("Ab_a", "Aab", "other"),
    ],
)
def test_the_alphabet_is_told_from_the_characters(text, letters, form):
    assert alphabet_of(Counter(text), whole=True) == Alphabet(letters, form)


def test_a_list_of_strings_has_the_letters_that_occur():
    assert alphabet_of(Counter("ACCA"), whole=False) == Alphabet("AC", "dna")
    assert alphabet_of(Counter("acca"), whole=False) == Alphabet("ac", "other")
    assert alphabet_of(Counter("MKLE"), whole=False) == Alphabet("EKLM", "protein")


@pytest.mark.parametrize("text", ["AXLE TAXI", "ACGTN-RX", "MKLE-X", "a_b", "___"])
def test_nothing_is_unknown_in_a_list_of_strings(text):
    alphabet = alphabet_of(Counter(text), whole=False)
    assert set(alphabet.letters) == set(text)
    assert (alphabet.table()[[ord(c) for c in alphabet.letters]] == range(len(alphabet.letters))).all()


def test_nothing_but_unknown_letters_is_refused():
    with pytest.raises(ValueError, match="letters = _: expected some that are known"):
        alphabet_of(Counter("___"), whole=True)


@pytest.mark.parametrize(
    ("letters", "form"),
    [
        ("ACGT", "dna"),
        ("TGCA", "dna"),
        ("AT", "dna"),
        ("ACGTN-", "dna"),
        ("ACGU", "rna"),
        ("ACDEFGHIKLMNPQRSTVWY", "protein"),
        ("ACDEFGHIKLMNPQRSTVWY*-", "protein"),
        ("ACGTU", "other"),
        ("ACB", "other"),
        ("ab", "other"),
    ],
)
def test_what_an_alphabet_of_the_user_stands_for(letters, form):
    assert form_of(letters) == form


@pytest.mark.parametrize(
    ("alphabet", "characters", "categories"),
    [
        (Alphabet("ACGT", "dna"), "AcgTUu", [0, 1, 2, 3, 3, 3]),
        (Alphabet("ACGT", "dna"), "N-nRy._X", [UNKNOWN] * 8),
        (Alphabet("ACGT", "dna"), "EZ*1 ", [NO_LETTER] * 5),
        (Alphabet("ACGTN-", "dna"), "NnR-", [4, 4, UNKNOWN, 5]),  # what the user names is a letter
        (Alphabet("ACGU", "rna"), "UTt", [3, 3, 3]),
        (Alphabet("ACDEFGHIKLMNPQRSTVWY*", "protein"), "AaX-N*", [0, 0, UNKNOWN, UNKNOWN, 11, 20]),
        (Alphabet("Aab", "other"), "AabB_-N", [0, 1, 2, NO_LETTER, UNKNOWN, NO_LETTER, NO_LETTER]),
        (Alphabet("é_", "other"), "é_", [0, 1]),
    ],
)
def test_each_character_has_its_category(alphabet, characters, categories):
    table = alphabet.table()
    assert [int(table[ord(c)]) for c in characters] == categories


def test_characters_are_counted_in_bytes_and_in_unicode():
    text = "ACé日A"
    assert counted(records_of([text]).codes) == Counter(text)
    assert counted(records_of(["ACCA"]).codes.astype("uint8")) == Counter("ACCA")
