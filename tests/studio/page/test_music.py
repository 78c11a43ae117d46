"""Music on the studio's page: the piano roll by mouse and by keys, and what is heard."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from support.browser import drag, fill, object_of, place, set_steps, wait_until, words_of
from usd3.kinds.melody.midi import read_midi, voices_of

REST = 128
HEARD = "usd3Studio.synth.level() > 1e-3"


def test_notes_are_drawn_filled_heard_and_saved(tabs, tmp_path):
    page = tabs.open("#model=bach")
    page.mouse.click(*place(page, 1, 67))
    drag(page, place(page, 4, 72), place(page, 11, 72))
    given = object_of(page)
    assert given[:16] == [67] * 4 + [72] * 8 + [-1] * 4

    set_steps(page, 6)
    assert fill(page).startswith("2 variants in")
    shown = object_of(page)
    assert shown[:12] == given[:12]
    assert min(shown) >= 0

    wait_until(page, "usd3Studio.synth.level() < 1e-4")  # the notes that were drawn have died away
    page.click(".play-button")
    wait_until(page, HEARD)
    wait_until(page, "usd3Studio.synth.context.state === 'running' && usd3Studio.synth.playing")
    page.click(".play-button")
    wait_until(page, "!usd3Studio.synth.playing")

    page.fill("#tempo", "90")
    with page.expect_download() as download:
        page.click("#save")
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    pytest.importorskip("symusic")
    melody = read_midi(path)[0]
    end = max(i for i, pitch in enumerate(shown) if pitch != REST) + 1
    start = next(i for i, pitch in enumerate(shown) if pitch != REST)
    assert list(melody[start:end]) == shown[start:end]

    with page.expect_file_chooser() as chooser:
        page.click("#load")
    chooser.value.set_files(path)
    wait_until(page, "document.getElementById('status').textContent.startsWith('Loaded')")
    assert object_of(page)[start:end] == shown[start:end]


def test_notes_are_erased_lengthened_locked_and_taken_back(tabs):
    page = tabs.open("#model=bach")
    page.mouse.click(*place(page, 0, 65))
    drag(page, place(page, 1, 65), place(page, 7, 65))
    assert object_of(page)[:9] == [65] * 8 + [-1]
    page.mouse.click(*place(page, 2, 65))
    assert object_of(page)[:8] == [-1] * 8
    page.keyboard.press("Control+z")
    assert object_of(page)[:8] == [65] * 8
    page.keyboard.press("Control+Shift+z")
    assert object_of(page)[:8] == [-1] * 8
    page.keyboard.press("Control+z")

    page.click(".tool >> text=Lock")
    page.mouse.click(*place(page, 2, 65))
    doc = words_of(page)
    assert (doc["object"][:8], doc["result"][:8]) == ([-1] * 8, [65] * 8)
    page.mouse.click(*place(page, 2, 65))
    assert words_of(page)["object"][:8] == [65] * 8


def test_a_selection_alone_is_drawn_anew(tabs):
    page = tabs.open("#model=bach")
    set_steps(page, 4, 1, seed=1)
    fill(page, "generate")
    before = object_of(page)
    page.click(".tool >> text=Select")
    drag(page, place(page, 16, 70), place(page, 31, 70))
    assert page.is_visible(".selection-bar")
    set_steps(page, 4, 1, seed=2)
    fill(page)
    after = object_of(page)
    assert after[:16] + after[32:] == before[:16] + before[32:]
    assert after[16:32] != before[16:32]


def test_a_finger_draws_and_keeps_notes_on_a_phone(tabs):
    page = tabs.open("#model=bach", width=360, height=700, touch=True)
    page.locator("canvas.roll").scroll_into_view_if_needed()
    page.touchscreen.tap(*place(page, 5, 67))
    assert object_of(page)[:9] == [-1] * 4 + [67] * 4 + [-1]
    set_steps(page, 4, 1)
    fill(page)
    note = object_of(page)
    assert words_of(page)["object"][4:8] == note[4:8] == [67] * 4
    page.click("#files >> text=Clear")
    assert set(object_of(page)) == {-1}


def test_the_piano_roll_by_keys_alone(tabs):
    page = tabs.open("#model=bach")
    set_steps(page, 4, 1)
    page.focus("canvas.roll")
    said = page.locator("#announcer")
    page.keyboard.press("ArrowRight")
    assert said.inner_text().startswith("bar 1, beat 1,")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert "bar 1, beat 2" in said.inner_text()
    assert said.inner_text().endswith("drawn")
    pitch = object_of(page)[4]
    assert object_of(page)[:9] == [-1] * 4 + [pitch] * 4 + [-1]
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("[")
    page.keyboard.press(" ")
    assert object_of(page)[8:11] == [pitch + 1] * 2 + [-1]
    page.keyboard.press("r")
    assert object_of(page)[8:11] == [REST] * 2 + [-1]
    page.keyboard.press("Delete")
    page.keyboard.press("ArrowDown")
    for _ in range(2):
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("l")
    assert said.inner_text() == "unlocked"
    page.keyboard.press("l")
    assert said.inner_text() == "locked"
    page.keyboard.press("Shift+ArrowRight")
    assert said.inner_text().startswith("selected from bar 1, beat 2")
    page.keyboard.press("Escape")
    assert not page.is_visible(".selection-bar")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("body:not(.busy) #status:not(:empty)")
    assert min(object_of(page)) >= 0
    page.keyboard.press("p")
    wait_until(page, HEARD)
    page.keyboard.press("Escape")
    wait_until(page, "!usd3Studio.synth.playing")


CHORALE = {
    "model": "chorale",
    "title": "Chorales",
    "kind": "chorale",
    "description": "four voices",
    "editor": {
        "name": "roll",
        "voices": [{"name": name, "low": 36, "high": 81} for name in ("Soprano", "Alto", "Tenor", "Bass")],
        "rest": REST,
        "steps_per_beat": 4,
        "steps_per_bar": 16,
        "tempo": 100,
    },
    "shape": [32, 4],
    "num_classes": 129,
    "samplers": [{"name": "exact", "summary": "steps"}],
    "sampler": "exact",
    "steps": 4,
    "most_steps": 10,
    "num": 2,
    "most_num": 4,
    "guided": False,
    "tempered": False,
    "labels": {},
    "reads": [],
    "writes": [".mid"],
    "example": [[-1] * 4] * 32,
    "prompts": [[[72, -1, -1, -1]] * 16 + [[-1] * 4] * 16],
}


def test_harmonise_keeps_one_voice_opens_the_others_and_plays_at_once(tabs):
    asked = []

    def draw(route):
        asked.append(json.loads(route.request.post_data))
        chord = [[72, 67, 64, 48]] * 32
        events = [
            ("first", {"object": chord}),
            ("done", {"objects": [chord, chord], "seconds": 0.1, "seed": 1, "notes": []}),
        ]
        text = "".join(f": wait\n\nevent: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events)
        route.fulfill(body=text, content_type="text/event-stream")

    routes = {"**/api/open": lambda route: route.fulfill(json=CHORALE), "**/api/draw": draw}
    page = tabs.open("#model=chorale", routes=routes)
    page.click("[data-action=harmonise]")
    assert "Draw some notes of the soprano first" in page.inner_text("#alert")
    page.click("#files >> text=Example")
    page.click(".voice[data-voice='3']")
    said = fill(page, "harmonise")
    assert "first sound after" in said
    assert asked[-1]["object"] == [[72, -1, -1, -1]] * 16 + [[REST] * 4] * 16  # it ends with the bar of the last note
    assert object_of(page) == [[72, 67, 64, 48]] * 16 + [[REST] * 4] * 16
    wait_until(page, HEARD)
    right = "c.getContext('2d').getImageData(c.width * 0.9, 0, c.width * 0.05, c.height).data.some((x) => x > 0)"
    assert page.locator(".variant canvas").first.evaluate(f"(c) => {right}")  # its picture ends where the piece does
    page.click(".variant >> nth=1 >> .play")
    assert page.evaluate("usd3Studio.state.transport.variant") == 1
    wait_until(page, HEARD)


def test_a_drawn_soprano_is_harmonised_heard_and_saved_in_four_voices(tabs, tmp_path):
    page = tabs.open("#model=chorale")
    assert page.locator(".voice").all_inner_texts() == ["Soprano", "Alto", "Tenor", "Bass"]
    tune = [67, 69, 71, 72, 74, 72, 71]
    for i, pitch in enumerate(tune):
        page.mouse.click(*place(page, 4 * i + 1, pitch, 36, 81))
    given = object_of(page)
    soprano = [row[0] for row in given]
    assert soprano == [pitch for pitch in tune for _ in range(4)] + [-1] * (256 - 28)
    assert {pitch for row in given for pitch in row[1:]} == {-1}

    set_steps(page, 6)
    said = fill(page, "harmonise")
    assert said.startswith("2 variants in")
    assert "first sound after" in said
    wait_until(page, HEARD)
    shown = object_of(page)
    assert [row[0] for row in shown[:28]] == soprano[:28]
    for voice in range(4):
        assert any(row[voice] < REST for row in shown[:32])
    assert shown[32:] == [[REST] * 4] * 224  # two bars: the tune ends in the second one

    with page.expect_download() as download:
        page.click("#save")
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    pytest.importorskip("symusic")
    tracks = voices_of(path, 4)
    assert [name.rpartition(" ")[2] for name, _ in tracks] == ["Soprano", "Alto", "Tenor", "Bass"]
    for voice, (_, steps) in enumerate(tracks):
        assert steps[:32].tolist() == [row[voice] for row in shown[: len(steps)]][:32]


def test_a_screenshot_has_colours(tabs):
    """The roll and its notes are painted."""
    page = tabs.open("#model=bach")
    drag(page, place(page, 0, 67), place(page, 15, 67))
    pixels = np.asarray(Image.open(io.BytesIO(page.locator("canvas.roll").screenshot())).convert("RGB"), dtype=float)
    note = np.array([194, 59, 22])
    share = (np.abs(pixels - note).max(-1) < 12).mean()
    assert 0.001 < share < 0.2
