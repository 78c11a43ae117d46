"""What a user installs: the versions that are pinned, and what the source distribution holds."""

import re
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from support.places import ROOT

PINNED = {
    canonicalize_name(name): Version(version)
    for name, version in re.findall(r"^([\w.-]+)==([\w.]+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
}


def needed(name: str, extras: tuple[str, ...], found: set[str]) -> set[str]:
    """All that a package needs here, by name, itself included."""
    found.add(canonicalize_name(name))
    for text in requires(name) or []:
        wanted = Requirement(text)
        applies = wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras))
        if applies and canonicalize_name(wanted.name) not in found:
            needed(wanted.name, tuple(wanted.extras), found)
    return found


def test_everything_that_is_installed_is_pinned():
    assert needed("usd3", ("music", "test"), set()) - set(PINNED) == {"usd3"}


def test_what_packages_want_of_each_other_fits_the_pins():
    for name in needed("usd3", ("music", "test"), set()):
        for text in requires(name) or []:
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                pinned = PINNED.get(canonicalize_name(wanted.name))
                assert pinned is None or wanted.specifier.contains(pinned), f"{name} wants {text}"


def test_triton_is_the_one_that_torch_wants():
    """Builds of torch for GPUs want one version; those for CPUs, as in CI, do not say which."""
    of_torch = {Version("2.13.0"): Version("3.7.1")}  # from the metadata of its wheels on PyPI
    assert PINNED["triton"] == of_torch[PINNED["torch"]]


def test_the_source_distribution_can_be_installed_and_tested(tmp_path):
    pytest.importorskip("setuptools")
    copy = tmp_path / "usd3"
    shutil.copytree(
        ROOT, copy, ignore=shutil.ignore_patterns(".*", "runs", "*.egg-info", "__pycache__", "build", "dist")
    )
    build = "from setuptools import build_meta; build_meta.build_sdist('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True, timeout=120)
    (file,) = (copy / "dist").glob("*.tar.gz")
    with tarfile.open(file) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    ours = {
        str(path.relative_to(ROOT)) for place in ("tests", "docs", "examples") for path in ROOT.glob(f"{place}/**/*.*")
    }
    ours = {name for name in ours if "__pycache__" not in name}
    assert ours | {"constraints.txt", "Makefile", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"} <= inside
    assert {
        f"src/usd3/pipeline/models/bach/{name}" for name in ("config.json", "model.safetensors", "README.md")
    } <= inside
