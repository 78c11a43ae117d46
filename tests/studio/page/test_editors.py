"""Boards, texts, tables and pictures on the studio's page, and every editor on a phone."""

import itertools

import numpy as np
import pytest

from support.browser import Tabs, drag, fill, object_of, set_steps, wait_until, words_of
from support.studio import TOKEN

PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
KINDS = ["array", "melody", "board", "text", "sequence", "table", "image_tokens"]
UNNAMED = """[...document.querySelectorAll('button, input, select, textarea, canvas[tabindex="0"]')]
  .filter((element) => element.checkVisibility() && !element.getAttribute('aria-hidden'))
  .filter((element) => !element.getAttribute('aria-label') && !element.textContent.trim() && !element.labels?.length)
  .map((element) => element.outerHTML)"""
NOISY = "[...document.querySelectorAll('output')].filter((one) => one.ariaLive !== 'off').map((one) => one.outerHTML)"


def test_a_typed_sudoku_is_watched_while_it_is_solved(tabs):
    page = tabs.open("#model=sudoku")
    page.click(".cell >> nth=0")
    page.keyboard.type(PUZZLE)
    given = np.array([[-1 if c == "." else int(c) - 1 for c in PUZZLE]]).reshape(9, 9)
    assert object_of(page) == given.tolist()
    set_steps(page, 40, 1)
    said = fill(page)
    assert "solved" in said
    solution = np.array(object_of(page))
    boxes = solution.reshape(3, 3, 3, 3).swapaxes(1, 2).reshape(9, 9)
    for lines in (solution, solution.T, boxes):
        assert all(sorted(line) == list(range(9)) for line in lines.tolist())
    assert (solution[given >= 0] == given[given >= 0]).all()
    assert page.locator(".cell.given").count() == (given >= 0).sum()

    slider = page.locator("#timeline input")
    assert int(slider.get_attribute("max")) > 1
    slider.evaluate("(element) => { element.value = 0; element.dispatchEvent(new Event('input')); }")
    assert page.locator(".cell.guess").count() > 10
    assert "step" in page.inner_text("#timeline output")
    slider.focus()
    page.keyboard.press("End")
    assert page.locator(".cell.guess").count() == 0
    assert page.get_attribute(".cell >> nth=0", "aria-label") == "Row 1, column 1: 5, given"


def test_a_board_is_pasted_and_moved_in_by_keys(tabs):
    page = tabs.open("#model=sudoku")
    page.click(".cell >> nth=40")
    page.evaluate("(text) => navigator.clipboard.writeText(text)", PUZZLE)
    page.keyboard.press("Control+v")
    wait_until(page, "usd3Studio.state.shown[0][0] === 4")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("Row 4, column 4")
    page.keyboard.press("Delete")
    page.keyboard.press("7")
    assert object_of(page)[3][3] == 6


def test_gaps_in_a_text_are_filled_and_shown(tabs, folder):
    page = tabs.open(f"#model={folder / 'text'}")
    page.fill("#prompt", "a cat ___ on a mat.")
    set_steps(page, 4)
    fill(page)
    result = words_of(page)["result"]
    assert (len(result), result[:6], result[9:]) == (19, "a cat ", " on a mat.")
    assert page.locator(".sheet mark").all_inner_texts() == [result[6:9]]
    page.evaluate("document.getElementById('prompt').setSelectionRange(2, 5)")
    page.click("text=Make a gap")
    assert page.input_value("#prompt") == "a ___ ___ on a mat."
    page.keyboard.press("Control+z")
    assert page.input_value("#prompt") == "a cat ___ on a mat."


def test_empty_fields_of_a_row_are_drawn_many_times(tabs, folder):
    page = tabs.open(f"#model={folder / 'table'}")
    page.fill("#column-job", "cook")
    page.fill("#column-age", "20..40")
    page.keyboard.press("Tab")
    set_steps(page, 4, 50)
    assert fill(page).startswith("50 rows in")
    rows = words_of(page)["drawn"]["objects"]
    assert len(rows) == 50
    assert {row["job"] for row in rows} == {"cook"}
    assert all(20 <= int(row["age"]) <= 40 for row in rows)
    assert page.locator(".chart figcaption").count() == 3
    assert page.locator(".rows tbody tr").count() == 50


def test_erased_tokens_of_a_picture_are_filled(tabs, folder):
    page = tabs.open(f"#model={folder / 'image_tokens'}")
    set_steps(page, 3, 2)
    fill(page, "generate")
    wait_until(page, "document.querySelectorAll('img.thumbnail[src^=data]').length === 2")
    before = object_of(page)
    box = page.locator("canvas.cells").bounding_box()
    drag(page, (box["x"] + 5, box["y"] + 5), (box["x"] + box["width"] - 5, box["y"] + 5))
    erased = object_of(page)
    assert erased == [[-1] * 4] * 2 + before[2:]
    assert "Fill the gaps" in page.inner_text("#buttons")
    fill(page)
    after = object_of(page)
    assert after[2:] == before[2:]
    assert min(itertools.chain(*after)) >= 0


@pytest.fixture(scope="module")
def phone(chromium, port):
    """One narrow tab for all kinds: a tab takes a second of a processor to open."""
    tabs = Tabs(chromium, f"http://127.0.0.1:{port}/?token={TOKEN}")
    yield tabs.open(width=360, height=700)
    tabs.close()
    assert tabs.problems == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_draws_on_a_phone_and_nothing_sticks_out(kind, phone, folder):
    page = phone
    page.emulate_media(color_scheme="dark" if KINDS.index(kind) % 2 == 0 else "light")
    page.evaluate(f"document.getElementById('settings').open = false; location.hash = 'model={folder / kind}'")
    wait_until(page, f"usd3Studio.state.editor && usd3Studio.state.model.model === '{folder / kind}'")
    set_steps(page, 3, 2 if kind != "table" else 20)
    fill(page, "generate")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator(".variant:visible").count() == (0 if kind == "table" else 2)
    assert page.evaluate(UNNAMED) == []
    assert page.evaluate(NOISY) == []
    if kind != "table":
        page.click(".variant >> nth=1 >> .adopt")
        doc = words_of(page)
        assert doc["chosen"] == 1
        assert doc["result"] == doc["drawn"]["objects"][1]
        if kind != "image_tokens":
            page.click("text=Compare")
    assert page.locator("#alert").is_hidden()


@pytest.mark.parametrize(("width", "dark"), [(360, False), (1440, True)])
def test_the_choice_of_models_opens_one(width, dark, tabs):
    page = tabs.open(width=width, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, back[4:-1].split(","))) < 200) == dark
    page.click("[aria-label^=Theme]")
    page.click("[aria-label^=Theme]")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.click("[data-model=sudoku]")
    page.wait_for_selector(".board")
    assert page.evaluate("document.getElementById('settings').open") == (width > 1000)
    page.keyboard.press("?")
    assert "Arrow keys" in page.inner_text("#help")
    page.keyboard.press("Escape")
    page.click("#home-button")
    assert page.is_visible("#cards")
