import zipfile
from xml.etree import ElementTree

import numpy as np
import pytest

from usd3.kinds.melody.musicxml import melodies_of, read_score

R = 128


def note(pitch, duration, *extra, voice=None):
    """A note such as C4, F#5, Bb3, or R for a rest; `extra` are empty elements before the pitch."""
    marks = "".join(f"<{mark}/>" for mark in extra)
    if pitch == "R":
        body = "<rest/>"
    else:
        alter = {"#": 1, "b": -1}.get(pitch[1], 0)
        body = f"<pitch><step>{pitch[0]}</step><alter>{alter}</alter><octave>{pitch[-1]}</octave></pitch>"
    length = "" if duration is None else f"<duration>{duration}</duration>"
    where = "" if voice is None else f"<voice>{voice}</voice>"
    return f"<note>{marks}{body}{length}{where}</note>"


def divisions(number, more=""):
    return f"<attributes><divisions>{number}</divisions>{more}</attributes>"


def score(*parts):
    """Parts are lists of measures, each a string."""
    names = "".join(f'<score-part id="P{i}"><part-name>Part {i}</part-name></score-part>' for i in range(len(parts)))
    bodies = "".join(
        f'<part id="P{i}">' + "".join(f"<measure>{measure}</measure>" for measure in part) + "</part>"
        for i, part in enumerate(parts)
    )
    return f"<score-partwise><part-list>{names}</part-list>{bodies}</score-partwise>"


def grids(*parts):
    return {name: steps.tolist() for name, steps in melodies_of(ElementTree.fromstring(score(*parts)))}


def grid(*measures):
    return grids(measures)["Part 0"]


def test_notes_and_rests_fill_the_grid():
    assert grid(divisions(2) + note("C4", 2) + note("R", 1) + note("F#5", 1)) == [60] * 4 + [R] * 2 + [78] * 2


def test_flats_and_octaves():
    assert grid(divisions(4) + note("Bb3", 1) + note("A0", 1) + note("C8", 1)) == [58, 21, 108]


def test_a_tied_note_goes_on_over_the_bar():
    assert grid(divisions(1) + note("G4", 1) + note("C5", 1), note("C5", 1) + note("G4", 1)) == (
        [67] * 4 + [72] * 8 + [67] * 4
    )


def test_a_chord_counts_as_its_top_note_and_takes_time_once():
    chord = note("C4", 1) + note("E4", 1, "chord") + note("G3", 1, "chord")
    assert grid(divisions(1) + chord + note("D4", 1)) == [64] * 4 + [62] * 4


def test_a_longer_note_of_a_chord_does_not_move_what_follows():
    assert grid(divisions(4) + note("C4", 2) + note("E4", 4, "chord") + note("D4", 4)) == [64] * 4 + [62] * 2


def test_backup_makes_two_voices_of_one_part():
    upper = note("C5", 1, voice=1) + note("D5", 1, voice=1)
    lower = "<forward><duration>1</duration></forward>" + note("E4", 1, voice=2)
    found = grids([divisions(1) + upper + "<backup><duration>2</duration></backup>" + lower, note("C5", 1, voice=1)])
    assert found == {"Part 0, voice 1": [72] * 4 + [74] * 4 + [72] * 4, "Part 0, voice 2": [R] * 4 + [64] * 4 + [R] * 4}


def test_notes_without_a_voice_belong_to_the_first():
    assert list(grids([divisions(1) + note("C4", 1), note("D4", 1, voice=1)])) == ["Part 0"]


def test_triplets_are_sampled_at_the_grid_points():
    triplet = note("C4", 1) + note("D4", 1) + note("E4", 1)  # onsets at 0, 4/3 and 8/3 steps
    assert grid(divisions(3) + triplet + note("F4", 3)) == [60, 60, 62, 64] + [65] * 4


def test_notes_between_grid_points_are_not_heard():
    assert grid(divisions(8) + note("C4", 1) + note("D4", 1) + note("E4", 2)) == [60, 64]


def test_a_pick_up_bar_is_as_long_as_its_notes():
    assert grid(divisions(1) + note("G4", 1), note("C5", 4)) == [67] * 4 + [72] * 16


def test_a_gap_at_the_end_lengthens_a_measure_but_not_the_piece():
    gap = "<forward><duration>1</duration></forward>"
    assert grid(divisions(1) + note("G4", 1) + gap, note("C5", 1) + gap) == [67] * 4 + [R] * 4 + [72] * 4


def test_divisions_may_change():
    assert grid(divisions(1) + note("C4", 1), divisions(4) + note("D4", 2) + divisions(2) + note("E4", 1)) == (
        [60] * 4 + [62] * 2 + [64] * 2
    )


def test_grace_cue_and_unpitched_notes_do_not_sound():
    unpitched = "<note><unpitched/><duration>1</duration></note>"
    measure = note("C6", None, "grace") + note("C4", 1) + note("C6", 1, "cue") + unpitched + note("D4", 1)
    assert grid(divisions(1) + measure) == [60] * 4 + [R] * 8 + [62] * 4


def test_transposing_instruments_sound_where_they_sound():
    clarinet = "<transpose><chromatic>-2</chromatic><octave-change>1</octave-change></transpose>"
    assert grid(divisions(1, clarinet) + note("C4", 1)) == [70] * 4


def test_parts_are_melodies_of_their_own_and_empty_measures_wait_for_the_others():
    found = grids(
        [divisions(1) + note("C5", 1), note("D5", 1), note("E5", 1)], [divisions(2) + note("C3", 2), "", note("D3", 2)]
    )
    assert found == {"Part 0": [72] * 4 + [74] * 4 + [76] * 4, "Part 1": [48] * 4 + [R] * 4 + [50] * 4}


def test_compressed_scores_are_read_through_their_container(tmp_path):
    container = '<container xmlns="urn:c"><rootfiles><rootfile full-path="in/score.xml"/></rootfiles></container>'
    with zipfile.ZipFile(tmp_path / "piece.mxl", "w") as archive:
        archive.writestr("META-INF/container.xml", container)
        archive.writestr("in/score.xml", score([divisions(4) + note("C4", 1)]))
    assert melodies_of(read_score(tmp_path / "piece.mxl"))[0][1].tolist() == [60]


@pytest.mark.parametrize(("name", "content"), [("a.xml", b"<score"), ("a.mxl", b"no zip"), ("a.xml", b"")])
def test_damaged_scores_are_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}: not a MusicXML file"):
        read_score(tmp_path / name)


def test_other_kinds_of_score_are_refused():
    with pytest.raises(ValueError, match="<score-timewise>: expected <score-partwise>"):
        melodies_of(ElementTree.fromstring("<score-timewise/>"))


def test_melodies_are_bytes():
    (_, steps), *_ = melodies_of(ElementTree.fromstring(score([divisions(4) + note("C4", 1)])))
    assert steps.dtype == np.uint8
