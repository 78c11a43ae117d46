import importlib.util

import numpy as np
import pytest
import torch

from usd3.kinds.chorale.kind import Chorale
from usd3.kinds.chorale.reading import bach_chorales, pieces_of
from usd3.kinds.melody.midi import write_tracks
from usd3.kinds.options import DataConfig

REST = 128
NAMES = ("Soprano", "Alto", "Tenor", "Bass")


def music(seed, steps=32, shift=0):
    """A chorale (T, 4) of random notes; the same seed is the same music."""
    notes = np.random.default_rng(seed).integers(0, 5, (steps, 4)) + np.array([70, 62, 55, 45])
    return notes + shift


def padded(pieces, length):
    return np.stack([np.pad(p, ((0, length - len(p)), (0, 0)), constant_values=-1) for p in pieces]).astype(np.int16)


@pytest.fixture
def file(tmp_path):
    arrays = {
        "train": padded([music(1, 40), music(2, 24)], 40),
        "valid": padded([music(3)], 32),
        "test": padded([music(4), music(5)], 32),
    }
    np.savez(tmp_path / "chorales.npz", **arrays)
    return tmp_path / "chorales.npz"


def test_arrays_are_the_splits_of_a_file(file):
    data = DataConfig("chorales", str(file), length=16)
    found = data.load()
    assert found.name == "chorales"
    assert found.kind == Chorale(129, (16, 4), from_files=True)
    assert {name.partition(" |")[0] for name in found.train.names} == {"0", "1"}
    np.testing.assert_array_equal(found.test.tokens.reshape(2, 32, 4), np.stack([music(4), music(5)]))
    assert found.test.pad is None
    valid = DataConfig("chorales", str(file), length=16, test_key="valid").load()
    np.testing.assert_array_equal(valid.test.tokens.reshape(1, 32, 4), music(3)[None])
    assert Chorale.describe_split(data) == "the arrays train and test of the file"


def test_another_array_is_held_out_in_an_evaluation(file):
    data = DataConfig("chorales", str(file), length=16, test_key="valid").with_test("test", "test_key")
    assert len(data.load().test) == 4
    with pytest.raises(ValueError, match=r"expected null, as the data are no \.npz file"):
        DataConfig("chorales").with_test("test", "test_key")


def test_a_model_of_a_file_does_not_read_music21_instead(file):
    data = DataConfig("chorales", str(file), length=16)
    kind = data.load().kind
    with pytest.raises(FileNotFoundError, match="does not say where its chorales are"):
        data.without_places().load(kind)
    assert len(data.load(kind).test) == 4


def test_one_array_is_split_so_that_related_chorales_stay_together(tmp_path):
    pieces = [music(i) for i in range(10)] + [music(i, shift=3) for i in range(10)]  # each in two keys
    np.save(tmp_path / "all.npy", padded(pieces, 40))
    data = DataConfig("chorales", str(tmp_path / "all.npy"), length=32, test_fraction=0.2)
    found = data.load()
    train, test = ({int(name.partition(" |")[0]) % 10 for name in part.names} for part in (found.train, found.test))
    assert train | test == set(range(10))
    assert not train & test
    assert len(test) == 2
    assert Chorale.describe_split(data) == "0.2 held out of the chorales, related ones on one side, seed 0"


def test_arrays_in_memory_are_chorales_where_the_user_says_so():
    pieces = padded([music(i) for i in range(10)], 40)
    for objects in (pieces, torch.from_numpy(pieces)):
        found = Chorale.from_objects(objects, DataConfig("chorales", length=32))
        assert found.shape == (32, 4)
        assert found.kind.from_files


def test_midi_files_of_four_tracks(tmp_path):
    for i in range(4):
        steps = music(i, 40)
        tracks = {name: steps[:, v] for v, name in enumerate(NAMES if i < 3 else NAMES[:2])}
        write_tracks(tracks, tmp_path / f"{i}.mid")
    found = DataConfig("chorales", str(tmp_path), length=40, test_fraction=0.4).load()
    whole = [tokens for tokens, name in zip(found.test.tokens, found.test.names) if name.endswith("| 0")]
    assert len(whole) == 1  # of three: the file of two tracks is no chorale
    assert any(np.array_equal(whole[0], music(i, 40)) for i in range(3))
    (tmp_path / "0.mid").unlink()
    (tmp_path / "1.mid").unlink()
    with pytest.raises(ValueError, match=r"four tracks of notes below .* = 1: expected at least 2 of 2"):
        DataConfig("chorales", str(tmp_path)).load()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a[:, :, :3], r"int16 \(2, 6, 3\): expected integers \(N, T, 4\)"),
        (lambda a: a.astype(float), "expected integers"),
        (lambda a: np.where(np.arange(6)[:, None] == 2, -1, a), "-1 before the end of chorale 0: expected voices"),
        (lambda a: np.where(np.arange(4) == 2, -1, a), "-1 before the end of chorale 0"),
        (lambda a: np.where(a == 60, 129, a), "token of x = 129: expected pitches"),
        (lambda a: np.where(a == 60, -2, a), "token of x = -2: expected pitches"),
        (lambda a: np.full_like(a, -1), "a chorale without a step"),
    ],
)
def test_arrays_that_are_no_chorales_are_refused(change, message):
    array = np.full((2, 6, 4), 60, np.int16)
    array[1, 4:] = -1
    assert [len(piece.steps) for piece in pieces_of(array, "x")] == [6, 4]
    with pytest.raises(ValueError, match=message):
        pieces_of(change(array), "x")


def test_the_end_may_have_another_mark(tmp_path):
    array = np.full((2, 6, 4), 60)
    array[1, 4:] = 200
    assert [len(piece.steps) for piece in pieces_of(array, "x", end=200)] == [6, 4]


def test_another_number_of_categories_is_refused(file):
    with pytest.raises(ValueError, match=r"data\.num_classes = 50: expected null for chorales"):
        DataConfig("chorales", str(file), num_classes=50).load()


def test_a_file_without_training_chorales_is_refused(file):
    with pytest.raises(ValueError, match="expected one named 'other'"):
        DataConfig("chorales", str(file), train_key="other").load()


@pytest.mark.skipif(importlib.util.find_spec("music21") is None, reason="needs music21")
def test_the_chorales_of_music21():
    pieces = bach_chorales()
    assert len(pieces) == 366
    by_name = {piece.name: piece.steps for piece in pieces}
    first = by_name["bwv269"]
    assert first.shape[1] == 4
    sounding = np.where(first == REST, -1, first)[first.min(1) < REST]
    assert (sounding.mean(0)[:-1] > sounding.mean(0)[1:]).all()  # from high to low
    data = DataConfig("chorales", length=128).load()
    train, test = ({name.partition(" |")[0] for name in part.names} for part in (data.train, data.test))
    assert train | test == set(by_name)
    assert not train & test
    assert not data.kind.from_files
