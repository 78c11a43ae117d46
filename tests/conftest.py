import os

import pytest
import torch

if not torch.cuda.is_available():  # Triton's kernels run in its interpreter; it looks once, when it is imported
    os.environ.setdefault("TRITON_INTERPRET", "1")

from support.problems import FUSED, IMPLEMENTATIONS, NOISES

torch.set_num_threads(1)  # the tensors are tiny: more threads only wait for each other


@pytest.fixture(params=NOISES)
def noise(request):
    """(noise, m of each element as NumPy rows)."""
    make, rows = NOISES[request.param]
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
