import warnings

import pytest
import torch

from usd3._internal.compile import compiled


def test_compiling_does_not_advise_less_exact_products(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    advice = "TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled. Consider it"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(torch.sin)
        warnings.warn(advice, stacklevel=1)
        with pytest.raises(UserWarning, match="another"):
            warnings.warn("another", stacklevel=1)
