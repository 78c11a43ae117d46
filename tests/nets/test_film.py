import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from usd3.nets import FilmTransformer


def size(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize(
    ("arguments", "parameters"),
    [
        ({"num_classes": 129}, 3_852_161),
        ({"num_classes": 129, "dim": 1024, "depth": 6, "heads": 16, "mlp": 4096}, 94_218_881),
        ({"num_classes": 129, "dim": 128, "mlp": 2048, "output_blocks": 2}, 7_008_769),
        ({"num_classes": 512, "dim": 768, "depth": 12, "heads": 16, "mlp": 3072}, 102_779_392),
    ],
    ids=["small", "piano", "tauldr", "image"],
)
def test_the_papers_sizes(arguments, parameters):
    with torch.device("meta"):
        assert size(FilmTransformer(**arguments)) == parameters


def reference(net: FilmTransformer, x: torch.Tensor, t: torch.Tensor, heads: int) -> torch.Tensor:
    """The network written out once more: one-hot input, nn.MultiheadAttention, loops for the sinusoids."""
    K, d = net.num_classes, net.embed.out_features
    h = net.embed(F.one_hot(x, K).to(net.embed.weight.dtype))
    for position in range(x.shape[1]):
        for i in range(0, d, 2):
            h[:, position, i] += math.sin(position / 10000 ** (i / d))
            h[:, position, i + 1] += math.cos(position / 10000 ** (i / d))
    half = net.time_dim // 2
    w = torch.tensor([10000 ** (-i / (half - 1)) for i in range(half)], dtype=t.dtype)
    time = net.time(torch.cat([torch.sin(1000 * t[:, None] * w), torch.cos(1000 * t[:, None] * w)], 1))
    for layer in net.layers:
        attention = nn.MultiheadAttention(d, heads, batch_first=True, dtype=h.dtype).eval()
        attention.in_proj_weight, attention.in_proj_bias = layer.qkv.weight, layer.qkv.bias
        attention.out_proj.weight, attention.out_proj.bias = layer.project.weight, layer.project.bias
        gamma, delta = layer.film.pair(time)[:, None].chunk(2, -1)
        h = gamma * layer.norm_attention(h + attention(h, h, h)[0]) + delta
        h = gamma * layer.norm_mlp(h + layer.narrow(F.relu(layer.widen(h)))) + delta
    for block in net.outputs:
        gamma, delta = block.film.pair(time)[:, None].chunk(2, -1)
        h = gamma * block.norm(h + block.narrow(F.relu(block.widen(h)))) + delta
    return net.logits(h) + F.one_hot(x, K)


def test_it_computes_what_the_paper_describes():
    torch.manual_seed(0)
    net = FilmTransformer(7, dim=16, depth=2, heads=4, mlp=24, time_dim=8, output_blocks=2).double().eval()
    x, t = torch.randint(7, (3, 5)), torch.rand(3, dtype=torch.float64)
    torch.testing.assert_close(net(x, t), reference(net, x, t, heads=4))


def test_initial_weights_are_those_of_multihead_attention():
    torch.manual_seed(0)
    layer = FilmTransformer(7, dim=256, depth=1, heads=4, mlp=8).layers[0]
    assert layer.qkv.weight.abs().max() <= math.sqrt(6 / (256 + 3 * 256))
    assert layer.qkv.weight.std().item() == pytest.approx(math.sqrt(2 / (256 + 3 * 256)), rel=0.02)
    assert not layer.qkv.bias.any()
    assert not layer.project.bias.any()


def test_padding_does_not_reach_the_other_elements():
    torch.manual_seed(0)
    net = FilmTransformer(7, dim=16, depth=2, heads=4, mlp=24, time_dim=8).eval()
    x, t = torch.randint(7, (2, 6)), torch.rand(2)
    pad = torch.arange(6).expand(2, -1) >= 4
    other = torch.where(pad, (x + 1) % 7, x)
    torch.testing.assert_close(net(x, t, pad=pad)[:, :4], net(other, t, pad=pad)[:, :4])
    assert not torch.allclose(net(x, t)[:, :4], net(other, t)[:, :4])


def test_dropout_acts_in_training_alone():
    torch.manual_seed(0)
    net = FilmTransformer(7, dim=16, depth=1, heads=4, mlp=24, time_dim=8, dropout=0.5)
    x, t = torch.randint(7, (2, 6)), torch.rand(2)
    assert not torch.equal(net(x, t), net(x, t))
    net.eval()
    assert torch.equal(net(x, t), net(x, t))


@pytest.mark.parametrize("arguments", [{"dim": 30, "heads": 4}, {"dropout": 1.0}, {"num_classes": 1}])
def test_bad_sizes_are_refused(arguments):
    with pytest.raises(ValueError, match="expected"):
        FilmTransformer(**{"num_classes": 7} | arguments)
