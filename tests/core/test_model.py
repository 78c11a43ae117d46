"""How a model is called, and what is seen through its wrappers."""

import pytest
import torch

import usd3
from usd3.core.model import (
    Cached,
    Denoiser,
    LastEstimate,
    Tempered,
    Wrapper,
    device_of,
    ignores_time,
    is_self_conditioned,
    keywords_of,
    nested_models,
)

K = 5


class Net(torch.nn.Module):
    """Logits that show which arguments came."""

    ignores_time = True
    self_conditioned = True

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x, t, given, pad=None, estimate=None):
        logits = torch.nn.functional.one_hot(x, K) * self.scale + given[..., None]
        return logits if estimate is None else logits + estimate


class Head(Wrapper):
    ignores_time = False


@pytest.mark.parametrize("wrap", [Wrapper, lambda m: Tempered(m, 2.0), lambda m: Cached(m, K)])
def test_a_wrapper_is_seen_through(wrap):
    net = Net()
    for model in (wrap(net), wrap(torch.compile(net, backend="eager")), Wrapper(wrap(net))):
        assert keywords_of(model) == ({"self", "x", "t", "x_t", "given", "pad", "estimate"} - {"self"}, False)
        assert ignores_time(model)
        assert is_self_conditioned(model)
        assert device_of(model) == torch.device("cpu")
        assert net in list(nested_models(model))


def test_a_wrapper_may_say_otherwise_and_hides_nothing_else():
    assert not ignores_time(Head(Net()))
    assert is_self_conditioned(Head(Net()))
    assert not ignores_time(Wrapper(lambda x, t: x))
    assert keywords_of(Wrapper(lambda x, t: x)) == ({"x_t", "x", "t"}, False)
    assert keywords_of(Wrapper(lambda x, t, **more: x)) == ({"x_t", "x", "t"}, True)


def test_the_masks_pass_through_a_wrapper():
    x, given = torch.tensor([[0, 1, 2]]), torch.tensor([[True, False, False]])
    plain, tempered = (Denoiser(model, K, given, None) for model in (Net(), Tempered(Net(), 2.0)))
    torch.testing.assert_close(tempered(x, torch.zeros(1)), plain(x, torch.zeros(1)) / 2)


def test_a_projection_is_formed_before_its_logits_are_divided():
    hidden, weight = torch.randn(1, 3, 4), torch.randn(K, 4)
    net = Tempered(lambda x, t: usd3.Projection(hidden, weight), 0.5)
    x = torch.zeros(1, 3, dtype=torch.long)
    torch.testing.assert_close(Denoiser(net, K, None, None)(x, torch.zeros(1)), 2 * hidden @ weight.T)


def test_a_cached_model_is_asked_for_the_objects_that_changed_with_their_masks():
    asked = []

    def net(x, t, given):
        asked.append((x.clone(), given.clone()))
        return torch.nn.functional.one_hot(x, K).float()

    given = torch.tensor([[True, False], [False, True], [False, False]])
    denoise, t = Denoiser(Cached(net, K), K, given, None), torch.zeros(3)
    x = torch.tensor([[0, 1], [2, 3], [4, 0]])
    denoise(x, t)
    x = x.clone()
    x[1, 0] = 4
    torch.testing.assert_close(denoise(x, t), torch.nn.functional.one_hot(x, K).float())
    denoise(x, t)
    assert len(asked) == 2
    assert torch.equal(asked[1][0], x[1:2])
    assert torch.equal(asked[1][1], given[1:2])


def test_the_last_estimate_is_zero_first_and_then_the_probabilities_of_the_call_before():
    seen = []

    def net(x, t, estimate):
        seen.append(estimate.clone())
        return torch.arange(K).float().expand(*x.shape, K)

    denoise, x = Denoiser(LastEstimate(net, K), K, None, None), torch.zeros(2, 3, dtype=torch.long)
    for _ in range(2):
        denoise(x, torch.zeros(2))
    assert not seen[0].any()
    torch.testing.assert_close(seen[1], torch.arange(K).float().softmax(-1).expand(2, 3, K))


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: Cached(m, K), lambda m: LastEstimate(m, K)])
@pytest.mark.parametrize(
    ("output", "error", "message"),
    [
        (torch.zeros(2, 3, K + 1), ValueError, r"model\(x_t, t\)\.shape = \(2, 3, 6\)"),
        (torch.zeros(2, 3, K, dtype=torch.long), TypeError, r"model\(x_t, t\) is a torch\.int64 tensor"),
        ((torch.zeros(2, 3, K),), TypeError, r"model\(x_t, t\) is a tuple"),
    ],
)
def test_a_wrong_output_is_refused(wrap, output, error, message):
    denoise = Denoiser(wrap(lambda x, t, **_: output), K, None, None)
    with pytest.raises(error, match=message):
        denoise(torch.zeros(2, 3, dtype=torch.long), torch.zeros(2))
