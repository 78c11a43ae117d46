"""Two fingers on the piano roll, and files that are dropped on the page."""

import pytest

from support.browser import object_of, place, wait_until
from usd3.kinds.melody.midi import write_midi

DROP = """([name, bytes, events]) => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([new Uint8Array(bytes)], name));
  const roll = document.querySelector('.roll');
  events.forEach((type) => roll.dispatchEvent(new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer })));
}"""


def drop(page, name, content, *events):
    page.evaluate(DROP, [name, list(content), list(events)])


def two_fingers(page, start, end, moves=6):
    """Put one finger down, then another, and move both; each is a place of the window."""
    session = page.context.new_cdp_session(page)

    def touch(kind, *places):
        points = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(places)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", start[0])
    touch("touchStart", *start)
    for i in range(1, moves + 1):
        touch("touchMove", *[tuple(a + (b - a) * i / moves for a, b in zip(*path)) for path in zip(start, end)])
    touch("touchEnd")


def test_two_fingers_zoom_and_scroll_and_draw_nothing(tabs):
    page = tabs.open("#model=bach", width=360, height=740, touch=True)
    page.locator("canvas.roll").scroll_into_view_if_needed()
    page.select_option("[aria-label='Length of new notes']", label="1/16 note")
    page.touchscreen.tap(*place(page, 1, 67))
    undo, redo = page.locator("#history button").all()
    undo.click()
    x, y = place(page, 12, 70)
    two_fingers(page, [(x - 20, y), (x + 20, y)], [(x - 100, y), (x + 100, y)])  # as wide as it gets
    redo.click()
    assert object_of(page)[:3] == [-1, 67, -1]  # the step that was taken back before, not one of the fingers
    undo.click()
    page.touchscreen.tap(x, y)
    notes = [i for i, pitch in enumerate(object_of(page)) if pitch >= 0]
    assert notes == [12]  # the tap drew it, and the fingers before it none; it is between them, where it was
    undo.click()
    assert undo.is_disabled()
    for by in (-144, 80):
        two_fingers(page, [(x, y), (x + 40, y)], [(x + by, y), (x + 40 + by, y)])
    page.touchscreen.tap(x, y)
    page.touchscreen.tap(x + 120, y)
    notes = [i for i, pitch in enumerate(object_of(page)) if pitch >= 0]
    assert notes == [14, 17]  # a step is 40 pixels wide, before and after


def test_a_file_that_is_dropped_is_loaded(tabs, tmp_path):
    pytest.importorskip("symusic")
    page = tabs.open("#model=bach")
    write_midi([64] * 8 + [67] * 8, tmp_path / "tune.mid")
    content = (tmp_path / "tune.mid").read_bytes()
    drop(page, "tune.mid", content, "dragover")
    assert page.evaluate("document.body.matches('.dropping')")
    drop(page, "tune.mid", content, "dragleave")
    assert not page.evaluate("document.body.matches('.dropping')")
    drop(page, "tune.mid", content, "dragover", "drop")
    wait_until(page, "document.getElementById('status').textContent === 'Loaded tune.mid'")
    assert object_of(page)[:17] == [64] * 8 + [67] * 8 + [-1]
    assert not page.evaluate("document.body.matches('.dropping')")


def test_a_bad_file_that_is_dropped_leaves_the_page_as_it_was(careless):
    page = careless.open("#model=bach")
    page.click("#files >> text=Example")
    before = object_of(page)
    for name, said in (("a.pdf", "expected one that ends with .mid or .midi"), ("a.mid", "not a readable MIDI file")):
        drop(page, name, b"no music", "dragover", "drop")
        wait_until(page, f"document.getElementById('alert').textContent.includes('{said}')")
        assert object_of(page) == before
