"""Copies of training strings, and the distance to the nearest one."""

import random

import pytest

from usd3.metrics.novelty import copied_share, nearest_edits


def edits(a: str, b: str) -> int:
    """Levenshtein distance, by the textbook."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def test_the_nearest_is_the_one_with_the_fewest_edits_for_its_length():
    draw = random.Random(0)
    generated, train = (["".join(draw.choices("AC", k=draw.randint(1, 9))) for _ in range(n)] for n in (7, 12))
    expected = [min(edits(a, b) / max(len(a), len(b)) for b in train) for a in generated]
    assert nearest_edits(generated, train).tolist() == pytest.approx(expected)


def test_copies_and_shifted_copies_are_near():
    assert nearest_edits(["ACGTACGT", "CGTACGTA"], ["TTTTTTTT", "ACGTACGT"]).tolist() == [0, 0.25]
    assert copied_share(["AC", "GT", "AC", "A"], ["AC", "CA"]) == 0.5
    assert nearest_edits([""], ["", "A"]).tolist() == [0]


def test_of_many_pairs_a_few_evenly_spread_strings_are_compared():
    generated = ["A" * (i + 1) for i in range(100)]
    train = ["A" * 64]  # a string costs 64 steps
    assert len(nearest_edits(generated, train, most_work=64 * 20)) == 20
    few = nearest_edits(generated, train, most_work=1)
    assert few.tolist() == pytest.approx([1 - min(64, n) / max(64, n) for n in range(1, 101, 10)])
    assert len(nearest_edits(generated[:5], train, most_work=1)) == 5


@pytest.mark.parametrize(("generated", "train", "name"), [([], ["A"], "generated"), (["A"], [], "train")])
def test_nothing_is_compared_with_nothing(generated, train, name):
    with pytest.raises(ValueError, match=rf"len\({name}\) = 0"):
        nearest_edits(generated, train)
