import pytest

from usd3.kinds.splits import grouped, is_test_group


def test_items_that_share_a_key_share_a_group_also_through_others():
    keys = [(0, "a"), (1, "b"), (2, "c"), (3, "a"), (3, "c"), (4, "d")]
    assert grouped(6, keys) == [0, 1, 0, 0, 2, 3]


@pytest.mark.parametrize("seed", range(20))
def test_the_test_side_is_near_its_share_and_never_above(seed):
    sizes = [1 + i % 7 for i in range(200)]
    test = sum(size for size, chosen in zip(sizes, is_test_group(sizes, 0.1, seed)) if chosen)
    assert 0.09 * sum(sizes) < test <= 0.1 * sum(sizes)


def test_the_smallest_group_is_taken_where_none_fits():
    assert is_test_group([50, 20, 30], 0.1, 0) == [False, True, False]


def test_the_seed_decides():
    sizes = [1] * 100
    assert is_test_group(sizes, 0.1, 0) == is_test_group(sizes, 0.1, 0) != is_test_group(sizes, 0.1, 1)


def test_one_group_cannot_be_split():
    with pytest.raises(ValueError, match="at least 2"):
        is_test_group([10], 0.5, 0)
