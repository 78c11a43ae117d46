import struct
import sys
import time

import numpy as np
import pytest
import torch

from support.runs import memory_below
from usd3.kinds.melody.midi import read_midi, voices_of, write_midi, write_tracks
from usd3.kinds.melody.midi_folder import load_midi

R = 128


@pytest.fixture
def symusic():
    return pytest.importorskip("symusic")


@pytest.mark.parametrize("steps_per_beat", [1, 3, 4, 12])
@pytest.mark.parametrize(
    "tokens",
    [
        [60, 60, 62, R, 62, 62],
        [R, R, 0, 127, 127, R, R, R],  # rests at both ends
        [64],
        np.random.default_rng(0).integers(0, 129, 300).tolist(),
    ],
)
def test_what_is_written_is_read_back(symusic, tmp_path, tokens, steps_per_beat):
    write_midi(torch.tensor(tokens, dtype=torch.uint8), tmp_path / "a.mid", steps_per_beat)
    (melody,) = read_midi(tmp_path / "a.mid", steps_per_beat)
    assert melody.tolist() == tokens
    assert melody.dtype == np.uint8


def test_a_run_of_one_pitch_is_one_note_and_tempo_and_program_are_kept(symusic, tmp_path):
    write_midi([60, 60, 60, R, 60, 62], tmp_path / "a.mid", tempo=120, program=40)
    score = symusic.Score(tmp_path / "a.mid")
    notes = score.tracks[0].notes
    step = score.ticks_per_quarter / 4
    assert [(n.pitch, n.time / step, n.duration / step) for n in notes] == [(60, 0, 3), (60, 4, 1), (62, 5, 1)]
    assert score.tracks[0].program == 40
    assert score.tempos[0].qpm == pytest.approx(120)


def test_several_tracks_of_one_file_keep_their_names(symusic, tmp_path):
    tracks = {"high": [60, 60, R, 62], "low": [R, 40, 40, R]}
    write_tracks(tracks, tmp_path / "a.mid", program=19)
    assert {name.partition(" ")[2]: steps.tolist() for name, steps in voices_of(tmp_path / "a.mid", 4)} == {
        "0 high": tracks["high"],
        "1 low": tracks["low"],
    }
    assert [track.program for track in symusic.Score(tmp_path / "a.mid").tracks] == [19, 19]


def test_writing_replaces_a_file_and_leaves_no_draft(symusic, tmp_path):
    write_midi([60], tmp_path / "a.mid")
    write_midi([72], tmp_path / "a.mid")
    assert [file.name for file in tmp_path.iterdir()] == ["a.mid"]
    assert read_midi(tmp_path / "a.mid")[0].tolist() == [72]


def save(symusic, path, *tracks):
    """Each track is (is_drum, notes), a note is (onset, duration, pitch) in ticks of 480 a quarter."""
    score = symusic.Score(480)
    for is_drum, notes in tracks:
        track = symusic.Track("t", 0, is_drum)
        for onset, duration, pitch in notes:
            track.notes.append(symusic.Note(onset, duration, pitch, 80))
        score.tracks.append(track)
    path.write_bytes(score.dumps_midi())


def test_the_top_note_of_each_track_is_read_and_drums_are_skipped(symusic, tmp_path):
    piano = (False, [(0, 480, 60), (120, 120, 67), (240, 120, 55)])
    bass = (False, [(240, 240, 40)])
    save(symusic, tmp_path / "a.mid", piano, (True, [(0, 480, 36)]), bass)
    assert [melody.tolist() for melody in read_midi(tmp_path / "a.mid")] == [[60, 67, 60, 60], [R, R, 40, 40]]


def test_onsets_and_ends_are_rounded_to_the_grid(symusic, tmp_path):
    save(symusic, tmp_path / "a.mid", (False, [(5, 100, 60), (125, 110, 62), (300, 20, 64)]))
    assert read_midi(tmp_path / "a.mid")[0].tolist() == [60, 62, R, 64]


@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [
        ([60, 129], ValueError, "token = 129"),
        ([-1], ValueError, "token = -1"),
        ([[60]], ValueError, r"tokens\.shape = \(1, 1\)"),
        (torch.zeros(0, dtype=torch.long), ValueError, r"tokens\.shape = \(0,\)"),
        ([60.5], TypeError, "expected integers"),
    ],
)
def test_bad_melodies_are_refused(tmp_path, tokens, error, message):
    with pytest.raises(error, match=message):
        write_midi(tokens, tmp_path / "a.mid")
    assert not list(tmp_path.iterdir())


def test_unreadable_and_missing_files_are_named(symusic, tmp_path):
    (tmp_path / "a.mid").write_bytes(b"MThd nothing of the kind")
    with pytest.raises(ValueError, match=r"a\.mid: not a readable MIDI file"):
        read_midi(tmp_path / "a.mid")
    with pytest.raises(FileNotFoundError, match=r"b\.mid: no such file"):
        read_midi(tmp_path / "b.mid")


ON, OFF = b"\x90\x3c\x40", b"\x80\x3c\x40"


