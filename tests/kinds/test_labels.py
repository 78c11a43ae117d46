"""The classes of objects: numbers, names, and the arrays of files."""

import numpy as np
import pytest
import torch

from usd3.kinds.labels import class_numbers, labels_of, with_labels
from usd3.kinds.rows import Sequences


def test_integers_are_numbers_and_words_are_names():
    numbers, classes = class_numbers([2, 0, -1], "y")
    assert (numbers.tolist(), classes) == ([2, 0, -1], ("0", "1", "2"))
    for words in (["dog", "cat", None, ""], np.array(["dog", "cat", "", ""]), ["dog", "cat", float("nan"), None]):
        numbers, classes = class_numbers(words, "y")
        assert (numbers.tolist(), classes) == ([1, 0, -1, -1], ("cat", "dog"))
    assert class_numbers(torch.tensor([1, 0]), "y")[0].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([-1, -1], r"y = -1\.\.-1: expected 0\.\."),
        ([-2, 0], r"y = -2\.\.0"),
        ([2**16], "y = 65536"),
        ([], r"y\.shape"),
        ([[1], [2]], r"y\.shape = \(2, 1\)"),
        (["", None], "classes in y = 0"),
    ],
)
def test_what_is_no_class_is_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        class_numbers(labels, "y")


@pytest.mark.parametrize(("suffix", "names"), [("label", "label_classes"), ("labels", "classes")])
def test_the_labels_of_arrays_in_either_spelling(suffix, names):
    stored = {"train": np.zeros((3, 2)), "test": np.zeros((2, 2)), f"train_{suffix}": np.array([1, 0, -1])}
    stored |= {f"test_{suffix}": np.array([0, 1], np.uint8), names: np.array(["a", "b"])}
    labels, classes = labels_of(stored, ["train", "test"], "x.npz")
    assert [array.tolist() for array in labels] == [[1, 0, -1], [0, 1]]
    assert classes == ("a", "b")
    assert labels_of({"train": np.zeros((3, 2))}, ["train"], "x.npz") == (None, ())


def test_labels_that_do_not_fit_are_refused():
    stored = {"train": np.zeros((3, 2)), "test": np.zeros((2, 2)), "train_label": np.array([1, 0, 1])}
    with pytest.raises(ValueError, match=r"arrays of x\.npz = train_label: expected test_label too"):
        labels_of(stored, ["train", "test"], "x.npz")
    for wrong in (np.array([1, 0]), np.array([0.5, 0, 1]), np.array(["a", "b", "c"])):
        with pytest.raises(ValueError, match=r"x\.npz\[train_label\] = .*: expected integers \(3,\)"):
            labels_of(stored | {"train_label": wrong}, ["train"], "x.npz")


def test_rows_get_a_column_of_labels():
    rows = with_labels(Sequences(torch.zeros(3, 2, dtype=torch.long)), np.array([1, 0, 1]))
    assert rows.labels.tolist() == [[1], [0], [1]]
