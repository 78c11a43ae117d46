import pickle

import numpy as np
import pytest
import torch

import usd3
from support.problems import D, K, LargestTensor
from support.statistics import chi_square_p_value
from usd3.core.options import DiffusionConfig
from usd3.methods import MDLM, SEDD
from usd3.methods.transitions import Transitions

N = 200_000
FALSE_ALARM = 1e-6  # of each statistical test below


def counts(x, k=K):
    return torch.bincount(x.flatten(), minlength=k).double().numpy()


def test_m_at_x_is_the_probability_of_each_category(noise):
    noise, rows = noise
    x = torch.arange(K)[:, None].expand(K, D)
    np.testing.assert_allclose(noise.at(x).numpy(), rows.T, atol=1e-15)


def test_draws_follow_m(noise, generator):
    noise, rows = noise
    drawn = noise.sample(torch.zeros(N, D, dtype=torch.long), generator)
    for d in range(D):
        assert chi_square_p_value(counts(drawn[:, d]), N * rows[d]) > FALSE_ALARM


def test_draws_of_others_follow_m_without_x(noise, generator):
    noise, rows = noise
    for x in range(K):
        drawn = noise.sample_other(torch.full((N, D), x), generator)
        for d in range(D):
            rest = np.where(np.arange(K) == x, 0, rows[d])
            if rest.sum() > 0:
                assert chi_square_p_value(counts(drawn[:, d]), N * rest / rest.sum()) > FALSE_ALARM


def test_elements_of_any_shape_and_inner_broadcast(generator):
    probs = torch.tensor([[[1.0, 0.0, 0.0]], [[0.0, 0.5, 0.5]]])  # (2, 1, K): one m per row of a 2 x 5 object
    noise = usd3.Marginal(probs)
    x = noise.sample(torch.zeros(1000, 2, 5, dtype=torch.long), generator)
    assert (x[:, 0] == 0).all()
    assert set(x[:, 1].unique().tolist()) == {1, 2}
    assert noise.at(x).shape == x.shape
    with pytest.raises(ValueError, match=r"noise\.probs\.shape"):
        noise.require_fits(torch.Size([1000, 3, 5]))


@pytest.mark.parametrize(
    ("own", "shape", "fits"),
    [
        ((2, 3), (7, 2, 3), True),  # one m for each element of a 2 x 3 object
        ((2, 1), (7, 2, 3), True),
        ((3,), (7, 2, 3), True),
        ((7, 2, 3), (7, 2, 3), True),
        ((2, 3), (7, 3, 2), False),
        ((2, 3), (7, 2, 1), False),  # the objects would grow
        ((2, 3), (3,), False),
    ],
)
def test_noise_fits_the_shapes_that_it_broadcasts_to(own, shape, fits):
    noise = usd3.Marginal(torch.full((*own, 4), 0.25))
    if fits:
        noise.require_fits(torch.Size(shape))
    else:
        with pytest.raises(ValueError, match=r"noise\.probs\.shape = .*: expected \(\.\.\., K\) that broadcasts to"):
            noise.require_fits(torch.Size(shape))


@pytest.mark.parametrize(("own", "rows"), [((), 1), ((1,), 1), ((3,), 3), ((2, 1), 6), ((2, 3), 6)])
def test_the_table_of_kernels_has_no_more_rows_than_needed(own, rows):
    """One row where all elements of an object have the same m, else one for each of its 2 x 3 elements."""
    table = usd3.Marginal(torch.full((*own, 4), 0.25)).tables(torch.zeros(5, 2, 3, dtype=torch.long))[3]
    assert table is not None
    assert table.shape == (rows, 4)


@pytest.mark.parametrize("rare", [1e-6, 1e-9])
def test_rare_categories_come_as_often_as_they_should(rare):
    """The interval of a rare category in the CDF has its width, so no uniform of 53 bits misses or doubles it."""
    probs = torch.full((50257,), (1 - rare) / 50256, dtype=torch.float64)
    probs[20000] = rare
    noise = usd3.Marginal(probs)
    cdf = noise.cdf(torch.device("cpu"))
    assert float(cdf[20000] - cdf[19999]) == pytest.approx(rare, rel=1e-6)


