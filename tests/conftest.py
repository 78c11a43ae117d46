import os
import sys

import pytest

from support.tracing import OursAlone, spare_libraries

if sys.gettrace():  # before anything large is imported
    spare_libraries()

import torch

if not torch.cuda.is_available():  # Triton's kernels run in its interpreter; it looks once, when it is imported
    os.environ.setdefault("TRITON_INTERPRET", "1")

from support.interpreter import quicken
from support.problems import FUSED, IMPLEMENTATIONS, NOISES, WITH_SUPPORT

if os.environ.get("TRITON_INTERPRET") == "1":
    quicken()
torch.set_num_threads(1)  # the tensors are tiny: more threads only wait for each other


def pytest_configure(config):
    if sys.gettrace():
        config.pluginmanager.register(OursAlone())


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session", autouse=True)
def bach_cache(tmp_path_factory):
    """Where the melodies of Bach are kept once they are read: one folder for all processes, and never the user's."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("USD3_CACHE", str(folder))
        yield folder


@pytest.fixture(params=[*NOISES, *WITH_SUPPORT])
def noise(request):
    """(noise, m of each element as NumPy rows)."""
    make, rows = (NOISES | WITH_SUPPORT)[request.param]
    return make(), rows


@pytest.fixture(params=IMPLEMENTATIONS)
def impl(request):
    return request.param


@pytest.fixture(params=FUSED)
def fused(request):
    return request.param


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)
