"""Objects by their numbers: rows in memory and windows of a stream, the same for every reader."""

import pytest
import torch

from usd3.kinds.dataset import Dataset
from usd3.kinds.fingerprints import fingerprint, fingerprint_of_rows
from usd3.kinds.rows import Sequences, Windows
from usd3.kinds.scramble import scramble

STREAM = torch.arange(50, dtype=torch.uint8) % 7


def test_a_window_begins_at_every_place_of_a_stream():
    windows = Windows(STREAM, 8)
    assert (len(windows), windows.shape) == (43, (8,))
    tokens, pad = windows.take(torch.tensor([0, 5, 42]))
    assert pad is None
    assert tokens.tolist() == [STREAM[i : i + 8].tolist() for i in (0, 5, 42)]
    assert torch.equal(windows.tokens, STREAM.unfold(0, 8, 1))


def test_windows_may_stand_side_by_side():
    windows = Windows(STREAM, 8, stride=8)
    assert len(windows) == 6
    assert torch.equal(windows.tokens, STREAM[:48].reshape(6, 8))


def test_windows_may_come_in_a_random_order():
    plain, mixed, other = (Windows(STREAM, 4, stride=4, seed=seed) for seed in (None, 0, 1))
    assert mixed.tokens.tolist() != plain.tokens.tolist() != other.tokens.tolist()
    assert mixed.tokens.tolist() != other.tokens.tolist()
    assert sorted(mixed.tokens.tolist()) == sorted(plain.tokens.tolist())
    assert torch.equal(mixed.take(torch.tensor([3]))[0][0], mixed.tokens[3])


@pytest.mark.parametrize(("places", "windows"), [(7, 0), (8, 1), (9, 2)])
def test_a_stream_shorter_than_a_window_has_none(places, windows):
    assert len(Windows(STREAM[:places], 8)) == windows


def test_a_table_names_the_integers_of_a_stream():
    table = torch.tensor([3, 2, 1, 0, 9, 8, 7], dtype=torch.uint8)
    windows = Windows(STREAM, 8, table=table)
    assert torch.equal(windows.tokens, table[STREAM.long()].unfold(0, 8, 1))
    assert windows.limits() == (0, 9)
    names = torch.arange(10).flip(0)
    assert torch.equal(windows.renamed(names).tokens, names[windows.tokens.long()])


@pytest.mark.parametrize("rows", [Windows(STREAM, 8), Sequences(STREAM.reshape(10, 5))], ids=["windows", "rows"])
def test_pieces_have_each_element_once_and_limits_are_those_of_all(rows, monkeypatch):
    monkeypatch.setattr("usd3.kinds.rows.PIECE", 10)
    pieces = list(rows.pieces())
    assert len(pieces) == 5
    assert torch.cat([tokens.flatten() for tokens, _ in pieces]).tolist() == STREAM.tolist()
    assert rows.limits() == (0, 6)
    assert rows.nbytes == 50


def test_few_objects_are_spread_over_the_whole_split():
    rows = Sequences(torch.arange(100)[:, None].expand(-1, 2), torch.tensor([[False, True]] * 100))
    assert rows.spread(10).tokens[:, 0].tolist() == [0, 20, 40, 60, 80]
    assert rows.spread(10).pad.tolist() == [[False, True]] * 5
    assert rows.spread(200) is rows
    assert Windows(STREAM, 8).spread(1000).tokens.shape == (6, 8)  # as many as stand side by side
    assert Windows(STREAM, 8).spread(16).tokens.tolist() == [STREAM[:8].tolist(), STREAM[21:29].tolist()]


def test_a_stream_has_its_fingerprint():
    def of(stream=STREAM, length=8, table=None):
        return fingerprint_of_rows(Windows(stream, length, table=table))

    changed = STREAM.clone()
    changed[49] = 1
    others = [of(changed), of(STREAM[:-1]), of(length=9), of(table=torch.arange(7).flip(0).to(torch.uint8))]
    assert of() == of(STREAM.clone()) == fingerprint(STREAM.unfold(0, 8, 1), None)
    assert len({of(), *others}) == 5


@pytest.mark.parametrize("most", [2**26, 999])
def test_the_fingerprint_of_rows_is_that_of_their_tensors(most, monkeypatch):
    """Also where only some rows are read, in several pieces."""
    monkeypatch.setattr("usd3.kinds.fingerprints._MOST_BYTES", most)
    monkeypatch.setattr("usd3.kinds.fingerprints.PIECE", 60)
    tokens = torch.arange(1000, dtype=torch.int32).reshape(50, 4, 5)
    for pad in (None, tokens % 3 == 0):
        assert fingerprint_of_rows(Sequences(tokens, pad)) == fingerprint(tokens, pad)


def test_a_scrambled_stream_decodes_to_the_original():
    windows = Windows(STREAM, 8)
    mixed = scramble(Dataset("d", 7, windows, Windows(STREAM, 8, stride=8)), seed=3)
    assert not torch.equal(mixed.train.tokens, windows.tokens)
    assert torch.equal(mixed.decoded(mixed.train.tokens), windows.tokens.long())
    assert mixed.train.tokens.dtype == torch.uint8


def test_a_stream_out_of_range_is_refused_by_name():
    with pytest.raises(ValueError, match=r"token of train = 6: expected categories 0\.\.5"):
        Dataset("d", 6, Windows(STREAM, 8), Windows(STREAM % 6, 8))


def test_a_long_stream_is_never_copied():
    stream = torch.zeros(1, dtype=torch.uint8).expand(10**13)  # in one byte; a copy would fail
    windows = Windows(stream, 64)
    assert windows.take(torch.tensor([0, len(windows) - 1]))[0].shape == (2, 64)
    assert windows.spread(640).tokens.shape == (10, 64)
    assert windows.nbytes == 10**13
    assert len(fingerprint_of_rows(windows)) == 16


def test_groups_are_one_number_for_each_object():
    tokens = torch.zeros(3, 4, dtype=torch.uint8)
    rows = Sequences(tokens, groups=torch.tensor([0, 0, 1]))
    assert rows.to(torch.device("cpu")).groups.tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match=r"groups.shape = \(2,\): expected \(3,\)"):
        Sequences(tokens, groups=torch.tensor([0, 1]))
    with pytest.raises(TypeError, match="groups"):
        Sequences(tokens, groups=torch.zeros(3))
