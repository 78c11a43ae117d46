"""Which elements are given, in training and in generation."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from usd3.core.given import box_given, draw_given, named_elements, prefix_given, region_given


def test_masks_of_training_are_of_every_kind():
    torch.manual_seed(0)
    given = draw_given("random", torch.zeros(4000, 8, dtype=torch.long))
    changes = (given[:, 1:] != given[:, :-1]).sum(1)
    nothing = ~given.any(1)
    prefix = given[:, 0] & ~given[:, -1] & (changes == 1)
    gap = given[:, 0] & given[:, -1] & (changes == 2)
    assert 0.25 < nothing.float().mean() < 0.45
    assert prefix.float().mean() > 0.2
    assert gap.float().mean() > 0.05
    assert (changes > 2).float().mean() > 0.05
    assert draw_given("none", given.long()) is None
    fixed = draw_given("prefix", torch.zeros(2, 8, dtype=torch.long), 3)
    assert fixed is not None
    assert fixed.tolist() == [[True] * 3 + [False] * 5] * 2
    shaped = draw_given("random", torch.zeros(4, 2, 4, dtype=torch.long))
    assert shaped is not None
    assert shaped.shape == (4, 2, 4)


def test_gaps_of_objects_with_several_dimensions_are_boxes():
    torch.manual_seed(0)
    x = torch.zeros(3000, 4, 6, dtype=torch.long)
    given = draw_given("random", x)
    assert given is not None
    free = ~given
    rows, columns = free.any(2), free.any(1)
    spans = [
        (line[:, 1:] != line[:, :-1]).sum(1) + line[:, 0].long() + line[:, -1].long() == 2 for line in (rows, columns)
    ]
    area = rows.sum(1) * columns.sum(1)
    box = spans[0] & spans[1] & (free.flatten(1).sum(1) == area)
    inner = box & given[:, 0].any(1) & given[:, -1].any(1) & ~given.flatten(1).all(1)
    assert 0.2 < inner.float().mean() < 0.5  # a quarter, and a few of the other kinds that happen to be boxes
    assert len(area[inner].unique()) > 8
    assert len({(int(r.long().argmax()), int(c.long().argmax())) for r, c in zip(rows[inner], columns[inner])}) == 24
    torch.manual_seed(0)
    flat = draw_given("random", x.flatten(1))
    same = (flat == given.flatten(1)).all(1)
    assert 0.7 < same.float().mean() < 0.85  # all kinds but the gap are as for flat objects


@pytest.mark.parametrize("shape", [(6,), (3, 5), (2, 3, 4)])
def test_no_mask_waits_for_the_device(shape):
    with FakeTensorMode():  # has no values, so whoever asks for one fails
        given = draw_given("random", torch.zeros(4, *shape, dtype=torch.long))
    assert given is not None
    assert given.shape == (4, *shape)


def test_flat_masks_stay_as_they_were():
    torch.manual_seed(5)
    given = draw_given("random", torch.zeros(4, 6, dtype=torch.long))
    assert given is not None
    assert ["".join("-x"[int(g)] for g in row) for row in given] == ["xxxx-x", "------", "-x----", "xxxx--"]


def test_masks_of_generation():
    box = box_given((3, 4), [(1, 3), (0, 2)])
    assert box.tolist() == [[True] * 4, [False, False, True, True], [False, False, True, True]]
    assert torch.equal(box_given((4,), [(1, 3)]), region_given(4, 1, 3))
    for ranges in ([(1, 3)], [(1, 3), (2, 2)], [(1, 3), (0, 5)]):
        with pytest.raises(ValueError, match="expected"):
            box_given((3, 4), ranges)
    assert prefix_given(4, 2).tolist() == [True, True, False, False]
    assert region_given(4, 1, 3).tolist() == [True, False, False, True]
    assert named_elements((8,), "0:2;4:5; 4:6").nonzero().flatten().tolist() == [0, 1, 4, 5]
    assert torch.equal(
        named_elements((3, 4), "1:3,0:2;0:1,3:4;11:12").nonzero(),
        torch.tensor([[0, 3], [1, 0], [1, 1], [2, 0], [2, 1], [2, 3]]),
    )
    for call in (lambda: prefix_given(4, 5), lambda: region_given(4, 3, 3), lambda: region_given(4, 0, 5)):
        with pytest.raises(ValueError, match="expected"):
            call()
    with pytest.raises(ValueError, match="prefix = 8"):
        draw_given("prefix", torch.zeros(2, 8, dtype=torch.long), 8)


@pytest.mark.parametrize(
    ("shape", "form"),
    [
        ((8,), "START:STOP, as in 64:128; between"),
        ((3, 4), "START:STOP, as in 64:128, or 2 of them with commas between, one a dimension; between"),
        ((2, 3, 4), "START:STOP, as in 64:128, or 3 of them with commas between, one a dimension; between"),
    ],
)
@pytest.mark.parametrize("text", ["", "3", "1:x", "0:1,0:1,0:1,0:1", "0:1;", "0:1,"])
def test_a_text_of_another_form_is_refused_with_the_forms_of_this_shape(shape, form, text):
    with pytest.raises(ValueError, match=f"region = .*expected {form}"):
        named_elements(shape, text, "region")


@pytest.mark.parametrize(
    ("shape", "text", "expected"),
    [
        ((8,), "4:9", "<= 8, not 4:9"),
        ((8,), "4:4", "<= 8, not 4:4"),
        ((3, 4), "0:13", "<= 12, not 0:13"),
        ((3, 4), "0:3,1:5", "<= 4, not 1:5"),
        ((3, 4), "0:4,0:4", "<= 3, not 0:4"),
    ],
)
def test_a_range_beyond_the_object_is_refused_with_its_size(shape, text, expected):
    with pytest.raises(ValueError, match=f"0 <= START < STOP {expected}"):
        named_elements(shape, text)


def test_the_elements_that_the_data_give_are_given_for_a_share_of_the_objects():
    torch.manual_seed(0)
    x_0, own = torch.zeros(2000, 2, 3, dtype=torch.long), torch.rand(2000, 2, 3) < 0.5
    assert torch.equal(draw_given("data", x_0, given=own), own)
    given = draw_given("data", x_0, given=own, share=0.3)
    chosen = given.flatten(1).any(1)
    assert torch.equal(given[chosen], own[chosen])
    assert 0.25 < chosen.float().mean() < 0.35


def test_a_range_may_leave_out_its_ends():
    assert torch.equal(named_elements((6,), ":2;4:"), torch.tensor([True, True, False, False, True, True]))
    column = torch.zeros(3, 4, dtype=torch.bool)
    column[:, :1] = True
    assert torch.equal(named_elements((3, 4), ":,0:1"), column)
    assert named_elements((3, 4), ":").all()
    for text in ("", "3", "a:", ":b", "1:2:3", "-1:"):
        with pytest.raises(ValueError, match="ranges = "):
            named_elements((6,), text)
