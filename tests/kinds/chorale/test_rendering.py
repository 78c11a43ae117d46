"""Tunes in, chorales out: by the commands, with a model that learnt nothing."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from usd3.cli.main import main
from usd3.kinds.chorale.kind import Chorale
from usd3.kinds.melody.midi import voices_of, write_midi, write_tracks
from usd3.kinds.options import DataConfig
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline

pytestmark = pytest.mark.skipif(importlib.util.find_spec("symusic") is None, reason="needs symusic")

REST, STEPS = 128, 32
NAMES = ("Soprano", "Alto", "Tenor", "Bass")
MUSIC = np.random.default_rng(0).integers(0, 5, (80, 4)) + np.array([70, 62, 55, 45])


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A model of chorales of 32 steps, and its data, in the current folder."""
    monkeypatch.chdir(tmp_path)
    pieces = np.stack([MUSIC[:40], MUSIC[20:60], MUSIC[40:]]).astype(np.int16)
    pieces[2, 24:] = -1
    np.savez("chorales.npz", train=pieces[:1], test=pieces[1:])
    torch.manual_seed(0)
    kind = Chorale(129, (STEPS, 4), from_files=True)
    config = PipelineConfig(129, [STEPS, 4], data=DataConfig("chorales", "chorales.npz", length=STEPS))
    config.kind, config.given, config.prefix = kind.as_dict(), "none", 64
    config.diffusion.noise, config.diffusion.schedule = "absorbing", "linear"
    config.model = ModelConfig(net="voices", dim=8, depth=1, heads=1, time_dim=4, hollow=False, timeless=True)
    Pipeline(config).save_pretrained(tmp_path / "model")
    return tmp_path


def sample(*options):
    return main(["sample", "model", *options, "--steps", "3", "--device", "cpu"])


def written(file):
    """The voices of a MIDI file, by name."""
    return {name.partition(" ")[2].partition(" ")[2]: steps for name, steps in voices_of(Path(file), 4)}


def arrays(folder):
    with np.load(f"{folder}/samples.npz") as stored:
        return {name: stored[name] for name in stored.files}


def test_new_chorales_are_midi_files_of_four_tracks(model):
    assert sample("--num", "2", "--out", "new", "--animate", "true", "--tempo", "60") == 0
    files = {file.name for file in (model / "new").iterdir()}
    assert files == {"sample-01.mid", "sample-02.mid", "samples.npz", "samples.png", "denoising.gif"}
    tokens = arrays("new")["tokens"]
    assert tokens.shape == (2, STEPS, 4)
    for i, chorale in enumerate(tokens, start=1):
        voices = written(f"new/sample-0{i}.mid")
        assert tuple(voices) == NAMES
        np.testing.assert_array_equal(np.stack(list(voices.values()), 1), chorale)
    symusic = importlib.import_module("symusic")
    assert symusic.Score("new/sample-01.mid").tempos[0].qpm == pytest.approx(60)


def test_one_track_is_harmonised_as_the_soprano(model):
    write_midi(MUSIC[:20, 0], "tune.mid")
    assert sample("--prompt", "tune.mid", "--num", "3", "--out", "new") == 0
    found = arrays("new")
    assert found["given"].reshape(-1, STEPS, 4)[0].sum(0).tolist() == [20, 0, 0, 0]
    for i in range(3):
        voices = written(f"new/sample-0{i + 1}.mid")
        np.testing.assert_array_equal(voices["Soprano"], MUSIC[:20, 0])  # it ends where the tune does
    assert (found["tokens"][0] != found["tokens"][1]).any()
    assert sample("--prompt", "tune.mid", "--out", "one.mid") == 0
    assert len(written("one.mid")["Soprano"]) == 20


def test_pictures_end_with_the_longest_chorale(model, monkeypatch):
    drawn, frames = [], []
    monkeypatch.setattr("usd3.pictures.chorale_rolls", lambda *arguments: drawn.append(arguments))
    monkeypatch.setattr("usd3.pictures.animate_chorales", lambda *arguments: frames.append(arguments))
    write_midi(MUSIC[:20, 0], "tune.mid")
    assert sample("--prompt", "tune.mid", "--num", "3", "--animate", "true", "--out", "new") == 0
    ((tokens, _, names, given, pad),) = drawn
    assert tokens.shape == (3, 20, 4)
    assert given.shape == (1, 20, 4)
    assert given[..., 0].all()
    assert names is None
    assert not pad.any()
    ((states, _, given),) = frames
    assert {state.shape for state in states} == {(2, 20, 4)}
    assert given.shape == (1, 20, 4)


def test_tracks_are_the_voices_that_their_names_say(model):
    write_tracks({"Bass": MUSIC[:STEPS, 3], "an alto": MUSIC[:STEPS, 1]}, "two.mid")
    assert sample("--prompt", "two.mid", "--num", "1", "--out", "new") == 0
    found = arrays("new")
    np.testing.assert_array_equal(found["tokens"][0][:, [1, 3]], MUSIC[:STEPS, [1, 3]])
    assert found["given"].reshape(STEPS, 4).all(0).tolist() == [False, True, False, True]


