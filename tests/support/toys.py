"""Toy distributions whose exact answers are known, and random logits."""

import itertools

import numpy as np
import torch

from support import oracle
from support.problems import D, K, data_categories

ALPHA = oracle.ALPHA_BAR["cosine"]


def random_logits(x, seed=0, scale=1.0):
    return scale * torch.randn(*x.shape, K, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rows_of(fn, x_t, *others):
    """fn(i, d, ...) for every element, as an array (n, D, ...)."""
    return np.array([[fn(i, d) for d in range(D)] for i in range(len(x_t))])


def known_joint(noise, ms, K=K, D=D, seed=1):
    """A random distribution over data categories, and the model that knows its exact posterior."""
    w = np.random.default_rng(seed).dirichlet(np.full(K**D, 0.4)).reshape((K,) * D)
    for d in range(D):
        keep = np.isin(np.arange(K), data_categories(noise, d))
        w = w * keep.reshape([-1 if e == d else 1 for e in range(D)])
    return oracle.Joint(w / w.sum(), ms)


def exact_model(joint, schedule, dtype=torch.float64):
    """model(x_t, t) -> log p(x_0 | x_t), exact, by enumeration."""
    tables = {}

    def model(x_t, t):
        flat = sum(x_t[:, d] * joint.K ** (joint.D - 1 - d) for d in range(joint.D))
        logits = torch.empty(*x_t.shape, joint.K, dtype=torch.float64)
        for time in t.unique().tolist():
            if time not in tables:
                f = joint.denoiser(float(schedule.alpha_bar(time)))
                tables[time] = torch.from_numpy(np.log(np.maximum(f, 1e-300)))
            at = t == time
            logits[at] = tables[time][flat[at]]
        return logits.to(dtype)

    return model


def enumerated_bound(d, joint, model, times):
    """E over x_0 ~ w of the bound of the sampler with these steps, by full enumeration of x_0 and x_t."""
    states = torch.tensor(joint.states)
    w = torch.from_numpy(joint.w.reshape(-1))
    total = float((w[:, None] * d.prior(states, times[0])).sum())
    for t, s in itertools.pairwise(times):
        q = torch.from_numpy(joint.forward_matrix(float(d.schedule.alpha_bar(t))))
        logits = model(states, torch.full((len(states),), t, dtype=torch.float64))
        for i, x_0 in enumerate(states):
            terms = d.loss_terms(logits, states, x_0.expand_as(states), t, s)
            total += float(w[i] * (q[i] * terms.vlb.sum(1)).sum())
    return total
