"""examples/pop909.py on small folders of the form of POP909."""

import runpy
import sys
from itertools import pairwise

import numpy as np
import pytest

from support.places import ROOT

symusic = pytest.importorskip("symusic")

SCRIPT = ROOT / "examples" / "pop909.py"
BEAT, STEP, OFFSET = 0.6, 120, 200  # seconds of a beat, ticks of a step and before the first beat


def song(folder, number, steps, first_bar=0, beats_of_a_bar=4):
    """A MIDI file whose track MELODY has these steps, from the first beat on, and its beats."""
    own = folder / f"{number:03d}"
    own.mkdir(parents=True)
    score, other, track = symusic.Score(4 * STEP), symusic.Track("PIANO"), symusic.Track("MELODY")
    score.tempos.append(symusic.Tempo(0, 60 / BEAT))
    other.notes.append(symusic.Note(0, STEP, 30, 90))
    for start, stop in pairwise(np.flatnonzero(np.r_[True, steps[1:] != steps[:-1], True]).tolist()):
        if steps[start] != 128:
            early = STEP // 5 if start % 3 else 0  # nobody plays on the grid
            track.notes.append(
                symusic.Note(OFFSET + start * STEP - early, (stop - start) * STEP, int(steps[start]), 90)
            )
    score.tracks.extend([other, track])
    (own / f"{number:03d}.mid").write_bytes(score.dumps_midi())
    bars = [beat >= first_bar and (beat - first_bar) % beats_of_a_bar == 0 for beat in range(len(steps) // 4)]
    seconds = [BEAT * (OFFSET / STEP / 4 + beat) for beat in range(len(bars))]
    (own / "beat_midi.txt").write_text("".join(f"{time} 0.0 {bar:.1f}\n" for time, bar in zip(seconds, bars)))


def melody(seed, bars):
    return np.repeat(np.random.default_rng(seed).integers(60, 72, bars * 4), 4).astype(np.uint8)


def convert(folder, out, *options):
    words, sys.argv = sys.argv, ["pop909.py", str(folder), str(out), *options]
    try:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    finally:
        sys.argv = words
    return dict(np.load(out))


def test_windows_are_cut_from_the_grid_of_the_beats(tmp_path, capsys):
    steps = {number: melody(number, 26) for number in (1, 2, 3, 4)}
    for number, played in steps.items():
        song(tmp_path / "songs", number, played, first_bar=2)
    song(tmp_path / "songs", 5, melody(5, 30), beats_of_a_bar=3)
    song(tmp_path / "songs", 6, np.r_[melody(6, 4), np.full(352, 128, np.uint8)])
    arrays = convert(tmp_path / "songs", tmp_path / "a.npz", "--held_out", "0.2")
    assert capsys.readouterr().out == f"{len(arrays['train'])} train, 2 test, 0 parrot in {tmp_path / 'a.npz'}\n"
    for part, hop in (("train", 64), ("test", 128)):
        for number in set(arrays[f"{part}_song"].tolist()):
            expected = [steps[number][start : start + 256] for start in range(8, 416 - 255, hop)]
            np.testing.assert_array_equal(arrays[part][arrays[f"{part}_song"] == number], expected)
    assert set(arrays["train_song"]) | set(arrays["test_song"]) == {1, 2, 3, 4}
    assert not set(arrays["train_song"]) & set(arrays["test_song"])


def test_a_theme_that_comes_back_is_for_the_ratios(tmp_path):
    theme, others = melody(0, 2), [melody(i, 31) for i in (1, 2)]
    again = np.r_[theme, others[0][:320], theme, others[1][:320]]
    for number, steps in ((1, again), (2, again + 1), (3, melody(7, 40))):
        song(tmp_path / "songs", number, steps)
    arrays = convert(tmp_path / "songs", tmp_path / "a.npz", "--held_out", "0.3", "--seed", "1")
    heads = {window[:32].tobytes() for window in arrays["train"]}
    train = {window.tobytes() for window in arrays["train"]}
    assert len(arrays["parrot"]) == len(set(arrays["parrot_song"])) > 0
    for window in arrays["parrot"]:
        assert window[:32].tobytes() in heads
        assert window.tobytes() not in train
    assert not any(window[:32].tobytes() in heads for window in arrays["test"])
    few = convert(
        tmp_path / "songs", tmp_path / "b.npz", "--held_out", "0.3", "--seed", "1", "--train", "2", "--parrot", "0"
    )
    assert (len(few["train"]), len(few["parrot"])) == (2, 0)


def test_bad_input_is_refused_and_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "there.npz").write_text("mine")
    for out, message in (
        ("there.npz", "expected an .npz file that does not exist"),
        ("new.npz", "expected folders 001"),
    ):
        with pytest.raises(SystemExit):
            convert(tmp_path, tmp_path / out)
        assert message in capsys.readouterr().err
    assert (tmp_path / "there.npz").read_text() == "mine"
