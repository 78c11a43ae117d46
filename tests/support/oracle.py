"""Brute force: full K x K matrices, full enumeration, float64, plain NumPy. Slow on purpose.

Nothing here is shared with the package, and nothing is simplified: transition matrices are multiplied out, posteriors
come from Bayes' rule, model transitions from the sum over all clean categories, rates from the reversed chain.
"""

import itertools
import math

import numpy as np

ALPHA_BAR = {
    "cosine": lambda t: math.cos((t + 0.008) / 1.008 * math.pi / 2) / math.cos(0.008 / 1.008 * math.pi / 2),
    "linear": lambda t: 1 - t,
    "exponential": lambda t: math.exp(0.5 * (1 - 10**t)),
    "constant": lambda t: math.exp(-5.0 * t),
}


def transition(alpha, m):
    """Q = alpha I + (1 - alpha) 1 m^T."""
    return alpha * np.eye(len(m)) + (1 - alpha) * np.outer(np.ones(len(m)), m)


def posterior(x_0, x_t, alpha_s, alpha_t, m):
    """q(x_s | x_t, x_0) by Bayes' rule."""
    to_s, s_to_t = transition(alpha_s, m), transition(alpha_t / alpha_s, m)
    joint = to_s[x_0] * s_to_t[:, x_t]
    return joint / joint.sum()


def backward(f, x_t, alpha_s, alpha_t, m):
    """p(x_s | x_t): the posterior averaged over the clean categories that can lead to x_t."""
    possible = transition(alpha_t, m)[:, x_t] > 0
    return sum(f[k] * posterior(k, x_t, alpha_s, alpha_t, m) for k in range(len(m)) if f[k] > 0 and possible[k])


def ratio(f, x_t, alpha, m):
    """g_z = sum_x0 q(z | x_0) / q(x_t | x_0) f(x_0)."""
    q = transition(alpha, m)
    return sum(f[k] * q[k] / q[k, x_t] for k in range(len(m)) if f[k] > 0 and q[k, x_t] > 0)


def rate_matrix(beta, m):
    return beta * (np.outer(np.ones(len(m)), m) - np.eye(len(m)))


def reverse_rate(f, x_t, alpha, beta, m):
    """rhat(z | x) = r(x | z) g_z for z != x, and 0 at x."""
    rates = rate_matrix(beta, m)[:, x_t] * ratio(f, x_t, alpha, m)
    rates[x_t] = 0
    return rates


def kl(q, p):
    return sum(a * (math.log(a) - math.log(b)) for a, b in zip(q, p) if a > 0)


def continuous_vlb(f, x_t, x_0, alpha, beta, m):
    """sum_{z != x} [rhat_model - rhat_true log(rhat_model) + constants that make it 0 at the truth]."""
    k = reverse_rate(np.eye(len(m))[x_0], x_t, alpha, beta, m)
    h = reverse_rate(f, x_t, alpha, beta, m)
    return sum(b - a + (a * math.log(a / b) if a > 0 else 0.0) for a, b in zip(k, h))


def softmax(logits):
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Joint:
    """A known distribution w over K^D objects under noise ms, one row per element."""

    def __init__(self, w, ms):
        self.w, self.ms, self.D, self.K = w, ms, w.ndim, w.shape[0]
        self.states = list(itertools.product(range(self.K), repeat=self.D))

    def forward_matrix(self, alpha):
        """q(x_t | x_0) over whole objects, [x_0, x_t]."""
        matrix = np.ones((1, 1))
        for m in self.ms:
            matrix = np.kron(matrix, transition(alpha, m))
        return matrix

    def marginal(self, alpha):
        """q_t over whole objects."""
        return self.w.reshape(-1) @ self.forward_matrix(alpha)

    def denoiser(self, alpha):
        """Exact p(x_0^d | x_t) for every object x_t: array (K^D, D, K); uniform where x_t is impossible."""
        joint = self.w.reshape(-1)[:, None] * self.forward_matrix(alpha)  # [x_0, x_t]
        f = np.einsum("xt,xdk->tdk", joint, np.eye(self.K)[self.states])
        total = f.sum(-1, keepdims=True)
        return np.where(total > 0, f / np.where(total > 0, total, 1), 1 / self.K)

    def reverse_generator(self, alpha, beta):
        """The rate matrix of the reversed chain over whole objects, from q_t itself."""
        q = self.marginal(alpha)
        forward = self.forward_generator(beta)
        reverse = np.where(q[:, None] > 0, forward.T * q[None, :] / np.where(q > 0, q, 1)[:, None], 0.0)
        np.fill_diagonal(reverse, 0)
        return reverse - np.diag(reverse.sum(1))

    def forward_generator(self, beta):
        n = len(self.states)
        matrix = np.zeros((n, n))
        for i, a in enumerate(self.states):
            for j, b in enumerate(self.states):
                moved = [d for d in range(self.D) if a[d] != b[d]]
                if len(moved) == 1:
                    matrix[i, j] = beta * self.ms[moved[0]][b[moved[0]]]
        return matrix - np.diag(matrix.sum(1))


def product_step(step_probs):
    """Independent steps of all elements as one matrix over objects: (K^D, D, K) -> (K^D, K^D)."""
    rows = step_probs[:, 0]
    for d in range(1, step_probs.shape[1]):
        rows = (rows[:, :, None] * step_probs[:, d][:, None, :]).reshape(len(rows), -1)
    return rows


def total_variation(p, q):
    return 0.5 * np.abs(p - q).sum()
