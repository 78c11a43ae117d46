"""The focus of the keyboard, which must not be lost where a part of the page is made anew."""

from support.browser import fill, set_steps, wait_until


def focused(page, selector):
    return page.evaluate(f"document.activeElement.matches({selector!r})")


def test_a_model_that_is_opened_by_keys_has_the_focus(tabs):
    page = tabs.open(width=360, height=500)
    page.focus("[data-model=sudoku]")
    page.keyboard.press("Enter")
    page.wait_for_selector(".board")
    assert page.evaluate("scrollY") == 0
    page.keyboard.press("Tab")
    assert focused(page, "#files button")


def test_variants_are_chosen_by_keys_one_after_the_other(tabs, folder):
    page = tabs.open(f"#model={folder / 'melody'}")
    set_steps(page, 3, 3)
    fill(page, "generate")
    page.focus(".variant:nth-child(2) .adopt")
    page.keyboard.press("Enter")
    wait_until(page, "usd3Studio.state.store.doc.chosen === 1")
    assert focused(page, ".variant:nth-child(2) .adopt")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    wait_until(page, "usd3Studio.state.transport.variant === 1")
    assert focused(page, ".variant:nth-child(2) .play")
    page.keyboard.press("Escape")
    wait_until(page, "!usd3Studio.synth.playing")
    assert focused(page, ".variant:nth-child(2) .play")


def test_the_focus_of_the_stop_button_goes_to_the_button_that_draws(tabs):
    page = tabs.open("#model=bach")
    set_steps(page, 1000, 1)
    page.click("[data-action=generate]")
    page.focus("[data-action=stop]")
    page.keyboard.press("Enter")
    wait_until(page, "!usd3Studio.state.drawing.busy")
    assert focused(page, "[data-action=generate]")
