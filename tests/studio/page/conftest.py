"""The studio's page in a real browser. Without one, these tests are skipped, and say so."""

import pytest

from support.browser import Tabs, without_browser
from support.studio import TOKEN, served, studio_in


@pytest.fixture(scope="session")
def chromium():
    if reason := without_browser():
        pytest.skip(reason)
    with Tabs.opened() as browser:
        yield browser


@pytest.fixture(scope="session")
def port(folder):
    with served(studio_in(folder)) as number:
        yield number


@pytest.fixture
def careless(chromium, port):
    """Tabs in which something is meant to go wrong."""
    made = Tabs(chromium, f"http://127.0.0.1:{port}/?token={TOKEN}")
    yield made
    made.close()


@pytest.fixture
def tabs(careless, port):
    """Tabs of the studio. At the end nothing may have gone wrong in them, and nobody else have been asked."""
    yield careless
    careless.close()
    assert careless.problems == []
    assert careless.hosts <= {f"127.0.0.1:{port}", ""}
