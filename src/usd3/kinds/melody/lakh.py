"""Melodies of the Lakh piano rolls, from a folder in their published form: scrambled, with the key."""

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from usd3._internal.checks import require
from usd3.kinds.array import read_tokens, sequences
from usd3.kinds.dataset import Dataset
from usd3.kinds.melody.kind import Melody

__all__ = ["load_lakh"]


def load_lakh(folder: str | os.PathLike[str]) -> Dataset:
    """The data in a folder with train.npy and test.npy (N, L), and descramble_key.txt, K = 129 numbers.

    The tokens stay scrambled. key[token] is the original category, a pitch or a rest; the key becomes `decode`.
    """
    folder = Path(folder)
    decode = _read_key(folder / "descramble_key.txt")
    train, test = (sequences(read_tokens(folder / f"{name}.npy"), len(decode), name) for name in ("train", "test"))
    kind = Melody(len(decode), train.shape)
    return Dataset("lakh", len(decode), train, test, decode, kind)


def _read_key(path: Path) -> Tensor:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected the original category of each token")
    if not path.read_text(encoding="utf-8").strip():
        raise ValueError(f"{path}: empty; expected the original category of each token")
    try:
        key = np.loadtxt(path).flatten()
    except ValueError as error:
        raise ValueError(f"{path}: not a list of numbers ({error})") from None
    is_permutation = np.array_equal(np.sort(key), np.arange(len(key)))
    require(is_permutation, str(path), key.tolist(), f"{len(key)} distinct numbers 0..{len(key) - 1}")
    return torch.from_numpy(key.astype(np.int64))
