"""Objects that break the rules of their kind are drawn again."""

import torch

from usd3.pipeline.again import until_valid


def draws_of(asked, good):
    """A draw whose n-th call makes objects that are 1 where `good` allows it in that call."""

    def draw(rows, seed):
        asked.append((rows.tolist(), seed))
        return torch.tensor([int(row in good[len(asked) - 1]) for row in rows.tolist()])

    return draw


def test_only_what_breaks_the_rules_is_drawn_again_with_another_seed():
    asked = []
    x = until_valid(draws_of(asked, [{0}, {2}, {1, 3}]), lambda x: x == 1, 4, 5, seed=7)
    assert x.tolist() == [1, 1, 1, 1]
    assert [rows for rows, _ in asked] == [[0, 1, 2, 3], [1, 2, 3], [1, 3]]
    assert asked[0][1] == 7
    assert len({seed for _, seed in asked}) == 3


def test_what_never_obeys_is_drawn_so_often_as_asked():
    for tries in (1, 3):
        asked = []
        x = until_valid(draws_of(asked, [{0}] * 3), lambda x: x == 1, 2, tries, seed=0)
        assert x.tolist() == [1, 0]
        assert [rows for rows, _ in asked] == [[0, 1], [1], [1]][:tries]


def test_a_kind_without_rules_is_drawn_once():
    asked = []
    assert until_valid(draws_of(asked, [set()]), lambda x: None, 3, 5, seed=0).tolist() == [0, 0, 0]
    assert len(asked) == 1
