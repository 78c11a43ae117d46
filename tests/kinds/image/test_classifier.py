"""The classifier and the discriminator: shapes, and what belongs to what."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from usd3.kinds.image.classifier import Classifier
from usd3.kinds.image.discriminator import Discriminator


def test_maps_features_and_logits_belong_together():
    torch.manual_seed(0)
    net = Classifier(5, width=4, blocks=2).eval()
    x = torch.randn(3, 3, 8, 12)
    maps = net.maps(x)
    assert [tuple(part.shape) for part in maps] == [(3, 4, 8, 12), (3, 8, 4, 6), (3, 16, 2, 3)]
    assert torch.equal(net.features(x), maps[-1].mean((2, 3)))
    assert torch.equal(net(x), net.head(net.features(x)))
    assert net(x).shape == (3, 5)
    assert net.labelled
    assert not Classifier(4, 4, labelled=False).labelled
    assert Classifier(**net.config).config == net.config


def test_the_default_is_small():
    with FakeTensorMode():
        weights = sum(p.numel() for p in Classifier().parameters())
    assert 1e6 < weights < 3e6


def test_the_discriminator_sees_each_image_alone():
    torch.manual_seed(0)
    net, x = Discriminator(4), torch.randn(4, 3, 16, 16)
    assert net(x).shape == (4, 1, 4, 4)
    assert torch.allclose(net(x), torch.cat([net(x[:1]), net(x[1:])]), atol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Classifier(1), "num_classes = 1"),
        (lambda: Classifier(width=0), "width = 0"),
        (lambda: Classifier(blocks=0), "blocks = 0"),
        (lambda: Discriminator(0), "width = 0"),
    ],
)
def test_bad_sizes_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
