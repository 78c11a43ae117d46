"""Objects in the form of the studio's page, and back: what every kind promises."""

import json

import numpy as np
import pytest
import torch

from support.studio import small_kinds
from usd3.kinds.array import Array
from usd3.kinds.page import OPEN, Frame, Page, nested, tokens_from
from usd3.kinds.registry import KINDS
from usd3.kinds.rendering import Request


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    return small_kinds(tmp_path_factory.mktemp("kinds"))


def some(kind, num=3, seed=0):
    """Objects of the kind, within its support."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.ones(*kind.shape, kind.num_classes) if kind.support is None else kind.support.float()
    drawn = torch.multinomial(weights.flatten(0, -2), num, replacement=True, generator=generator)
    return drawn.T.reshape(num, *kind.shape)


def test_every_kind_of_the_package_is_tested_here(kinds):
    assert set(kinds) <= set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_what_an_editor_needs_is_plain_json(name, kinds):
    page = kinds[name].page(Request())
    about = {"editor": page.editor(), "empty": page.empty(), "prompts": page.prompts()}
    assert json.loads(json.dumps(about)) == about
    assert set(page.writes) <= {*kinds[name].suffixes, ".fa", ".csv", ".tsv"}


@pytest.mark.parametrize("name", KINDS)
def test_an_empty_object_is_open_everywhere(name, kinds):
    page = kinds[name].page(Request())
    tokens, given, _ = page.from_page([page.empty()])
    assert tokens.shape == given.shape == (1, *kinds[name].shape)
    assert not given.any()
    for prompt in page.prompts():
        given = page.from_page([prompt]).given
        assert given.any()
        assert not given.all()


@pytest.mark.parametrize("name", KINDS)
def test_objects_come_back_as_they_went(name, kinds):
    kind = kinds[name]
    page, tokens = kind.page(Request()), some(kind)
    tokens.view(3, -1)[:, 0] = 0  # a sequence that has ended at once is an empty one, which is open
    objects = json.loads(json.dumps(page.to_page(tokens)))
    back = page.from_page(objects)
    assert page.to_page(back.tokens, seed=1) == objects or name in ("table", "sequence")
    if name == "sequence":  # what follows an end means nothing
        assert kind.strings(back.tokens) == kind.strings(tokens.masked_fill((tokens == 4).cumsum(1) > 0, 4))
    elif name == "table":  # a missing cell is an empty field
        known = back.given
        assert torch.equal(back.tokens[known], tokens[known])
    else:
        assert torch.equal(back.tokens, tokens)
        assert back.given.all()


@pytest.mark.parametrize("name", KINDS)
def test_a_frame_has_a_number_for_each_element_that_is_shown(name, kinds):
    kind = kinds[name]
    page, tokens = kind.page(Request()), some(kind)[0]
    is_open = torch.arange(tokens.numel()).reshape(kind.shape) % 2 == 0
    shown = page.frame(Frame(tokens, torch.full(kind.shape, 0.12345), is_open), page.from_page([page.empty()]))
    json.dumps(shown)
    size = np.array(shown["sure"]).shape
    assert size == np.array(shown["open"]).shape
    assert size == (np.array(shown["object"]).shape if isinstance(shown["object"], list) else (len(shown["object"]),))
    assert set(np.ravel(shown["sure"]).tolist()) == {0.123}
    assert set(np.ravel(shown["open"]).tolist()) == {0, 1}


BAD = [None, 3, 1.5, True, "", "x", [], {}, [[]], [{}], ["\ud800"], {"a": "b"}, [None] * 40, "y" * 10**6, [[[[[1]]]]]]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("number", range(len(BAD)))
def test_anything_else_is_refused_in_a_line_or_is_an_object(name, number, kinds):
    page = kinds[name].page(Request())
    for objects in (BAD[number], [BAD[number]]):
        message, found = "one line", None
        try:
            found = page.from_page(objects)
        except (ValueError, TypeError) as error:
            message = str(error)
        assert 0 < len(message) < 500
        if found is None:
            continue
        assert found.tokens.shape[1:] == kinds[name].shape
        assert found.tokens.dtype == torch.int64


def test_integers_are_checked_one_by_one():
    tokens, given = tokens_from([[[0, OPEN], [4, 3]]], (2, 2), 5)
    assert tokens.tolist() == [[[0, 0], [4, 3]]]
    assert given.tolist() == [[[True, False], [True, True]]]
    for bad in (True, 1.0, "1", None, 5, -2, [1], 2**70):
        with pytest.raises(ValueError, match="element of the object"):
            tokens_from([[[0, 1], [2, bad]]], (2, 2), 5)
    for bad in ([0, 1], [0], [0, 1, 2], 7, None):
        with pytest.raises(ValueError, match="list of 2" if bad != [0, 1] else "."):
            tokens_from([[bad, bad, bad]], (2, 2), 5)


def test_a_kind_of_ones_own_needs_nothing():
    page = Array(3, (2,)).page(Request())
    assert type(page) is Page
    assert page.to_page(torch.tensor([[0, 2]])) == [[0, 2]]
    assert page.shares(torch.tensor([[0, 2]]), page.from_page([[0, -1]])) is None
    assert page.notes(torch.tensor([[0, 2]]), page.from_page([[0, -1]])) == []
    with pytest.raises(ValueError, match="draws arrays itself"):
        page.pictures(page.from_page([[0, 1]]))


def test_numbers_have_three_decimals():
    assert nested(torch.tensor([[0.12345, 1.0], [2 / 3, 0.0]])) == [[0.123, 1.0], [0.667, 0.0]]
