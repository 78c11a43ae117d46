"""One sentence each: the argument, the value seen, what was expected."""

import pytest
import torch

import usd3

K = 4
X = torch.tensor([[0, 1, 2], [3, 0, 1]])
LOGITS = torch.zeros(2, 3, K)
MODEL = lambda x, t: torch.zeros(*x.shape, K)
C = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
T = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), 10)
A = usd3.Diffusion(usd3.Absorbing(K), usd3.Cosine())
ONE = torch.tensor([True, False, False])

CASES = {
    # categories
    "too large": (lambda: C.q_sample(X + 2, 0.5), ValueError, r"x_0 contains 4: expected categories 0\.\.3"),
    "negative": (lambda: C.loss(MODEL, X - 1), ValueError, r"x_0 contains -1: expected categories 0\.\.3"),
    "list in a loss": (lambda: C.loss(MODEL, [[0, 1]]), TypeError, "x_0 is a list: expected an integer tensor"),
    "floats": (lambda: C.q_probs(X.float(), 0.5), TypeError, "x_0 is a torch.float32 tensor: expected an integer"),
    "booleans": (lambda: C.q_sample(X > 0, 0.5), TypeError, "x_0 is a torch.bool tensor"),
    "a list": (lambda: C.q_sample([[0, 1]], 0.5), TypeError, "x_0 is a list: expected an integer tensor"),
    "no batch": (lambda: C.q_sample(torch.tensor(1), 0.5), ValueError, r"x_0\.shape = \(\): expected \(B, N1"),
    "x_t range": (lambda: C.backward(LOGITS, X + 1, 0.5, 0.2), ValueError, "x_t contains 4"),
    "x_t shape": (lambda: C.posterior(X, X[:, :2], 0.5, 0), ValueError, r"x_t\.shape = \(2, 2\): expected that of x_0"),
    "mask in data": (
        lambda: A.loss(MODEL, X),
        ValueError,
        r"x_0 contains 3: expected data categories \(3 is the mask, which num_classes counts\)",
    ),
    "mask in given tokens": (
        lambda: A.sample(MODEL, (2, 3), 3, given=ONE.flip(0), given_tokens=torch.full((2, 3), 3)),
        ValueError,
        r"given_tokens contains 3: expected data categories \(3 is the mask",
    ),
    # times
    "t > 1": (lambda: C.q_sample(X, 1.5), ValueError, r"t contains 1\.5: expected numbers in \[0, 1\]"),
    "t < 0": (
        lambda: C.q_sample(X, torch.tensor([0.5, -0.5])),
        ValueError,
        r"t contains -0\.5: expected numbers in \[0, 1\]",
    ),
    "t NaN": (lambda: C.q_sample(X, float("nan")), ValueError, "t contains nan: expected"),
    "t = 0 in a loss": (
        lambda: C.loss_terms(LOGITS, X, X, 0.0),
        ValueError,
        r"t contains 0: expected numbers in \(0, 1\]",
    ),
    "step 0": (lambda: T.loss_terms(LOGITS, X, X, 0), ValueError, r"t contains 0: expected integers in \(0, 10\]"),
    "step 11": (
        lambda: T.q_sample(X, torch.tensor([1, 11])),
        ValueError,
        r"t contains 11: expected integers in \[0, 10\]",
    ),
    "half a step": (lambda: T.q_sample(X, 0.5), TypeError, r"t is a float: expected integers in \[0, 10\]"),
    "float steps": (
        lambda: T.q_sample(X, torch.tensor([1.0, 2.0])),
        TypeError,
        "t is a torch.float32 tensor: expected",
    ),
    "t shape": (lambda: C.q_sample(X, torch.zeros(3)), ValueError, r"t\.shape = \(3,\): expected \(\) or \(2,\)"),
    "s = t": (lambda: C.backward(LOGITS, X, 0.5, 0.5), ValueError, r"s contains 0\.5: expected less than t"),
    "s > t": (lambda: T.posterior(X, X, 3, 4), ValueError, "s contains 4: expected less than t"),
    "s < 0": (lambda: C.posterior(X, X, 0.3, -0.1), ValueError, r"s contains -0\.1: expected numbers in \[0, 1\]"),
    "grid not ending at 0": (
        lambda: C.sample(MODEL, (2, 3), [1.0, 0.5]),
        ValueError,
        r"time grid = \[1\.0, 0\.5\]: expected .* the last of them 0",
    ),
    "grid rising": (lambda: C.bound(MODEL, X, times=[1.0, 0.2, 0.4, 0.0]), ValueError, "expected decreasing times"),
    "grid above 1": (
        lambda: C.bound(MODEL, X, times=[2.0, 0.0]),
        ValueError,
        r"time grid = \[2\.0, 0\.0\]: expected a first time in \(0, 1\]",
    ),
    "grid of one": (lambda: C.sample(MODEL, (2, 3), [0.0]), ValueError, "expected at least two times"),
    "grid between steps": (lambda: T.sample(MODEL, (2, 3), [10, 2.5, 0]), ValueError, "expected integers in discrete"),
    "no steps": (lambda: C.sample(MODEL, (2, 3), 0), ValueError, "num_steps = 0: expected an integer >= 1"),
    # logits and models
    "logits shape": (
        lambda: C.backward(LOGITS[..., :3], X, 0.5, 0),
        ValueError,
        r"logits\.shape = \(2, 3, 3\): expected",
    ),
    "logits integer": (
        lambda: C.backward(LOGITS.long(), X, 0.5, 0),
        TypeError,
        "logits is a torch.int64 tensor: expected",
    ),
    "model shape": (
        lambda: C.loss(lambda x, t: torch.zeros(2, 3), X),
        ValueError,
        r"model\(x_t, t\)\.shape = \(2, 3\): expected \(2, 3, 4\)",
    ),
    "model output": (lambda: C.sample(lambda x, t: None, (2, 3), 2), TypeError, r"model\(x_t, t\) is a NoneType"),
    "no model": (lambda: C.loss("net", X), TypeError, "model is a str: expected a callable"),
    # masks
    "given not boolean": (
        lambda: C.loss(MODEL, X, given=X),
        TypeError,
        "given is a torch.int64 tensor: expected a bool",
    ),
    "pad not boolean": (lambda: C.bound(MODEL, X, pad=[1]), TypeError, "pad is a list: expected a boolean tensor"),
    "given shape": (
        lambda: C.q_sample(X, 0.5, given=torch.ones(5, dtype=torch.bool)),
        ValueError,
        r"given\.shape = \(5,\): expected a shape that broadcasts to \(2, 3\)",
    ),
    "given without tokens": (
        lambda: C.sample(MODEL, (2, 3), 2, given=ONE),
        ValueError,
        "given_tokens = None: expected",
    ),
    "tokens without given": (
        lambda: C.sample(MODEL, (2, 3), 2, given_tokens=X),
        ValueError,
        "given = None: expected a mask that says which of given_tokens to keep",
    ),
    "tokens shape": (
        lambda: C.sample(MODEL, (2, 3), 2, given=ONE, given_tokens=X[:, :2]),
        ValueError,
        r"given_tokens\.shape = \(2, 2\): expected a shape that broadcasts to \(2, 3\)",
    ),
    "tokens range": (
        lambda: C.sample(MODEL, (2, 3), 2, given=ONE, given_tokens=X + 7),
        ValueError,
        "given_tokens contains 7",
    ),
    # the rest
    "noise": (lambda: usd3.Diffusion(5, usd3.Cosine()), TypeError, "noise is a int: expected a usd3 noise"),
    "schedule": (lambda: usd3.Diffusion(usd3.Uniform(3), "cosine"), TypeError, "schedule is a str: expected a usd3"),
    "a class": (
        lambda: usd3.Diffusion(usd3.Uniform(3), usd3.Cosine),
        TypeError,
        "schedule is the class Cosine: expected",
    ),
    "an array": (lambda: C.loss(MODEL, X.numpy()), TypeError, "x_0 is a ndarray: expected an integer tensor"),
    "num_steps": (
        lambda: usd3.Diffusion(usd3.Uniform(3), usd3.Cosine(), 0),
        ValueError,
        "num_steps = 0: expected an integer >= 1",
    ),
    "num_steps type": (lambda: usd3.Diffusion(usd3.Uniform(3), usd3.Cosine(), 1.5), TypeError, "num_steps is a float"),
    "t_min": (lambda: usd3.Diffusion(usd3.Uniform(3), usd3.Cosine(), t_min=0), ValueError, "t_min = 0: expected"),
    "objective": (lambda: C.loss(MODEL, X, "usd4"), ValueError, "objective = usd4: expected one of"),
    "objective type": (lambda: C.loss(MODEL, X, 3), TypeError, "objective is a int: expected a name or an Objective"),
    "l2 in continuous time": (lambda: C.loss(MODEL, X, usd3.Objective(l2=1)), ValueError, "no l2 and no kl2 in cont"),
    "max_beta in discrete time": (
        lambda: T.loss(MODEL, X, usd3.Objective(vlb=1, max_beta=1)),
        ValueError,
        "expected no max_beta in discrete time",
    ),
    "empty objective": (lambda: usd3.Objective(), ValueError, "at least one positive"),
    "negative weight": (lambda: usd3.Objective(vlb=1, ce=-1), ValueError, "expected none negative"),
    "bad max_beta": (lambda: usd3.Objective(vlb=1, max_beta=0), ValueError, "max_beta = 0: expected"),
    "samples": (lambda: C.bound(MODEL, X, num_samples=0), ValueError, "num_samples = 0: expected an integer >= 1"),
    "samples and times": (lambda: C.bound(MODEL, X, 3, [1.0, 0.0]), ValueError, "num_samples = 3: expected None where"),
    "sampler": (lambda: C.sample(MODEL, (2, 3), 2, sampler="magic"), ValueError, "sampler = magic: expected one of"),
    "corrector": (lambda: C.sample(MODEL, (2, 3), 2, corrector=5), TypeError, "corrector is a int: expected None, a"),
    "corrector steps": (lambda: usd3.Corrector(0), ValueError, "num_steps = 0: expected"),
    "corrector size": (
        lambda: usd3.Corrector(step_size="big"),
        ValueError,
        "step_size = big: expected a number > 0 or",
    ),
    "corrector last": (lambda: usd3.Corrector(last=0), ValueError, "last = 0: expected an integer >= 1"),
    "no such time": (lambda: C.q_sample(X, "noon"), TypeError, "t is a str: expected numbers"),
    "fraction of steps": (lambda: C.sample(MODEL, (2, 3), 2.5), TypeError, "num_steps is a float: expected an integer"),
    "fraction of samples": (lambda: C.bound(MODEL, X, 2.5), TypeError, "num_samples is a float: expected an integer"),
    "fraction of moves": (lambda: usd3.Corrector(2.5), TypeError, "num_steps is a float: expected an integer >= 1"),
    "no size": (lambda: usd3.Corrector(step_size=None), TypeError, "step_size is a NoneType: expected a number"),
    "t_min type": (lambda: usd3.Diffusion(usd3.Uniform(3), usd3.Cosine(), t_min="x"), TypeError, "t_min is a str"),
    "shape a number": (lambda: C.sample(MODEL, 3, 2), TypeError, "shape is a int: expected a tuple"),
    "shape negative": (lambda: C.sample(MODEL, (-3, 2), 2), ValueError, "shape = -3: expected an integer >= 0"),
    "no objects": (lambda: C.loss(MODEL, X[:0]), ValueError, r"x_0\.shape = \(0, 3\): expected at least one object"),
    "no objects for two passes": (
        lambda: usd3.two_pass_loss(C, MODEL, X[:0]),
        ValueError,
        "expected at least one object",
    ),
    "no objects in part": (lambda: usd3.partial_time_loss(C, MODEL, X[:0]), ValueError, "expected at least one object"),
    "no shape": (lambda: C.sample(MODEL, (), 2), ValueError, r"shape = \(\): expected \(B, N1"),
    "elements and noise": (
        lambda: usd3.Diffusion(usd3.Marginal(torch.full((5, 4), 0.25)), usd3.Cosine()).loss(MODEL, X),
        ValueError,
        r"noise\.probs\.shape = \(5, 4\): expected",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_in_one_sentence(name):
    call, error, message = CASES[name]
    with pytest.raises(error, match=message) as seen:
        call()
    assert "\n" not in str(seen.value)


def test_one_synchronisation_per_call(monkeypatch):
    """All value checks of a call are answered together: one `tolist` of the stacked answers, none on a quiet device."""
    from usd3._internal.checks import Checks

    asked = []
    monkeypatch.setattr(Checks, "raise_early", lambda self, device: None)  # as on a GPU
    original = Checks.raise_first

    def counted(self):
        asked.append(len(self._pending))
        return original(self)

    monkeypatch.setattr(Checks, "raise_first", counted)
    C.loss(MODEL, X)
    assert [n for n in asked if n] == [2]  # categories, logits: drawn times need no check
    asked.clear()
    C.sample(MODEL, (2, 3), 4)
    assert len([n for n in asked if n]) == 1
    asked.clear()
    C.bound(MODEL, X, 4)
    assert len([n for n in asked if n]) == 1
    with pytest.raises(ValueError, match="x_0 contains 6"):
        C.loss(MODEL, X + 6)


# ---- a support ------------------------------------------------------------------------------------------------------

SUPPORT = torch.tensor([[True, True, False, True], [False, True, False, False]])
OUTSIDE = r"x_0 contains 2: expected data categories \(those of the support of their elements\)"


@pytest.mark.parametrize("noise", [usd3.Uniform(4), usd3.Absorbing(4)])
def test_data_outside_the_support_are_refused(noise):
    d, model = usd3.Diffusion(noise, usd3.Cosine(), support=SUPPORT), lambda x, t, **_: torch.zeros(*x.shape, 4)
    bad, pad = torch.tensor([[0, 2]]), torch.tensor([False, True])
    for call in (
        lambda: d.loss(model, bad),
        lambda: d.bound(model, bad, 2),
        lambda: d.q_sample(bad, 0.5),
        lambda: d.q_probs(bad, 0.5),
        lambda: d.prior(bad),
        lambda: d.posterior(bad, torch.tensor([[0, 1]]), 0.5, 0.2),
        lambda: d.loss_terms(torch.zeros(1, 2, 4), torch.tensor([[0, 1]]), bad, 0.5),
    ):
        with pytest.raises(ValueError, match=OUTSIDE):
            call()
    with pytest.raises(ValueError, match="given_tokens contains 2: expected data categories"):
        d.sample(model, (1, 2), 2, given=pad, given_tokens=bad)
    assert d.loss(model, bad, pad=pad).loss.isfinite()  # padding may be anything
    assert d.sample(model, (1, 2), 2, pad=pad, given_tokens=bad)[0, 1] == 2


def test_what_is_neither_data_nor_noise_is_refused_as_noisy():
    logits, x_t = torch.zeros(1, 2, 4), torch.tensor([[2, 1]])
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), support=SUPPORT)
    for call in (
        lambda: d.backward(logits, x_t, 0.5, 0.2),
        lambda: d.draw(logits, x_t, 0.5, 0.2),
        lambda: d.rate(logits, x_t, 0.5),
        lambda: d.loss_from_logits(logits, x_t, torch.tensor([[0, 1]]), 0.5),
    ):
        with pytest.raises(ValueError, match="x_t contains 2: expected categories of the support, or of the noise"):
            call()
    masked = usd3.Diffusion(usd3.Absorbing(4), usd3.Cosine(), support=SUPPORT)
    assert masked.draw(logits, torch.tensor([[3, 3]]), 1.0, 0.0)[0, 1] == 1  # the only category of the second element


def test_a_support_that_does_not_fit_the_objects_is_refused():
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), support=SUPPORT)
    with pytest.raises(ValueError, match=r"support\.shape = \(2, 4\): expected \(\.\.\., K\) that broadcasts to"):
        d.q_sample(torch.zeros(5, 3, dtype=torch.long), 0.5)
