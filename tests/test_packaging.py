"""What a user installs: the versions that are pinned, and what the source distribution holds."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import usd3
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


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the source distribution and the wheel."""
    pytest.importorskip("setuptools")
    copy = tmp_path_factory.mktemp("packaging") / "usd3"
    shutil.copytree(
        ROOT, copy, ignore=shutil.ignore_patterns(".*", "runs", "*.egg-info", "__pycache__", "build", "dist")
    )
    build = "from setuptools import build_meta as build; build.build_sdist('dist'); build.build_wheel('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True, timeout=120)
    return copy / "dist"


@pytest.mark.xdist_group("packaging")
def test_the_source_distribution_can_be_installed_and_tested(built):
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    places = ("tests", "docs", "examples", "paper", "benchmarks")
    ours = {str(path.relative_to(ROOT)) for place in places for path in ROOT.glob(f"{place}/**/*.*")}
    ours = {name for name in ours if "__pycache__" not in name}
    assert ours | {"constraints.txt", "Makefile", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"} <= inside
    files = ("config.json", "model.safetensors", "README.md")
    assert {f"src/usd3/pipeline/models/{model}/{name}" for model in usd3.list_models() for name in files} <= inside


@pytest.mark.xdist_group("packaging")
def test_the_wheel_is_the_package_alone(built):
    """What regenerates the paper's tables and what measures need a checkout, and are no part of it."""
    (file,) = built.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "usd3").rglob("*.py")}
    assert {name for name in inside if name.endswith(".py")} == modules
    sources = {f"usd3/kernels/{path.name}" for path in (ROOT / "src/usd3/kernels").glob("cpp_*.[ch]*")}
    assert len(sources) > 1
    assert sources <= inside  # the user's compiler builds them
    assert all(name.startswith("usd3/") for name in inside)
    assert not [name for name in inside if "usd3_paper" in name or name.startswith("usd3/paper")]
    assert {f"usd3/pipeline/models/{model}/model.safetensors" for model in usd3.list_models()} <= inside


@pytest.mark.xdist_group("packaging")
def test_usd3_paper_of_a_wheel_asks_for_a_checkout_and_runs_no_code_of_the_current_folder(built, tmp_path):
    (file,) = built.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(tmp_path / "site-packages")
    for strange in (tmp_path / "paper" / "usd3_paper", tmp_path / "usd3_paper"):
        strange.mkdir(parents=True)
        (strange / "__init__.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    calls = "main(['--help']), main(['paper', '--help']), main(['paper', 'list'])"
    code = f"import sys; from usd3.cli.main import main; sys.exit([{calls}] != [0, 0, 1])"
    places = {"PYTHONPATH": os.pathsep.join([str(tmp_path / "site-packages"), str(tmp_path)])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | places, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "usage: usd3 paper list | show NAME" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("usd3 paper: error: usd3 paper needs a checkout of the repository")
    assert line.endswith("clone the repository and run `pip install --editable .` in it")
    assert not (tmp_path / "ran").exists()
