"""What each address of the studio answers."""

import io
import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from support.studio import client, events, small_kinds, small_model, studio_in

KINDS = ("array", "melody", "board", "text", "sequence", "table", "image_tokens")


def refused(answer, status=400):
    assert answer.status_code == status, answer.text
    line = answer.json()["error"]
    assert "\n" not in line
    assert len(line) < 700
    return line


def opened(browser, folder, kind):
    answer = browser.post("/api/open", json={"model": str(folder / kind)})
    assert answer.status_code == 200, answer.text
    return answer.json()


def draw(browser, model, **fields):
    answer = browser.post("/api/draw", json={"model": model["model"], "object": model["example"], "steps": 5, **fields})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return events(answer.text)


def test_the_list_has_the_packaged_models_and_those_of_runs(tmp_path, monkeypatch):
    kind = small_kinds(tmp_path)["array"]
    monkeypatch.chdir(tmp_path)
    small_model(tmp_path / "runs" / "deep" / "mine", kind)
    (tmp_path / "runs" / "bad").mkdir()
    for name, content in (("config.json", "{" * 10), ("model.safetensors", "")):
        (tmp_path / "runs" / "bad" / name).write_text(content)
    (tmp_path / "runs" / "loop").symlink_to(tmp_path / "runs")
    answer = client(studio_in(tmp_path)).get("/api/models").json()
    listed = {model["name"]: model for model in answer["models"]}
    assert {"bach", "sudoku", "runs/deep/mine"} <= set(listed)
    assert listed["bach"]["packaged"]
    assert listed["bach"]["kind"] == "melody"
    assert listed["bach"]["title"] == "Bach's melodies"
    assert not listed["runs/deep/mine"]["packaged"]
    assert listed["runs/deep/mine"]["title"] == "Mine"
    assert listed["runs/deep/mine"]["description"] == "3 x 4 elements of 5 categories"
    assert not [name for name in listed if "bad" in name or "loop" in name]
    assert answer["chosen"] is None


