"""Augmentation against plain loops."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from usd3.kinds.image.augment import augmented, moved, turned


def some(n=6, height=5, width=7):
    return torch.randint(0, 256, (n, 3, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_moving_and_mirroring_is_a_crop_of_the_padded_image():
    images = some()
    down, right = torch.tensor([-3, 3, 0, 1, -2, 0]), torch.tensor([2, -3, 0, 3, -1, 0])
    mirrored = torch.tensor([True, False, True, True, False, False])
    found = moved(images, down, right, mirrored)
    assert found.dtype == torch.uint8
    for i, image in enumerate(images.numpy()):
        padded = np.pad(image, [(0, 0), (3, 3), (3, 3)], mode="reflect")
        crop = padded[:, 3 + down[i] : 8 + down[i], 3 + right[i] : 10 + right[i]]
        assert np.array_equal(found[i], crop[:, :, ::-1] if mirrored[i] else crop)


def test_draws_cover_every_place():
    torch.manual_seed(0)
    image = torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4).expand(400, 3, 4, 4)
    kinds = {tuple(x.flatten().tolist()) for x in augmented(image, pad=1)[:, 0]}
    assert len(kinds) == 3 * 3 * 2
    assert len({tuple(x.flatten().tolist()) for x in augmented(image, pad=0)[:, 0]}) == 2
    assert torch.equal(augmented(image, pad=0, flip=False), image)


def test_turning_is_rot90():
    images, quarters = some(4, 5, 5), torch.arange(4)
    for i, found in enumerate(turned(images, quarters)):
        assert torch.equal(found, images[i].rot90(i, (1, 2)))


def test_nothing_waits_and_too_far_is_refused():
    with FakeTensorMode():
        x = torch.zeros(4, 3, 8, 8)
        assert turned(augmented(x, 2), torch.zeros(4, dtype=torch.long)).shape == x.shape
    with pytest.raises(ValueError, match=r"pad = 5: expected an integer 0..4"):
        augmented(some(), pad=5)
