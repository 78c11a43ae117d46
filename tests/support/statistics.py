"""The one statistic the tests need."""

import mpmath
import numpy as np


def chi_square_p_value(observed, expected):
    """P(a chi-square at least this large); 0 where something impossible was observed. Cells below 5 are pooled."""
    observed, expected = np.asarray(observed, float), np.asarray(expected, float)
    if observed[expected == 0].sum() > 0:
        return 0.0
    keep = expected >= 5
    o, e = observed[keep], expected[keep]
    rest = expected[~keep].sum()
    if rest > 0:
        o, e = np.append(o, observed[~keep].sum()), np.append(e, rest)
    if len(o) < 2:
        return 1.0
    return float(mpmath.gammainc((len(o) - 1) / 2, ((o - e) ** 2 / e).sum() / 2, regularized=True))
