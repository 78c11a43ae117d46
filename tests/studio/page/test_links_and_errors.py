"""Links that reproduce a result, stopping, and errors on the studio's page."""

from support.browser import Tabs, fill, object_of, place, set_steps, wait_until, words_of
from support.studio import TOKEN, served, studio_in


def test_a_shared_link_draws_the_same_result(tabs, folder):
    page = tabs.open(f"#model={folder / 'melody'}")
    page.mouse.click(*place(page, 2, 67))
    set_steps(page, 5, 3)
    fill(page)
    page.click(".variant >> nth=2 >> .adopt")
    page.click("#share")
    wait_until(page, "document.getElementById('status').textContent.includes('copied')")
    link = page.evaluate("navigator.clipboard.readText()")
    assert "object=" in link.split("#")[1]
    other = tabs.open(path=link)
    other.wait_for_selector("body:not(.busy) #status:not(:empty)")
    first, second = words_of(page), words_of(other)
    assert first["drawn"]["objects"] == second["drawn"]["objects"]
    assert (first["result"], first["chosen"]) == (second["result"], second["chosen"])


def test_a_link_of_an_edited_result_has_it_as_it_is(tabs, folder):
    page = tabs.open(f"#model={folder / 'array'}")
    set_steps(page, 3, 1)
    fill(page, "generate")
    page.focus("canvas.cells")
    for key in ("ArrowRight", "4", "Enter", "ArrowRight", "Delete"):
        page.keyboard.press(key)
    shown = object_of(page)
    assert (shown[0][1], shown[0][2]) == (4, -1)
    page.click("#share")
    wait_until(page, "document.getElementById('status').textContent.includes('copied')")
    other = tabs.open(path=page.evaluate("navigator.clipboard.readText()"))
    assert object_of(other) == shown


def test_the_way_back_from_the_choice_of_models_brings_a_result_again(tabs, folder):
    page = tabs.open(f"#model={folder / 'board'}")
    set_steps(page, 3, 1)
    fill(page, "generate")
    shown = object_of(page)
    page.click("#home-button")
    assert page.is_visible("#cards")
    page.go_back()
    page.wait_for_selector("body:not(.busy) #status:not(:empty)")
    wait_until(page, "document.getElementById('status').textContent.startsWith('Drawn again')")
    assert object_of(page) == shown


def test_a_link_is_followed_even_where_the_address_bar_is_rewritten_at_that_moment(tabs, folder):
    page = tabs.open(f"#model={folder / 'board'}")
    old = "history.replaceState(null, '', usd3Studio.state.sharing.fragment)"
    page.evaluate(f"location.hash = 'model={folder / 'array'}'; {old}")
    wait_until(page, f"usd3Studio.state.editor && usd3Studio.state.model.model === '{folder / 'array'}'")


def test_a_draw_is_stopped_and_the_page_goes_on(tabs):
    page = tabs.open("#model=bach")
    set_steps(page, 1000, 4)
    page.click("[data-action=generate]")
    wait_until(page, "usd3Studio.state.timeline.frames.length > 0")
    page.click("[data-action=stop]")
    assert page.inner_text("#status") == "Stopped."
    set_steps(page, 3, 1)
    assert "variant" in fill(page, "generate")


def test_a_new_draw_takes_the_place_of_the_one_before(tabs):
    page = tabs.open("#model=bach")
    set_steps(page, 1000, 1)
    page.click("[data-action=generate]")
    page.wait_for_selector("[data-action=stop]")
    set_steps(page, 3, 1, seed=5)
    assert "variant" in fill(page, "generate")
    assert words_of(page)["drawn"]["seed"] == 5


def test_errors_are_one_line_on_the_page(careless, folder, tmp_path):
    page = careless.open(f"#model={folder / 'melody'}")
    bad = tmp_path / "tune.mid"
    bad.write_bytes(b"no music at all")
    with page.expect_file_chooser() as chooser:
        page.click("#load")
    chooser.value.set_files(bad)
    page.wait_for_selector("#alert:not([hidden])")
    line = page.inner_text("#alert")
    assert "tune.mid" in line
    assert "\n" not in line.strip()
    page.fill("#steps", "0")
    page.click("[data-action=generate]")
    assert "Steps: expected a whole number from 1 to" in page.inner_text("#alert")
    set_steps(page, 3, 1)
    fill(page, "generate")
    assert page.locator("#alert").is_hidden()

    damaged = careless.open(path=careless.link + "#model=bach&object=a9~q!")
    damaged.wait_for_selector("#alert:not([hidden])")
    assert "This link is damaged" in damaged.inner_text("#alert")


def test_an_error_is_seen_wherever_the_page_is_scrolled_to(careless):
    page = careless.open(width=360, height=500)
    page.fill("#folder-path", "nowhere")
    page.keyboard.press("Enter")
    page.wait_for_selector("#alert:not([hidden])")
    assert page.evaluate("scrollY") > 0
    box = page.locator("#alert").bounding_box()
    assert 0 <= box["y"] < box["y"] + box["height"] <= 500


def test_there_is_nothing_to_play_or_to_save_on_an_empty_roll(tabs, folder):
    page = tabs.open(f"#model={folder / 'melody'}")
    page.click(".play-button")
    assert "There are no notes to play yet." in page.inner_text("#alert")
    assert not page.evaluate("usd3Studio.synth.playing")
    page.click("#save")
    wait_until(page, "document.getElementById('alert').textContent.includes('nothing to save')")
    page.mouse.click(*place(page, 2, 67, steps=32))
    page.click(".play-button")
    wait_until(page, "usd3Studio.synth.playing")
    assert page.locator("#alert").is_hidden()


def test_a_server_that_ended_is_one_line_on_the_page(careless, chromium, folder):
    with served(studio_in(folder)) as number:
        tabs = Tabs(chromium, f"http://127.0.0.1:{number}/?token={TOKEN}")
        page = tabs.open(f"#model={folder / 'array'}")
    page.click("[data-action=generate]")
    page.wait_for_selector("#alert:not([hidden])")
    assert page.inner_text("#alert").strip() == "The server does not answer. Is `usd3 studio` still running?"
    tabs.close()
