"""How a model is called, and what is seen through its wrappers."""

import pytest
import torch

import usd3
from usd3.core.model import (
    BoundKeywords,
    Cached,
    Denoiser,
    LastEstimate,
    Wrapper,
    bound_keywords,
    device_of,
    ignores_time,
    is_hollow,
    is_self_conditioned,
    keywords_of,
    nested_models,
    remembered,
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


@pytest.mark.parametrize("wrap", [Wrapper, lambda m: Cached(m, K)])
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
    plain, inside = (Denoiser(model, K, given, None) for model in (Net(), Wrapper(Net())))
    assert torch.equal(inside(x, torch.zeros(1)), plain(x, torch.zeros(1)))


def test_a_projection_is_formed_before_its_logits_are_adjusted():
    hidden, weight, seen = torch.randn(1, 3, 4), torch.randn(K, 4), []

    def adjust(logits, x_t, t):
        seen.append((x_t, t))
        return 2 * logits

    denoise = Denoiser(lambda x, t: usd3.Projection(hidden, weight), K, None, None, adjust)
    x, time = torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, dtype=torch.float64)
    torch.testing.assert_close(denoise(x, time), 2 * hidden @ weight.T)
    assert seen[0][0] is x
    assert seen[0][1].dtype == torch.get_default_dtype()
    wrong = Denoiser(lambda x, t: torch.zeros(1, 3, K), K, None, None, lambda logits, x_t, t: logits[..., 1:])
    with pytest.raises(ValueError, match=r"adjust\(logits, x_t, t\)\.shape = \(1, 3, 4\)"):
        wrong(x, time)


# ---- labels --------------------------------------------------------------------------------------------------------


def told(x_t, t, label=None, absent=None):
    """Logits that show the label of each object, and which elements are absent."""
    first = torch.zeros(len(x_t)) if label is None else label[:, 0].float()
    logits = first[:, None, None].expand(*x_t.shape, K).clone()
    return logits if absent is None else logits + 10.0 * absent[..., None]


def test_a_labelled_model_gets_its_labels_and_a_call_may_have_others():
    x, t, label = torch.zeros(3, 2, dtype=torch.long), torch.zeros(3), torch.tensor([[1], [2], [-1]])
    absent = torch.tensor([[True, False]] * 3)
    model = BoundKeywords(told, label, absent)
    assert model(x, t)[:, 1, 0].tolist() == [1, 2, -1]
    assert model(x, t)[:, 0, 0].tolist() == [11, 12, 9]
    assert model(x, t, label=torch.full((3, 1), 4))[:, 1, 0].tolist() == [4, 4, 4]  # as guidance asks
    assert bound_keywords(Wrapper(model)).keys() == {"label", "absent"}
    assert bound_keywords(BoundKeywords(BoundKeywords(told, label), label + 1))["label"].tolist() == [[2], [3], [0]]
    assert bound_keywords(told) == {}


def test_the_labels_of_changed_objects_reach_a_model_that_is_cached_inside():
    asked = []

    class Net(torch.nn.Module):
        ignores_time = True

        def forward(self, x_t, t, label):
            asked.append(label.tolist())
            return told(x_t, t, label)

    denoise = Denoiser(Cached(BoundKeywords(Net(), torch.tensor([[1], [2], [3]])), K), K, None, None)
    x = torch.zeros(3, 2, dtype=torch.long)
    denoise(x, torch.zeros(3))
    x = x.clone()
    x[1] = 1
    assert denoise(x, torch.zeros(3))[:, 0, 0].tolist() == [1, 2, 3]
    assert asked == [[[1], [2], [3]], [[2]]]


def test_what_a_model_remembers():
    class Timeless(torch.nn.Module):
        ignores_time = True

    class Hollow(Timeless):
        is_hollow, ignores_time, self_conditioned = True, False, True

    assert isinstance(remembered(Timeless(), K), Cached)
    assert isinstance(remembered(Hollow(), K), LastEstimate)
    assert remembered(told, K) is told
    assert is_hollow(Wrapper(Wrapper(Hollow())))
    assert not is_hollow(Timeless())


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
