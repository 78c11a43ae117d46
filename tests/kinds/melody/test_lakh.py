import numpy as np
import pytest
import torch

from usd3.kinds.melody.lakh import load_lakh

KEY = np.random.default_rng(0).permutation(129)


@pytest.fixture
def folder(tmp_path):
    for seed, name in enumerate(("train", "test")):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(seed).integers(0, 129, (6 - seed, 16)))
    np.savetxt(tmp_path / "descramble_key.txt", KEY)
    return tmp_path


def test_tokens_stay_scrambled_and_decode_by_the_key(folder):
    dataset = load_lakh(folder)
    stored = np.load(folder / "test.npy")
    assert (dataset.num_classes, dataset.kind.name, len(dataset.train), len(dataset.test)) == (129, "melody", 6, 5)
    assert np.array_equal(dataset.test.tokens, stored)
    assert np.array_equal(dataset.decoded(dataset.test.tokens), KEY[stored])
    assert torch.equal(dataset.encoded(dataset.decoded(dataset.test.tokens)), dataset.test.tokens.long())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\n".join(["0", *map(str, range(128))]), "expected 129 distinct numbers"),
        ("0 1 2.5", "expected 3 distinct numbers"),
        ("0 1 two", "not a list of numbers"),
        ("0 1 nan", "expected 3 distinct numbers"),
        ("", "empty"),
        (" ".join(map(str, range(130))), "num_classes = 130: expected 129"),
    ],
)
def test_a_key_that_is_no_permutation_is_refused(folder, content, message):
    (folder / "descramble_key.txt").write_text(content)
    with pytest.raises(ValueError, match=message):
        load_lakh(folder)


def test_tokens_beyond_the_key_are_refused(folder):
    np.save(folder / "test.npy", np.full((2, 16), 129))
    with pytest.raises(ValueError, match=r"token of test = 129: expected categories 0\.\.128"):
        load_lakh(folder)


@pytest.mark.parametrize("name", ["train.npy", "test.npy", "descramble_key.txt"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        load_lakh(folder)