def test_tracks_that_could_be_any_voice_are_refused(model, capsys):
    write_tracks({"a": MUSIC[:8, 0], "b": MUSIC[:8, 1]}, "two.mid")
    assert sample("--prompt", "two.mid", "--out", "new") != 0
    assert re.search(r"two.mid = track 0 a, track 1 b: expected one track with notes, the", capsys.readouterr().err)
    write_tracks({"Alto": MUSIC[:8, 0], "alto 2": MUSIC[:8, 1]}, "two.mid")
    assert sample("--prompt", "two.mid", "--out", "new") != 0


def test_four_voices_are_continued_after_their_end(model):
    write_tracks({str(v): MUSIC[:12, v] for v in range(4)}, "start.mid")
    assert sample("--prompt", "start.mid", "--num", "1", "--out", "new") == 0
    found = arrays("new")
    np.testing.assert_array_equal(found["tokens"][0, :12], MUSIC[:12])
    assert found["given"].reshape(STEPS, 4).sum(0).tolist() == [12] * 4
    assert "pad" not in found


def test_a_long_file_is_cut_and_its_gaps_are_the_users(model, capsys):
    write_tracks({name: MUSIC[:, v] for v, name in enumerate(NAMES)}, "long.mid")
    assert sample("--prompt", "long.mid", "--fill", "8:16,0:4;20:24,3:4", "--num", "1", "--out", "new") == 0
    assert "long.mid: the first 32 of 80 sixteenth notes are used" in capsys.readouterr().err
    tokens, given = arrays("new")["tokens"][0], arrays("new")["given"].reshape(STEPS, 4)
    assert not given[8:16].any()
    assert given[20:24].all(0).tolist() == [True, True, True, False]
    assert (~given).sum() == 8 * 4 + 4
    np.testing.assert_array_equal(tokens[given], MUSIC[:STEPS][given])


def test_without_holes_the_prefix_is_given(model):
    write_tracks({name: MUSIC[:STEPS, v] for v, name in enumerate(NAMES)}, "whole.mid")
    assert sample("--prompt", "whole.mid", "--num", "1", "--out", "new") == 0
    assert arrays("new")["given"].reshape(STEPS, 4)[:, 0].tolist() == [True] * 16 + [False] * 16


def test_held_out_sopranos_are_harmonised(model):
    assert sample("--prompt", "test", "--given", ":,0:1", "--num", "3", "--out", "new") == 0
    found = arrays("new")
    truth = [MUSIC[20:52], MUSIC[52:60], MUSIC[40:64]]
    for tokens, true, pad in zip(found["tokens"], truth, found["pad"]):
        assert int((~pad[:, 0]).sum()) == len(true)
        np.testing.assert_array_equal(tokens[: len(true), 0], true[:, 0])
    assert [len(written(f"new/sample-0{i}.mid")["Bass"]) for i in (1, 2, 3)] == [32, 8, 24]


def test_arrays_of_other_lengths_are_continued(model):
    np.save("start.npy", MUSIC[None, :20])
    assert sample("--prompt", "start.npy", "--prefix", "64", "--num", "1", "--out", "new") == 0
    tokens = arrays("new")["tokens"]
    np.testing.assert_array_equal(tokens[0, :16], MUSIC[:16])
    assert tokens.shape == (1, STEPS, 4)
    np.save("wrong.npy", MUSIC[None, :20, :3])
    assert sample("--prompt", "wrong.npy", "--prefix", "64") != 0
    assert sample("--prompt", "start.npy", "--given", "0:24,0:4") != 0


def test_a_musicxml_file_is_a_prompt(model):
    steps = "".join(
        f"<note><pitch><step>{step}</step><octave>{octave}</octave></pitch><duration>1</duration></note>"
        for step, octave in (("C", 5), ("D", 5), ("E", 5), ("F", 5))
    )
    part = "<part id='P1'><measure><attributes><divisions>1</divisions></attributes>" + steps + "</measure></part>"
    names = "<part-list><score-part id='P1'><part-name>Tenor</part-name></score-part></part-list>"
    Path("tune.musicxml").write_text(f"<score-partwise>{names}{part}</score-partwise>")
    assert sample("--prompt", "tune.musicxml", "--num", "1", "--out", "new") == 0
    found = arrays("new")
    assert found["tokens"][0, :16, 2].tolist() == [72] * 4 + [74] * 4 + [76] * 4 + [77] * 4
    assert found["given"].reshape(STEPS, 4).sum(0).tolist() == [0, 0, 16, 0]
    Path("bad.xml").write_text("<score-partwise><part><measure><note><duration>x</duration></note></measure></part>")
    assert sample("--prompt", "bad.xml") != 0


def test_evaluation_measures_voice_leading(model, capsys):
    assert main(["evaluate", "model", "--steps", "3", "--runs", "1", "--device", "cpu", "--bound_samples", "2"]) == 0
    printed = capsys.readouterr().out
    assert "parallel fifths / 100 chords" in printed
    assert "bits per element" in printed
