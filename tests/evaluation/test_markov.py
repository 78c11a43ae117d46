import pytest
import torch

from usd3.evaluation.markov import MarkovChain


def test_transitions_are_counted():
    chain = MarkovChain(3).fit(torch.tensor([[0, 1, 0, 2], [0, 1, 1, 1]]))
    torch.testing.assert_close(chain.transition[0], torch.tensor([0, 2 / 3, 1 / 3], dtype=torch.float64))
    torch.testing.assert_close(chain.transition[1], torch.tensor([1 / 3, 2 / 3, 0], dtype=torch.float64))
    torch.testing.assert_close(chain.marginal, torch.tensor([3 / 8, 4 / 8, 1 / 8], dtype=torch.float64))


def test_transitions_into_padding_are_not_counted():
    tokens = torch.tensor([[0, 1, 0, 0]], dtype=torch.uint8)
    chain = MarkovChain(2).fit(tokens, pad=torch.tensor([[False, False, True, True]]))
    assert chain.transition[0].tolist() == [0, 1]
    assert chain.marginal.tolist() == [0.5, 0.5]
    assert chain.transition[1].tolist() == [0.5, 0.5]  # never followed: the marginal


def test_smoothing_is_added_to_every_count():
    chain = MarkovChain(2).fit(torch.tensor([[0, 1, 1, 1]]), smoothing=1)
    torch.testing.assert_close(chain.transition, torch.tensor([[1 / 3, 2 / 3], [1 / 4, 3 / 4]], dtype=torch.float64))


def test_a_continuation_keeps_the_prefix_and_follows_certain_transitions():
    chain = MarkovChain(4).fit(torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3]]))
    prefix = torch.tensor([[2, 0], [3, 3]], dtype=torch.uint8)
    assert chain.extend(prefix, 6).tolist() == [[2, 0, 1, 2, 3, 0], [3, 3, 0, 1, 2, 3]]
    assert chain.extend(prefix, 2).tolist() == prefix.tolist()


def test_draws_come_as_often_as_the_transition_says(generator):
    chain = MarkovChain(2).fit(torch.tensor([[0, 0, 0, 0, 1, 0, 0, 0, 0, 1]]))
    drawn = chain.extend(torch.zeros(20_000, 1, dtype=torch.long), 2, generator)[:, 1]
    assert drawn.dtype == torch.long
    assert abs(float(drawn.double().mean()) - 0.25) < 5 * (0.25 * 0.75 / 20_000) ** 0.5


def test_an_empty_prefix_starts_from_the_marginal(generator):
    chain = MarkovChain(3).fit(torch.tensor([[1, 2, 1, 2]]))
    drawn = chain.extend(torch.zeros(1000, 0, dtype=torch.long), 2, generator)
    assert set(map(tuple, drawn.tolist())) == {(1, 2), (2, 1)}


def test_a_continuation_depends_on_the_generator_alone():
    chain = MarkovChain(5).fit(torch.arange(100).reshape(10, 10) % 5, smoothing=1)
    prefix = torch.zeros(4, 1, dtype=torch.long)
    a, b, c = (chain.extend(prefix, 20, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_bad_input_is_refused():
    chain = MarkovChain(3)
    with pytest.raises(RuntimeError, match="call fit first"):
        chain.extend(torch.zeros(1, 1, dtype=torch.long), 3)
    with pytest.raises(ValueError, match=r"tokens contains 3: expected categories 0\.\.2"):
        chain.fit(torch.tensor([[0, 3]]))
    with pytest.raises(ValueError, match=r"tokens\.shape = \(2,\)"):
        chain.fit(torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="no padding"):
        chain.fit(torch.tensor([[0, 1]]), pad=torch.tensor([[True, True]]))
    chain.fit(torch.tensor([[0, 1]]))
    with pytest.raises(ValueError, match="length = 1: expected an integer >= 2"):
        chain.extend(torch.tensor([[0, 1]]), 1)
