import pytest

from support.studio import client, small_kinds, small_model, studio_in


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with a small model of each kind, by the name of the kind."""
    place = tmp_path_factory.mktemp("studio")
    for name, kind in small_kinds(place).items():
        small_model(place / name, kind)
    return place


@pytest.fixture(scope="module")
def studio(folder):
    made = studio_in(folder)
    yield made
    made.close()


@pytest.fixture
def browser(studio):
    return client(studio)
