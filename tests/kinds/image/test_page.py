"""Images in the studio: tokens that a VQGAN shows."""

import io

import numpy as np
import pytest
from PIL import Image

from support.studio import small_kinds
from usd3.kinds.image.page import _MOST_PIXELS
from usd3.kinds.rendering import Request


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return small_kinds(tmp_path_factory.mktemp("images"))["image_tokens"].page(Request(device="cpu"))


def test_pictures_are_what_the_vqgan_decodes(page):
    objects = page.from_page([np.full((4, 4), 3).tolist(), page.empty()])
    pictures = [np.asarray(Image.open(io.BytesIO(picture))) for picture in page.pictures(objects)]
    expected = page.renderer.vqgan.decode_images(objects.tokens).permute(0, 2, 3, 1).numpy()
    assert np.array_equal(np.stack(pictures), expected)


def test_an_image_becomes_tokens_of_its_middle(page, tmp_path):
    Image.new("RGB", (64, 32), "blue").save(tmp_path / "a.png")
    tokens, notes = page.read(tmp_path / "a.png")
    assert np.array(tokens).shape == (4, 4)
    assert notes == ["the middle square of the image"]


def test_an_image_of_absurd_size_is_refused_before_it_is_unpacked(page, tmp_path):
    side = int(_MOST_PIXELS**0.5) + 100
    Image.new("1", (side, side)).save(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size < 10**5
    with pytest.raises(ValueError, match="pixels"):
        page.read(tmp_path / "a.png")
