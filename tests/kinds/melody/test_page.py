"""Music in the studio: one voice or several on a piano roll."""

import pytest
import torch

from usd3.kinds.array import Array
from usd3.kinds.melody.kind import Melody
from usd3.kinds.melody.midi import write_midi
from usd3.kinds.melody.page import RollPage, Voice
from usd3.kinds.page import Page
from usd3.kinds.rendering import Request

pytest.importorskip("symusic")
VOICES = (Voice("Soprano", 60, 81), Voice("Bass", 36, 64))


def test_a_melody_has_one_voice_and_a_theme_to_go_on_with():
    page = Melody(129, (32,)).page(Request())
    assert page.editor()["voices"] == [{"name": "Melody", "low": 36, "high": 96}]
    (theme,) = page.prompts()
    assert theme == [64] * 8 + [65] * 4 + [67] * 4 + [-1] * 16
    long = Melody(129, (256,)).page(Request()).prompts()[0]
    assert long[:16] == theme[:16]
    assert long[64:] == [-1] * 192
    assert type(Melody(129, (4, 4)).page(Request())) is Page


def test_several_voices_share_a_grid():
    page = RollPage(Array(129, (8, 2)), Request(), VOICES)
    assert [voice["name"] for voice in page.editor()["voices"]] == ["Soprano", "Bass"]
    assert page.prompts()[0][:2] == [[64, -1], [64, -1]]
    objects = [[[60, 128]] * 8]
    assert page.to_page(page.from_page(objects).tokens) == objects


def test_a_file_shorter_than_the_model_leaves_the_rest_open(tmp_path):
    write_midi([60, 62, 128, 128], tmp_path / "a.mid")
    read, notes = Melody(129, (8,)).page(Request()).read(tmp_path / "a.mid")
    assert read == [60, 62, 128, 128, -1, -1, -1, -1]
    assert notes == []


def test_tracks_become_voices_as_far_as_there_are_some(tmp_path):
    write_midi([60, 62, 64, 65], tmp_path / "a.mid")
    read, _ = RollPage(Array(129, (4, 2)), Request(), VOICES).read(tmp_path / "a.mid")
    assert read == [[60, -1], [62, -1], [64, -1], [65, -1]]


def test_hours_of_music_are_refused(tmp_path):
    write_midi([60] + [128] * (2**16 + 8), tmp_path / "a.mid")
    with pytest.raises(ValueError, match="16,384 quarters"):
        Melody(129, (8,)).page(Request()).read(tmp_path / "a.mid")
    write_midi(torch.full((4,), 128), tmp_path / "b.mid")
    with pytest.raises(ValueError, match="no notes"):
        Melody(129, (8,)).page(Request()).read(tmp_path / "b.mid")
