"""A schedule as a user would write it."""

import usd3


class Square(usd3.Schedule):
    """alpha_bar(t) = 1 - t^2, with one formula to be broken by a subclass."""

    def kept(self, t, s=None):
        return (1 - t * t) / (1 if s is None else 1 - s * s)

    def lost(self, t, s=None):
        return t * t if s is None else (t - s) * (t + s) / (1 - s * s)

    def decay(self, t):
        return 2 * t

    def time(self, alpha_bar):
        return (1 - alpha_bar).sqrt()
