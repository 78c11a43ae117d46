import numpy as np
import pytest
import torch

from usd3.kinds.image.source import ImageSource
from usd3.kinds.image.tokens import load_image_tokens, write_image_tokens
from usd3.kinds.options import DataConfig

SOURCE = ImageSource(vqgan="runs/vqgan", images="pictures", flips=True, fingerprint="0123456789abcdef")


def tokens(count: int) -> torch.Tensor:
    return torch.randint(512, (count, 8, 8), generator=torch.Generator().manual_seed(count))


def test_what_is_written_is_read(tmp_path):
    file = tmp_path / "tokens.npz"
    write_image_tokens(file, tokens(5), tokens(3), 512, SOURCE)
    found = load_image_tokens(file)
    assert torch.equal(found.train.tokens.long(), tokens(5))
    assert torch.equal(found.test.tokens.long(), tokens(3))
    assert (found.num_classes, found.shape, found.kind.source, found.name) == (512, (8, 8), SOURCE, "tokens")


def test_a_recipe_reads_them_scrambled_too(tmp_path):
    file = tmp_path / "tokens.npz"
    write_image_tokens(file, tokens(5), tokens(3), 512, SOURCE)
    found = DataConfig(source="image_tokens", path=str(file), scramble=1).load()
    assert found.kind.source == SOURCE
    assert torch.equal(found.decoded(found.test.tokens), tokens(3))
    assert not torch.equal(found.test.tokens.long(), tokens(3))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"train": np.zeros((2, 4, 4), int)}, "expected a file of image tokens"),
        ({"about": np.array("{}")}, "about cannot be read"),
        ({"about": np.array('{"num_classes": 1, "vqgan": "a", "images": "b"}')}, "about cannot be read"),
        ({"about": np.array('{"num_classes": 1000000000, "vqgan": "a", "images": "b"}')}, "about cannot be read"),
        ({"train": np.zeros((2, 4, 4))}, r"\[train\].dtype = float64: expected integers"),
        ({"test": np.zeros((2, 16), int)}, r"\[test\].shape = \(2, 16\)"),
        ({"test": np.full((2, 4, 4), 9)}, "token of test = 9: expected categories 0..7"),
    ],
)
def test_other_files_are_refused(tmp_path, arrays, message):
    whole = {
        "train": np.zeros((2, 4, 4), int),
        "test": np.zeros((2, 4, 4), int),
        "about": np.array('{"num_classes": 8, "vqgan": "a", "images": "b"}'),
    }
    file = tmp_path / "tokens.npz"
    np.savez(file, **(arrays if "expected a file" in message else whole | arrays))
    with pytest.raises(ValueError, match=message):
        load_image_tokens(file)


def test_files_without_a_fingerprint_are_read(tmp_path):
    split = np.zeros((2, 4, 4), int)
    about = np.array('{"num_classes": 8, "vqgan": "a", "images": "b"}')
    np.savez(tmp_path / "old.npz", train=split, test=split, about=about)
    source = load_image_tokens(tmp_path / "old.npz").kind.source
    assert source == ImageSource("a", "b", False, None)
    source.require_same_vqgan(SOURCE, "data")
    with pytest.raises(ValueError, match=r"data = tokens of the VQGAN c \(1\): expected those of runs/vqgan \(0123"):
        SOURCE.require_same_vqgan(ImageSource("c", "b", False, "1"), "data")


def test_a_path_is_needed():
    with pytest.raises(ValueError, match="a file that usd3 encode wrote"):
        DataConfig(source="image_tokens").load()
