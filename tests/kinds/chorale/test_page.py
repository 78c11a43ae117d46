"""Chorales in the studio: four voices on a piano roll, which may end before the roll does."""

import pytest
import torch

from usd3.kinds.chorale.kind import Chorale
from usd3.kinds.melody.midi import voices_of, write_tracks
from usd3.kinds.rendering import Request

REST, OPEN = 128, -1
TUNE = [[72, OPEN, OPEN, OPEN]] * 4 + [[REST, OPEN, OPEN, OPEN]] * 4
END = [[REST] * 4] * 8


@pytest.fixture
def page():
    return Chorale(129, (16, 4)).page(Request())


def test_the_roll_has_the_four_voices_and_a_tune_for_the_soprano(page):
    voices = page.editor()["voices"]
    assert [voice["name"] for voice in voices] == ["Soprano", "Alto", "Tenor", "Bass"]
    assert (voices[0]["low"], voices[3]["high"]) == (60, 64)
    (prompt,) = page.prompts()
    assert prompt == [[64, OPEN, OPEN, OPEN]] * 8 + [[OPEN] * 4] * 8


def test_a_chorale_ends_where_all_voices_rest_up_to_the_end(page):
    ended = page.pad(page.from_page([TUNE + END]))
    assert ended.shape == (1, 16, 4)
    assert ended[0, :, 0].tolist() == [False] * 8 + [True] * 8
    assert (ended == ended[..., :1]).all()
    assert page.pad(page.from_page([TUNE + TUNE])) is None
    assert page.pad(page.from_page([END + TUNE])) is None  # rests that something follows
    assert page.pad(page.from_page([TUNE + END[:-1] + [[REST, REST, REST, OPEN]]])) is None
    assert page.pad(page.from_page([END + END])) is None
    two = page.pad(page.from_page([TUNE + TUNE, TUNE + END]))
    assert two.any((1, 2)).tolist() == [False, True]


def test_files_of_a_chorale_end_where_it_ends(page, tmp_path):
    pytest.importorskip("symusic")
    pytest.importorskip("matplotlib")
    chord = [[72, 67, 64, 48]] * 8
    for name, rest in (("short", END), ("long", chord)):
        page.write([chord + rest], tmp_path / f"{name}.mid")
        page.write([chord + rest], tmp_path / f"{name}.png")
    assert [len(steps) for _, steps in voices_of(tmp_path / "short.mid", 4)] == [8] * 4
    assert [len(steps) for _, steps in voices_of(tmp_path / "long.mid", 4)] == [16] * 4
    assert (tmp_path / "short.png").read_bytes() != (tmp_path / "long.png").read_bytes()


def test_tracks_are_the_voices_that_they_are_called(page, tmp_path):
    pytest.importorskip("symusic")
    steps = torch.full((4,), 50)
    write_tracks({"Bass": steps, "Tenor": steps + 5}, tmp_path / "a.mid")
    assert page.read(tmp_path / "a.mid")[0][:5] == [[OPEN, OPEN, 55, 50]] * 4 + [[OPEN] * 4]
    write_tracks({"Flute": steps + 20, "Viola": steps + 5}, tmp_path / "b.mid")
    assert page.read(tmp_path / "b.mid")[0][:4] == [[70, 55, OPEN, OPEN]] * 4
