import functools
import importlib.util
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch

from usd3.kinds.melody import bach
from usd3.kinds.melody.bach import load_bach
from usd3.kinds.melody.kind import Melody
from usd3.kinds.melody.musicxml import melodies_of, read_score

pytestmark = pytest.mark.skipif(importlib.util.find_spec("music21") is None, reason="needs music21")


@functools.cache
def loaded(length, test_fraction=0.1, seed=0):
    """The melodies of all works, divided once for the tests that look at the same division."""
    return load_bach(length, test_fraction, seed)


@pytest.fixture
def three_works(tmp_path, monkeypatch):
    """A corpus of three works, so that reading it is quick."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name in ("bwv66.6.mxl", "bwv67.4.xml", "bwv1.6.mxl"):
        (corpus / name).write_bytes((bach._corpus() / name).read_bytes())
    monkeypatch.setattr(bach, "_corpus", lambda: corpus)
    return corpus


def pieces_of(split):
    return {name.split(" | ")[0] for name in split.names}


def music21_grid(part):
    """The top pitch at each sixteenth, by music21's own parse."""
    steps = np.full(math.ceil(Fraction(part.highestTime) * 4), -1)
    for note in part.flatten().notes:
        if not note.duration.isGrace:
            onset, length = Fraction(note.offset) * 4, Fraction(note.duration.quarterLength) * 4
            sounding = steps[math.ceil(onset) : math.ceil(onset + length)]
            np.maximum(sounding, max(pitch.midi for pitch in note.pitches), out=sounding)
    return np.where(steps < 0, 128, steps)


@pytest.mark.parametrize("name", ["bwv66.6.mxl", "bwv67.4.xml", "bwv299.mxl", "bwv171.6.mxl"])
def test_the_reader_agrees_with_music21(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converter = pytest.importorskip("music21.converter")
        parts = converter.parse(bach._corpus() / name, forceSource=True).parts
    melodies = melodies_of(read_score(bach._corpus() / name))
    assert len(melodies) == len(parts)
    for part, (voice, steps) in zip(parts, melodies):
        assert np.array_equal(steps, music21_grid(part)), voice


@pytest.mark.parametrize(("length", "least"), [(128, 3500), (256, 1900)])
def test_the_corpus_gives_enough_windows_of_valid_tokens(length, least):
    dataset = loaded(length)
    assert len(dataset.train) + len(dataset.test) > least
    assert (dataset.shape, dataset.num_classes, dataset.kind) == ((length,), 129, Melody(129, (length,)))
    for split in (dataset.train, dataset.test):
        assert split.tokens.dtype == torch.uint8
        assert int(split.tokens.max()) == 128
        assert (split.tokens[split.pad] == 128).all()
        assert int((~split.pad).sum(1).min()) >= length // 4
        assert len(split.names) == len(split)
    pitches = dataset.train.tokens[dataset.train.tokens < 128]
    assert 30 < int(pitches.min()) < 45
    assert 80 < int(pitches.max()) < 100


@pytest.mark.parametrize("seed", [0, 1])
def test_no_piece_is_on_both_sides(seed):
    dataset = loaded(64, test_fraction=0.2, seed=seed)
    train, test = pieces_of(dataset.train), pieces_of(dataset.test)
    assert not train & test
    assert len(train | test) > 400
    assert 0.17 < len(dataset.test) / (len(dataset.train) + len(dataset.test)) < 0.23


@pytest.mark.parametrize("seed", [0, 1])
def test_works_stored_twice_are_on_one_side(seed):
    """Whole voices, and windows that are not padded, are never shared by the two sides."""
    dataset = loaded(64, test_fraction=0.2, seed=seed)
    lively = [split.tokens[(split.tokens.diff() != 0).sum(1) >= 12].numpy() for split in (dataset.train, dataset.test)]
    rows = [{row.tobytes() for row in tokens} for tokens in lively]
    assert min(map(len, rows)) > 200
    assert not rows[0] & rows[1]
    assert ("bwv112.5-sc" in pieces_of(dataset.test)) == ("bwv112.5" in pieces_of(dataset.test))


def stretches_of(split, length=64):
    """Any `length` steps of a row, from their first pitch, that change at least 8 times."""
    found = set()
    for row, pad in zip(split.tokens.numpy(), split.pad.numpy()):
        row = row[~pad].astype(np.int16)
        for start in range(len(row) - length + 1):
            steps = row[start : start + length]
            if np.count_nonzero(np.diff(steps)) >= 8:
                found.add(np.where(steps == 128, 999, steps - steps[steps != 128][0]).tobytes())
    return found


def test_no_four_bars_are_on_both_sides_in_any_key():
    dataset = loaded(256)
    train, test = stretches_of(dataset.train), stretches_of(dataset.test)
    assert min(len(train), len(test)) > 10_000
    assert not train & test


def test_the_split_depends_on_the_seed_alone():
    a, b, c = loaded(256).test, load_bach(256).test, load_bach(256, seed=1).test
    assert torch.equal(a.tokens, b.tokens)
    assert pieces_of(a) != pieces_of(c)


def test_the_second_load_uses_the_cache(three_works, tmp_path, monkeypatch):
    seen = []
    first = load_bach(64, cache=tmp_path / "c", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]

    def fail(*_):
        raise AssertionError("read again")

    monkeypatch.setattr(bach, "melodies_of", fail)
    second = load_bach(64, cache=tmp_path / "c")
    assert torch.equal(first.train.tokens, second.train.tokens)
    assert first.train.names == second.train.names
    assert [file.suffix for file in (tmp_path / "c").iterdir()] == [".npz"]  # no draft is left behind


def test_the_cache_folder_can_come_from_the_environment(three_works, tmp_path, monkeypatch):
    monkeypatch.setenv("USD3_CACHE", str(tmp_path / "from environment"))
    load_bach(64)
    assert len(list((tmp_path / "from environment").glob("bach-music21-*.npz"))) == 1


@pytest.mark.parametrize("damage", ["cut short", "empty", "other arrays", "bad pitch", "a single array"])
def test_a_damaged_cache_is_made_again(three_works, tmp_path, damage):
    first = load_bach(64, cache=tmp_path / "c")
    (file,) = (tmp_path / "c").iterdir()
    whole = file.read_bytes()
    if damage == "other arrays":
        np.savez(file, steps=np.zeros(3))
    elif damage == "bad pitch":
        np.savez(file, steps=np.full(2, 200, dtype=np.uint8), lengths=[2], pieces=["a"], voices=["b"])
    elif damage == "a single array":
        with file.open("wb") as stream:
            np.save(stream, np.zeros(3))
    else:
        file.write_bytes(whole[: len(whole) // 2] if damage == "cut short" else b"")
    again = load_bach(64, cache=tmp_path / "c")
    assert torch.equal(first.train.tokens, again.train.tokens)
    assert bach._unpacked(file) is not None


def test_a_cache_folder_that_cannot_be_written_is_no_error(three_works, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert len(load_bach(64, cache=tmp_path / "file" / "c").train) > 0


def test_a_missing_music21_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"load_bach needs music21: pip install 'usd3\[music\]'"):
        load_bach()


def test_a_corpus_without_scores_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(bach, "_corpus", lambda: tmp_path)
    with pytest.raises(FileNotFoundError, match="expected the scores that come with music21"):
        load_bach(cache=tmp_path / "c")
