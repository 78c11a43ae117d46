"""The masked network: what it computes, where, and in how many parts. Its hollowness is in test_hollow_transformer."""

import pytest
import torch

from support.small_nets import SIZES, K, L, T, X, small
from usd3.nets import MaskedTransformer


def test_it_hides_one_element_at_a_time():
    """Written out with one object and one element per call of the encoder."""
    net = small(MaskedTransformer)
    pad, given = X > 5, X < 2
    logits = net(X, T.double(), pad=pad, given=given)
    angles = 1000 * T.double()[:, None] * 10000.0 ** (-torch.arange(8, dtype=torch.float64) / 7)
    for b in range(3):
        time = torch.cat([angles[b].sin(), angles[b].cos()])
        for d in range(L):
            ids = X[b].clone()
            ids[d] = K
            tokens = net.embed(ids) + given[b, :, None] * net.given
            h = net.encoder(
                torch.cat([time[None], tokens])[None], torch.cat([torch.tensor([True]), ~pad[b]])[None, None]
            )
            torch.testing.assert_close(logits[b, d], net.readout(h[:, d + 1 : d + 2], time[None])[0, 0])


def test_it_answers_only_where_it_is_asked():
    net = small(MaskedTransformer)
    at = torch.tensor([[0, 3], [5, 5], [2, 1]])
    whole = net(X, T)
    assert net(X, T, at=at).shape == (3, 2, K)
    torch.testing.assert_close(net(X, T, at=at), whole.gather(1, at[..., None].expand(-1, -1, K)))
    shaped = net(X.reshape(3, 2, 3), T, at=at)
    torch.testing.assert_close(shaped, net(X, T, at=at))


@pytest.mark.parametrize("chunk", [1, 4, 7, 18, 100])
def test_parts_change_neither_logits_nor_gradients(chunk):
    nets = [small(MaskedTransformer, chunk=size) for size in (None, chunk)]
    seen = []
    for net in nets:
        logits = net(X, T, pad=X > 5, given=X < 2)
        logits.square().sum().backward()
        seen.append([logits.detach(), *(p.grad for p in net.parameters())])
    for a, b in zip(*seen):
        torch.testing.assert_close(a, b)


def test_parts_drop_the_same_twice():
    """With dropout the second computation of a part repeats the first: the gradient is that of the logits returned."""
    net = small(MaskedTransformer, dropout=0.4, chunk=5).train()
    weight = net.readout.logits.bias
    torch.manual_seed(1)
    loss = net(X, T).square().sum()
    loss.backward()
    torch.manual_seed(1)
    with torch.no_grad():
        expected = 2 * net(X, T).sum((0, 1))  # the derivative by the bias
    torch.testing.assert_close(weight.grad, expected)


def test_bad_chunks_are_refused():
    with pytest.raises(ValueError, match="chunk = 0: expected an integer >= 1"):
        MaskedTransformer(**SIZES, chunk=0)