def delta(ticks):
    """A MIDI file's way to write a number."""
    parts = [ticks & 127]
    while ticks := ticks >> 7:
        parts.append(ticks & 127 | 128)
    return bytes(reversed(parts))


def midi(*events, ticks_per_quarter=1, tracks=1):
    """A file of the same track once or several times; an event is (ticks since the last one, bytes)."""
    body = b"".join(delta(ticks) + event for ticks, event in [*events, (0, b"\xff\x2f\x00")])
    track = b"MTrk" + struct.pack(">I", len(body)) + body
    return b"MThd" + struct.pack(">IHHH", 6, 1, tracks, ticks_per_quarter) + tracks * track


LONG = midi((0, ON), (2**28 - 1, OFF))
UNREADABLE = {
    "one long note": LONG,
    "many tracks": midi((0, ON), (2**10, OFF), tracks=2**11),
    "no ticks": midi((0, ON), (4, OFF), ticks_per_quarter=0),
    "past the largest number": midi((0, ON), *[(2**28 - 1, b"\x90\x3d\x40")] * 7, (2**28 - 1, OFF)),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_few_bytes_take_little_memory(symusic, tmp_path, name):
    (tmp_path / "a.mid").write_bytes(UNREADABLE[name])
    with memory_below(2**21 + 100 * len(UNREADABLE[name])), pytest.raises(ValueError, match=r"a\.mid = .*: expected"):
        read_midi(tmp_path / "a.mid")


def test_many_long_notes_take_little_time(symusic, tmp_path):
    """Twenty thousand that all sound until the end: one after the other they are 10^10 grid points."""
    count = 20_000
    (tmp_path / "a.mid").write_bytes(midi(*[(0, ON)] * count, (2**17, b"\x90\x3d\x40"), *[(0, OFF)] * count))
    begun = time.process_time()
    (melody,) = read_midi(tmp_path / "a.mid")
    assert time.process_time() - begun < 5
    assert (melody[: 4 * 2**17] == 60).all()


@pytest.fixture
def folder(symusic, tmp_path):
    random = np.random.default_rng(1)
    (tmp_path / "deep").mkdir()
    for i in range(10):
        name = f"deep/{i}.MIDI" if i % 2 else f"{i}.mid"
        write_midi(random.integers(50, 70, 40), tmp_path / name)
    return tmp_path


def test_a_folder_is_split_by_file(folder):
    dataset = load_midi(folder, length=16, test_fraction=0.3)
    sides = [{name.split(" | ")[0] for name in split.names} for split in (dataset.train, dataset.test)]
    assert [len(side) for side in sides] == [7, 3]
    assert not sides[0] & sides[1]
    assert "deep/1.MIDI" in sides[0] | sides[1]
    assert len(dataset.train) == 7 * 3
    assert int(dataset.train.pad.sum()) == 7 * 8
    assert dataset.kind.name == "melody"
    assert dataset.num_classes == 129


def test_an_unreadable_file_is_skipped_with_a_warning(folder):
    for content in (b"broken", LONG):
        (folder / "broken.mid").write_bytes(content)
        with pytest.warns(UserWarning, match=r"skipped: .*broken\.mid"):
            dataset = load_midi(folder, length=16, test_fraction=0.3)
        assert len(dataset.train) + len(dataset.test) == 30


@pytest.mark.filterwarnings("ignore:skipped")
def test_a_folder_without_readable_files_is_refused(symusic, tmp_path):
    with pytest.raises(ValueError, match=r"MIDI files below .* = 0"):
        load_midi(tmp_path)
    for content in (b"broken", LONG):
        (tmp_path / "broken.mid").write_bytes(content)
        with pytest.raises(ValueError, match=r"readable MIDI files below .* = 0: expected at least one of 1"):
            load_midi(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        load_midi(tmp_path / "none")


def test_one_file_is_too_few_and_files_that_share_a_melody_cannot_be_split(symusic, tmp_path):
    melody = np.random.default_rng(1).integers(50, 70, 40)
    write_midi(melody, tmp_path / "a.mid")
    with pytest.raises(ValueError, match=r"^path of MIDI files = .*a.mid: expected a folder of at least 2, one to"):
        load_midi(tmp_path / "a.mid")
    with pytest.raises(ValueError, match=r"^MIDI files with a melody below .* = 1: expected at least 2 of 1, one to"):
        load_midi(tmp_path, length=16)
    write_midi(melody, tmp_path / "b.mid")
    with pytest.raises(ValueError, match=r"^pieces = 2 that share melodies: expected some that share no melody"):
        load_midi(tmp_path, length=16)


@pytest.mark.parametrize("call", [lambda path: write_midi([60], path), read_midi, lambda path: load_midi(path.parent)])
def test_a_missing_symusic_is_named(tmp_path, monkeypatch, call):
    (tmp_path / "a.mid").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "symusic", None)
    with pytest.raises(ImportError, match=r"^MIDI files need symusic: pip install 'usd3\[music\]'$"):
        call(tmp_path / "a.mid")
