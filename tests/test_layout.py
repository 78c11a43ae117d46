"""The tree of tests mirrors the tree of the package."""

import pytest

from support.mirror import ABOUT_MORE, ELSEWHERE, PACKAGES, files_of_tests
from support.places import ROOT

PACKAGE, TESTS = ROOT / "src" / "usd3", ROOT / "tests"


def modules(package):
    return [path.relative_to(PACKAGE).as_posix() for path in sorted((PACKAGE / package).rglob("*.py"))]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_has_its_tests(package):
    for module in modules(package):
        if "def " in (PACKAGE / module).read_text():
            assert files_of_tests(module, TESTS), f"{module} has no tests of its name, nor in tests/support/mirror.py"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_of_tests_has_its_module(package):
    named = {name for names in ELSEWHERE.values() for name in names}
    mirrored = {name for module in modules(package) for name in files_of_tests(module, TESTS)}
    for path in (TESTS / package).rglob("test_*.py"):
        name = path.relative_to(TESTS).as_posix()
        assert name in mirrored | named | set(ABOUT_MORE), f"{name} mirrors no module of {package}"


def test_the_lists_name_what_exists():
    for module, names in ELSEWHERE.items():
        assert (PACKAGE / module).is_file(), module
        for name in names:
            assert (TESTS / name).is_file(), name
    for name in ABOUT_MORE:
        assert (TESTS / name).is_file(), name