@pytest.mark.parametrize("kind", KINDS)
def test_an_open_model_says_all_that_the_page_needs(kind, browser, folder):
    model = opened(browser, folder, kind)
    assert model["kind"] == kind
    assert model["editor"]["name"] in ("array", "roll", "board", "text", "sequence", "table", "image")
    assert model["sampler"] == model["samplers"][0]["name"]
    assert 1 <= model["steps"] <= model["most_steps"]
    assert 1 <= model["num"] <= model["most_num"]
    assert all(sampler["summary"] for sampler in model["samplers"])
    assert len(json.dumps(model)) < 100_000


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_draws_over_the_network(kind, browser, folder):
    model = opened(browser, folder, kind)
    found = draw(browser, model, num=2, seed=4)
    names = [name for name, _ in found]
    assert names[-1] == "done"
    assert {"frame", "progress"} <= set(names)
    done = found[-1][1]
    assert len(done["objects"]) == 2
    again = draw(browser, model, num=2, seed=4, frames=0)
    assert again[-1][1]["objects"] == done["objects"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_drawn_is_written_and_read_again(kind, browser, folder):
    model = opened(browser, folder, kind)
    objects = draw(browser, model, num=1, seed=4)[-1][1]["objects"]
    for suffix in model["writes"]:
        answer = browser.post("/api/write", json={"model": model["model"], "objects": objects, "format": suffix})
        assert answer.status_code == 200, (suffix, answer.text)
        assert len(answer.content) > 0
        assert answer.headers["content-disposition"] == f'attachment; filename="{kind}{suffix}"'
        if suffix in model["reads"] and kind != "image_tokens":  # a VQGAN does not know its pictures again
            name = {"model": model["model"], "name": f"new{suffix}"}
            read = browser.post("/api/read", params=name, content=answer.content)
            assert read.status_code == 200, (suffix, read.text)
            expected = objects[0]
            if kind == "table":  # an empty cell of a drawn row is missing; one of a file is to be filled
                expected = {name: cell or None for name, cell in expected.items()}
            assert read.json()["object"] == expected, suffix


def test_pictures_are_those_of_the_vqgan(browser, folder):
    model = opened(browser, folder, "image_tokens")
    assert model["editor"] == {"name": "image", "size": [16, 16], "grid": [4, 4], "missing": None}
    objects = draw(browser, model, num=2)[-1][1]["objects"]
    answer = browser.post("/api/picture", json={"model": model["model"], "objects": [*objects, model["example"]]})
    assert [picture[:22] for picture in answer.json()["pictures"]] == ["data:image/png;base64,"] * 3
    stream = io.BytesIO()
    Image.new("RGB", (40, 20), "red").save(stream, "PNG")
    read = browser.post("/api/read", params={"model": model["model"], "name": "a.png"}, content=stream.getvalue())
    assert np.array(read.json()["object"]).shape == (4, 4)
    assert read.json()["notes"] == ["the middle square of the image"]
    assert "draws" in refused(
        browser.post("/api/picture", json={"model": "sudoku", "objects": [np.full((9, 9), -1).tolist()]})
    )


def test_a_missing_vqgan_is_one_line_and_no_obstacle(tmp_path):
    kind = small_kinds(tmp_path)["image_tokens"]
    small_model(tmp_path / "model", kind)
    (tmp_path / "vqgan").rename(tmp_path / "elsewhere")
    browser = client(studio_in(tmp_path))
    model = opened(browser, tmp_path, "model")
    assert "--vqgan" in model["editor"]["missing"]
    objects = draw(browser, model, num=1)[-1][1]["objects"]
    assert "--vqgan" in refused(browser.post("/api/picture", json={"model": model["model"], "objects": objects}))


@pytest.mark.parametrize(
    "name",
    ["nothing", "..", "/", "/etc", "/etc/passwd", "../..", "~", "bach/../../..", "x\0y", "a" * 400, "http://x/y", "."],
)
def test_only_models_below_the_roots_are_opened(name, browser):
    line = refused(browser.post("/api/open", json={"model": name}))
    assert "bach" in line
    assert "Errno" not in line


def test_a_link_out_of_the_root_is_not_followed(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    small_model(outside, small_kinds(tmp_path)["array"])
    inside.mkdir()
    (inside / "model").symlink_to(outside)
    refused(client(studio_in(inside)).post("/api/open", json={"model": str(inside / "model")}))


def test_a_model_that_needs_code_of_others_is_refused_and_none_of_it_runs(tmp_path, monkeypatch):
    marker = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "model"
    small_model(folder, small_kinds(tmp_path)["array"])
    config = json.loads((folder / "config.json").read_text())
    browser = client(studio_in(tmp_path))
    for part, values in (("kind", {"name": "evil.Kind"}), ("model", {**config["model"], "net": "evil.Net"})):
        (folder / "config.json").write_text(json.dumps({**config, part: values}))
        assert "evil" in refused(browser.post("/api/open", json={"model": str(folder)}))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    folder.rename(tmp_path / "runs" / "model")
    assert "runs/model" not in browser.get("/api/models").text
    assert not marker.exists()


@pytest.mark.parametrize("content", ["", "{}", "[]", "{" * 5000, '{"num_classes": 1e400}', "\0"])
def test_a_damaged_model_is_one_line_without_places(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_model(tmp_path / "model", small_kinds(tmp_path)["array"])
    (tmp_path / "model" / "config.json").write_text(content)
    line = refused(client(studio_in(tmp_path)).post("/api/open", json={"model": "model"}))
    assert str(tmp_path) not in line


def test_two_models_are_in_memory_at_most(folder):
    studio = studio_in(folder)
    browser = client(studio)
    for kind in KINDS:
        opened(browser, folder, kind)
        assert len(studio.shelf._open) <= 2
    model = opened(browser, folder, "array")
    for kind in KINDS:
        draw(browser, {**model, "model": str(folder / kind), "example": opened(browser, folder, kind)["example"]})
        assert len(studio.shelf._open) <= 2
    studio.close()


def deflated(size):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (size,)})
        with archive.open("tokens.npy", "w", force_zip64=True) as member:
            member.write(header.getvalue())
            for _ in range(size // 2**20):
                member.write(bytes(2**20))
    return stream.getvalue()


MIDI = b"MThd" + bytes([0, 0, 0, 6, 0, 0, 0, 1, 0, 96]) + b"MTrk"
LONG_NOTE = bytes([0, 0x90, 60, 64, 0xFF, 0xFF, 0xFF, 0x7F, 0x80, 60, 0, 0, 0xFF, 0x2F, 0])
FILES = [
    ("melody", "a.mid", b""),
    ("melody", "a.mid", b"not a MIDI file"),
    ("melody", "a.mid", b"MThd"),
    ("melody", "a.mid", MIDI + b"\xff\xff\xff\xff"),
    ("melody", "a.mid", MIDI + bytes([0, 0, 0, 4, 0, 0xFF, 0x2F, 0])),  # no notes
    ("melody", "a.mid", MIDI + len(LONG_NOTE).to_bytes(4, "big") + LONG_NOTE),  # a note that lasts for years
    ("melody", "a.exe", b"MZ"),
    ("melody", "a", b"x"),
    ("melody", "../../a.mid/..", b"x"),
    ("melody", "", b"x"),
    ("array", "a.npz", deflated(2**29)),  # half a GiB in half a MiB
    ("array", "a.npy", b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (3,)}"),
    ("array", "a.npz", b"PK\x03\x04" + b"\0" * 100),
    ("board", "a.txt", b"\xff\xfe\xfa"),
    ("board", "a.txt", b"12"),
    ("board", "a.txt", b"9" * 16),
    ("text", "a.txt", bytes([0xFF, 0xFE, 0xFA, 0x81] * 10)),
    ("sequence", "a.fa", b"ACGT"),
    ("sequence", "a.txt", b"\x1f\x8b" + b"\0" * 50),
    ("table", "a.csv", b""),
    ("table", "a.csv", b"colour\nred\n"),
    ("table", "a.csv", b"age,sex\nold,F\n"),
    ("image_tokens", "a.png", b"\x89PNG\r\n\x1a\n"),
    ("image_tokens", "a.png", b"<svg/>"),
    ("image_tokens", "a.jpg", b"%!PS"),
]


@pytest.mark.parametrize(("kind", "name", "content"), FILES)
def test_a_bad_file_gets_one_clear_line(kind, name, content, browser, folder):
    params = {"model": str(folder / kind), "name": name}
    line = refused(browser.post("/api/read", params=params, content=content))
    assert "usd3-studio-" not in line
    assert "this did not work" not in line


def test_a_file_with_more_says_what_was_left_out(browser, folder):
    def read(kind, name, content):
        params = {"model": str(folder / kind), "name": name}
        return browser.post("/api/read", params=params, content=content).json()

    assert read("board", "a.txt", b"1234341221434321\n1...............\n")["notes"] == ["the first of 2 boards"]
    assert read("board", "a.txt", b"1...............")["object"] == [[0, -1, -1, -1], *[[-1] * 4] * 3]
    assert read("text", "a.txt", b"abc " * 20)["notes"] == ["the first 24 of 80 characters"]
    assert read("text", "a.txt", b"abc____\n")["object"] == "abc____"
    found = read("sequence", "a.fa", b">one\nACGTNNACGTACGTACGT\n>two\nAC\n")
    assert found == {
        "object": "ACGTNNACGTAC",
        "notes": ["the first of 2 sequences", "its first 12 of 18 letters"],
    }
    found = read("table", "a.csv", b"age,sex,job\n30,,cook\n31,F,smith\n")
    assert found["object"] == {"age": "30", "sex": None, "job": "cook", "born": None}
    assert found["notes"] == ["the first of 2 rows"]
    stream = io.BytesIO()
    np.savez(stream, tokens=np.arange(24).reshape(2, 3, 4) % 5)
    assert read("array", "a.npz", stream.getvalue())["notes"] == ["the first of 2 arrays"]


def test_midi_with_several_tracks_and_more_bars(browser, folder, tmp_path):
    symusic = pytest.importorskip("symusic")
    score = symusic.Score(480)
    for pitch in (70, 50):
        track = symusic.Track("voice", 0, False)
        for step in range(40):
            track.notes.append(symusic.Note(step * 120, 120, pitch + step % 2, 90))
        score.tracks.append(track)
    params = {"model": str(folder / "melody"), "name": "a.mid"}
    found = browser.post("/api/read", params=params, content=score.dumps_midi()).json()
    assert found["object"] == [70, 71] * 16
    assert found["notes"] == ["the first of 2 tracks", "the first 2 of 3 bars"]


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"format": ".exe"}, "format"),
        ({"format": "../x.mid"}, "format"),
        ({"format": 3}, "format"),
        ({"objects": []}, "objects"),
        ({"objects": "x"}, "objects"),
        ({"objects": [[-1] * 32]}, "holes"),
        ({"objects": [[60] * 31]}, "32"),
        ({"objects": [[60] * 32] * 2}, "num = 2"),
        ({"objects": [[60] * 32] * 2000}, "2,000"),
        ({"tempo": 0}, "tempo"),
        ({"tempo": 1e9}, "tempo"),
        ({"tempo": "fast"}, "tempo"),
        ({"model": "nothing"}, "model"),
    ],
)
def test_wrong_requests_for_a_file_name_what_is_wrong(fields, word, browser, folder):
    values = {"model": str(folder / "melody"), "objects": [[60] * 32], "format": ".mid", **fields}
    assert word in refused(browser.post("/api/write", json=values))