def test_from_data_counts_and_smooths():
    x = np.array([[0, 1], [0, 2], [0, 1]])
    np.testing.assert_allclose(usd3.Marginal.from_data(x, smoothing=0).probs, [0.5, 1 / 3, 1 / 6])
    np.testing.assert_allclose(usd3.Marginal.from_data(x, 4).probs, [0.4, 0.3, 0.2, 0.1])
    each = usd3.Marginal.from_data(x, 3, smoothing=0, per_element=True)
    np.testing.assert_allclose(each.probs, [[1, 0, 0], [0, 2 / 3, 1 / 3]])
    assert usd3.Marginal.from_data(torch.zeros(5, 2, 3, dtype=torch.uint8), 4, per_element=True).probs.shape == (
        2,
        3,
        4,
    )


def test_probabilities_slightly_off_are_renormalised():
    probs = usd3.Marginal([0.5, 0.50005]).probs
    assert float(probs.sum()) == pytest.approx(1, abs=1e-15)


def test_shared_noise_never_holds_a_table_per_element():
    """16 x 1024 elements of 512 categories: no tensor has more than a few numbers per element."""
    x = torch.zeros(16, 1024, dtype=torch.long)
    for noise in (usd3.Marginal(np.full(512, 1 / 512)), usd3.Uniform(512), usd3.Absorbing(512)):
        d = usd3.Diffusion(noise, usd3.Cosine())
        with LargestTensor() as largest:
            noise.sample_other(noise.sample(x))
            d.posterior(x, d.q_sample(x, 0.5), 0.5, 0.2).sample()
        assert largest.bytes <= 4 * 8 * x.numel()
    each = usd3.Marginal(np.full((1024, 512), 1 / 512))
    with LargestTensor() as largest:
        each.sample_other(each.sample(x))
    assert largest.bytes <= 8 * 1024 * 512


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: usd3.Uniform(1), ValueError, "num_classes = 1: expected an integer >= 2"),
        (lambda: usd3.Uniform(2.5), TypeError, "num_classes is a float: expected"),
        (lambda: usd3.Absorbing(4, mask=4), ValueError, r"mask = 4: expected an integer 0\.\.3"),
        (lambda: usd3.Marginal([0.5, 0.6]), ValueError, r"probs\.sum\(-1\) = 1\.1: expected 1 within 1e-4"),
        (lambda: usd3.Marginal([1.5, -0.5]), ValueError, r"probs = -0\.5: expected no negative"),
        (lambda: usd3.Marginal([float("nan"), 1.0]), ValueError, "probs = nan: expected no negative and no NaN"),
        (lambda: usd3.Marginal(0.5), ValueError, r"probs\.shape = \(\): expected"),
        (lambda: usd3.Marginal([[0.5, 0.5], [0.9, 0.2]]), ValueError, r"probs\.sum\(-1\) = 1\.1"),
        (lambda: usd3.Marginal.from_data([[0, 7]], 5), ValueError, r"x contains 7: expected categories 0\.\.4"),
        (lambda: usd3.Marginal.from_data([[0.5]]), TypeError, "x is a torch.float32 tensor: expected an integer"),
        (lambda: usd3.Marginal.from_data(np.zeros((0, 3), int)), ValueError, r"x\.shape = \(0, 3\): expected at least"),
        (lambda: usd3.Marginal.from_data([[0, 1]], smoothing=-1), ValueError, "smoothing = -1: expected"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_noise_of_ones_own_is_checked_like_any_other():
    class Half(usd3.Noise):
        def __init__(self):
            super().__init__([0.5, 0.5])

    assert Half().num_classes == 2
    with pytest.raises(ValueError, match=r"probs\.sum\(-1\) = 6\.0: expected 1"):
        usd3.Noise([1, 2, 3])


def test_numpy_integers_count_and_every_integer_dtype_is_data():
    assert usd3.Uniform(np.int64(4)).num_classes == 4
    assert usd3.Absorbing(np.int32(4), mask=np.int8(0)).mask == 0
    for dtype in (np.uint8, np.uint16, np.int32, np.uint32, np.uint64):
        np.testing.assert_allclose(usd3.Marginal.from_data(np.array([[0, 1]], dtype), smoothing=0).probs, [0.5, 0.5])


def test_copies_for_devices_are_neither_inference_tensors_nor_pickled():
    noise = usd3.Marginal([0.2, 0.8])
    with torch.inference_mode():
        noise.sample_other(noise.sample(torch.zeros(2, 2, dtype=torch.long)))
        noise.probs_on(torch.device("cpu"), torch.float32)
    assert not noise.probs_on(torch.device("cpu"), torch.float32).is_inference()
    assert not noise.cdf(torch.device("cpu")).is_inference()
    copy = pickle.loads(pickle.dumps(noise))
    assert copy._copies == {}
    assert copy._cdfs == {}
    assert torch.equal(copy.probs, noise.probs)


def test_repr():
    assert repr(usd3.Uniform(5)) == "Uniform(5)"
    assert repr(usd3.Absorbing(5)) == "Absorbing(5, mask=4)"


@pytest.mark.parametrize("shape", [(K,), (1, K), (D, K), (2, 1, K), (2, D, K), (1, 2, D, K)])
def test_a_table_has_the_m_of_every_element_in_row_major_order(shape):
    m = torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(-1)
    x = torch.randint(K, (5, 2, D), generator=torch.Generator().manual_seed(1))
    support = m > m.min()
    for noise, expected in ((usd3.Marginal(m), (m, None)), (usd3.Absorbing(K, 0).within(support), (None, support))):
        for table, whole in zip(noise.tables(x)[3:], expected):
            if whole is None:
                assert table is None
                continue
            whole = whole & (torch.arange(K) != 0) if whole.dtype == torch.bool else whole
            assert table.is_contiguous()
            rows = table[torch.arange(x.numel()) % len(table)].reshape(*x.shape, K)
            torch.testing.assert_close(rows, whole.expand(*x.shape, K), rtol=1e-15, atol=0)


def test_noise_with_a_closed_form_has_no_table():
    assert usd3.Uniform(K).tables(torch.zeros(1, 2, dtype=torch.long)) == (K, -1, False, None, None)
    assert usd3.Absorbing(K, 0).tables(torch.zeros(1, 2, dtype=torch.long)) == (K, 0, True, None, None)


def test_the_smallest_probability_is_that_of_a_category_that_can_be_noise():
    assert usd3.Marginal([0.5, 0.0, 0.3, 0.2]).smallest == 0.2


# ---- a support ------------------------------------------------------------------------------------------------------


def test_noise_lives_within_the_support():
    """Uniform noise is uniform there; other noise keeps its ratios; the mask takes all of absorbing noise."""
    support = torch.tensor([[True, False, True, True], [False, True, False, False]])
    uniform = usd3.Uniform(4).within(support)
    torch.testing.assert_close(uniform.probs, support / support.sum(-1, keepdim=True).double())
    marginal = usd3.Marginal([0.1, 0.2, 0.3, 0.4]).within(support)
    torch.testing.assert_close(marginal.probs[0], torch.tensor([0.125, 0, 0.375, 0.5], dtype=torch.float64))
    absorbing = usd3.Absorbing(4, mask=2).within(support)
    assert absorbing.probs.tolist() == [0, 0, 1, 0]
    assert absorbing.support.tolist() == [[True, False, False, True], [False, True, False, False]]
    x = torch.zeros(20_000, 2, dtype=torch.long)
    for noise in (uniform, marginal):
        drawn = noise.sample(x, torch.Generator().manual_seed(0))
        assert (drawn[:, 1] == 1).all()
        counts = torch.bincount(drawn[:, 0], minlength=4)
        assert counts[1] == 0
        assert chi_square_p_value(counts[[0, 2, 3]], len(x) * noise.probs[0, [0, 2, 3]].numpy()) > 1e-6
    assert repr(uniform) == "Uniform(4) within a support"


def test_noise_at_a_mask_stays_although_the_mask_is_no_data():
    class Masked(usd3.Noise):
        mask = 2

    noise = Masked(torch.tensor([0.1, 0.2, 0.7])).within(torch.tensor([True, False, True]))
    torch.testing.assert_close(noise.probs, torch.tensor([0.125, 0.0, 0.875], dtype=torch.float64))
    assert noise.support.tolist() == [True, False, False]


def test_zeros_outside_the_support_are_no_zeros_of_the_noise():
    """So a schedule need not end at 0 for the prior to be finite."""
    support = torch.tensor([True, True, False])
    assert not usd3.Uniform(3).within(support).has_zeros
    assert usd3.Marginal([0.5, 0.0, 0.5]).within(support).has_zeros
    assert usd3.Absorbing(3).within(support).has_zeros
    d = usd3.Diffusion(usd3.Uniform(3), usd3.Constant(1.0), support=support)
    assert d.prior(torch.tensor([[0, 1]])).isfinite().all()


@pytest.mark.parametrize(
    ("support", "message"),
    [
        ([[1, 0, 1]], r"support is a torch\.int64 tensor: expected booleans, \(\.\.\., K\)"),
        ([[True, False]], r"support\.shape = \(1, 2\): expected \(\.\.\., 3\)"),
        ([[True] * 3, [False] * 3], "support = an element with 0 categories: expected at least one category"),
    ],
)
def test_a_support_that_cannot_be_is_refused(support, message):
    with pytest.raises((TypeError, ValueError), match=message):
        usd3.Uniform(3).within(torch.tensor(support))


def test_a_support_without_noise_or_with_the_mask_alone_is_refused():
    with pytest.raises(ValueError, match=r"noise\.probs = 0 within the support: expected some noise"):
        usd3.Marginal([0.5, 0.5, 0.0]).within(torch.tensor([False, False, True]))
    with pytest.raises(ValueError, match="an element with 0 categories"):
        usd3.Absorbing(3, mask=0).within(torch.tensor([True, False, False]))


def test_mixed_noise_has_its_share_of_the_mask_and_the_rest_is_uniform():
    noise = usd3.Mixed(5, uniform=0.2)
    np.testing.assert_allclose(noise.probs, [0.05, 0.05, 0.05, 0.05, 0.8])
    assert (noise.mask, noise.is_absorbing, noise.has_zeros) == (4, False, False)
    assert repr(noise) == "Mixed(5, uniform=0.2, mask=4)"
    np.testing.assert_allclose(usd3.Mixed(3, 0.5, mask=0).probs, [0.5, 0.25, 0.25])


def test_within_a_support_each_element_of_mixed_noise_keeps_its_mask():
    noise = usd3.Mixed(4, 0.3).within([[True, True, True, False], [False, True, False, True]])
    np.testing.assert_allclose(noise.probs, [[0.1, 0.1, 0.1, 0.7], [0, 0.3, 0, 0.7]])
    assert noise.support.tolist() == [[True, True, True, False], [False, True, False, False]]
    assert not noise.has_zeros


@pytest.mark.parametrize("uniform", [0.0, 1.0, -0.1, float("nan")])
def test_the_share_of_uniform_noise_is_between_0_and_1(uniform):
    with pytest.raises(ValueError, match="uniform"):
        usd3.Mixed(4, uniform)
    with pytest.raises(ValueError, match=r"diffusion\.uniform"):
        DiffusionConfig("mixed", uniform=uniform)


def test_no_data_have_the_mask_of_mixed_noise():
    d = usd3.Diffusion(usd3.Mixed(4), usd3.Cosine())
    with pytest.raises(ValueError, match="3 is the mask"):
        d.q_sample(torch.tensor([[0, 3]]), 0.5)


def test_methods_of_absorbing_noise_refuse_mixed_noise():
    d = usd3.Diffusion(usd3.Mixed(4), usd3.Linear())
    with pytest.raises(ValueError, match="absorbing noise for MDLM"):
        MDLM(d)
    with pytest.raises(ValueError, match="masks would be left"):
        SEDD(d, denoise=False)
    with pytest.raises(ValueError, match="absorbing noise for it"):
        Transitions.named("absorbing", usd3.Diffusion(usd3.Mixed(4), usd3.Linear(), 4))
    with pytest.raises(ValueError, match="first_hitting"):
        d.sample(lambda x, t: torch.zeros(*x.shape, 4), (1, 2), 4, sampler="first_hitting")
