"""A real browser without a window, for tests of the studio's page."""

import contextlib
import importlib.util
import shutil
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlparse

__all__ = ["Tabs", "drag", "fill", "object_of", "place", "set_steps", "wait_until", "without_browser", "words_of"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
)
_DONE = "body:not(.busy) #status:not(:empty)"
_SECONDS = 20.0


def _program() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name)) is not None), None)


def without_browser() -> str:
    """Why there is no browser here to test with; "" where there is one."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed"
    return "" if _program() else f"no browser is installed: none of {', '.join(_NAMES)}"


class Tabs:
    """Tabs of a browser, each of which is a new visitor. They remember what went wrong in them.

    Args:
        link: the link of the studio.
    """

    def __init__(self, browser: Any, link: str):
        self.browser, self.link = browser, link
        self.problems: list[str] = []
        self.hosts: set[str] = set()
        self._contexts: list[Any] = []

    @classmethod
    @contextlib.contextmanager
    def opened(cls) -> Iterator[Any]:
        """A browser, which is closed at the end."""
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=_program(), args=list(_FLAGS))
            yield browser
            browser.close()

    def open(
        self,
        fragment: str = "",
        width: int = 1280,
        height: int = 800,
        dark: bool = False,
        touch: bool = False,
        path: str = "",
        routes: Any = None,
    ) -> Any:
        """A page of the studio, with a model where the fragment names one.

        Args:
            fragment: of the link.
            width: of the window.
            height: of the window.
            dark: whether the visitor likes dark pages.
            touch: whether the visitor has a touch screen.
            path: a whole link in the place of the studio's.
            routes: what answers in the server's place, by pattern.
        """
        context = self.browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", has_touch=touch
        )
        self._contexts.append(context)
        context.set_default_timeout(_SECONDS * 1000)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.on("console", lambda line: self.problems.append(line.text) if line.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.hosts.add(urlparse(request.url).netloc))
        for pattern, answer in (routes or {}).items():
            page.route(pattern, answer)
        page.goto(path or self.link + fragment)
        page.wait_for_selector("#files button:visible, #cards button:visible")
        return page

    def close(self) -> None:
        """Close all tabs."""
        for context in self._contexts:
            context.close()


def object_of(page: Any) -> Any:
    """What the page shows: what is given, and elsewhere the result."""
    return page.evaluate("usd3Studio.state.shown")


def words_of(page: Any) -> dict[str, Any]:
    """The document: what is given, the result, the variants."""
    take = "({object, result, drawn, chosen}) => ({object, result, drawn, chosen})"
    return page.evaluate(f"({take})(usd3Studio.state.store.doc)")


def set_steps(page: Any, steps: int, num: int = 2, seed: int | None = None) -> None:
    """Set how a page draws."""
    page.evaluate("document.getElementById('settings').open = true")
    page.fill("#steps", str(steps))
    page.fill("#num", str(num))
    if seed is not None:
        page.fill("#seed", str(seed))


def fill(page: Any, action: str = "fill") -> str:
    """Click a button that draws; what the page says when it is done."""
    page.evaluate("document.getElementById('status').textContent = ''")
    page.click(f"[data-action={action}]")
    page.wait_for_selector(_DONE)
    return page.inner_text("#status")


def wait_until(page: Any, expression: str) -> None:
    """Wait until an expression is true in the page, whose policy forbids playwright's own way: it evaluates text."""
    end = time.monotonic() + _SECONDS
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"{expression} never became true"
        page.wait_for_timeout(20)


def place(page: Any, step: int, pitch: int, low: int = 55, high: int = 84, steps: int = 256) -> tuple[float, float]:
    """Where a step and a pitch are on the piano roll, in pixels of the window, before anybody scrolled.

    Args:
        page: a page with a piano roll.
        step: the step.
        pitch: the pitch.
        low: the lowest pitch that the roll shows first.
        high: the highest.
        steps: of the model.
    """
    box = page.locator("canvas.roll").bounding_box()
    keys, ruler, lane = 40 if box["width"] < 500 else 52, 26, 20
    width = max((box["width"] - keys) / steps, 9 if box["width"] < 700 else 11)
    row = min(max((box["height"] - lane - ruler) / max(high - low + 4, 24), 7), 18)
    top = (low + high) / 2 + (box["height"] - lane - ruler) / row / 2
    return box["x"] + keys + (step + 0.5) * width, box["y"] + ruler + (top - pitch + 0.5) * row


def drag(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Press the mouse at one place of the window and release it at another."""
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=6)
    page.mouse.up()