def test_the_tempo_is_written(browser, folder):
    symusic = pytest.importorskip("symusic")
    values = {"model": str(folder / "melody"), "objects": [[60] * 32], "format": ".mid", "tempo": 137}
    score = symusic.Score.from_midi(browser.post("/api/write", json=values).content)
    assert round(score.tempos[0].qpm) == 137


def test_errors_of_a_draw_are_one_line_in_the_stream(browser, folder):
    model = opened(browser, folder, "array")
    name, data = draw(browser, model, guidance=2.0)[-1]
    assert name == "error"
    assert data["error"].startswith("guidance = 2.0: expected 1 where nothing is given")


def test_a_draw_that_takes_too_long_ends_with_a_line(folder):
    studio = studio_in(folder, seconds=0.05)
    browser = client(studio)
    model = opened(browser, folder, "melody")
    name, data = draw(browser, model, steps=1000)[-1]
    assert name == "error"
    assert "--minutes" in data["error"]
    studio.close()


def test_what_nobody_expected_is_one_line_too(browser, folder, monkeypatch):
    monkeypatch.setattr("usd3.studio.app.draw", lambda *_: 1 / 0)
    monkeypatch.setattr("usd3.studio.app.read_wish", lambda *_: [][0])
    assert "IndexError" in refused(browser.post("/api/draw", json={"model": "sudoku", "object": []}), 500)
    monkeypatch.undo()
    monkeypatch.setattr("usd3.studio.app.draw", lambda *_: {}["secret"])
    model = opened(browser, folder, "array")
    assert "secret" not in str(draw(browser, model))


def test_errors_name_files_and_no_folders_of_this_computer(browser, folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    (folder / "other").mkdir()
    (folder / "other" / "config.json").write_text("[")
    line = refused(browser.post("/api/open", json={"model": f"{folder.name}/other"}))
    assert str(folder.parent) not in line


def test_health_counts_what_waits(browser):
    assert browser.get("/api/health").json()["queue"] == 0


def test_more_requests_than_the_desk_can_take_are_refused(browser, studio, monkeypatch):
    monkeypatch.setattr("usd3.studio.app._MOST_PENDING", 0)
    answer = browser.post("/api/open", json={"model": "bach"})
    assert "try again" in refused(answer, 503)
    assert answer.headers["retry-after"] == "2"
