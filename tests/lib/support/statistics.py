"""Tests of distributions, at 0.001."""

import math

import numpy as np
from numpy.typing import NDArray

Z_0_999 = 3.0902
"""Quantile of the normal distribution."""


def chi_square_limit(freedom: int) -> float:
    """Quantile of chi-square at 0.999 (Wilson and Hilferty 1931; from 3 degrees on within half a per cent)."""
    spread = 2 / (9 * freedom)
    return float(freedom * (1 - spread + Z_0_999 * math.sqrt(spread)) ** 3)


def check_fit(seen: NDArray[np.int64], exact: NDArray[np.float64]) -> None:
    """Fails if counts do not fit probabilities: chi-square, rare cells put together; nothing where nothing can be.

    Args:
        seen: counts, any shape.
        exact: probabilities, same shape, sum 1.
    """
    seen, exact = seen.ravel(), exact.ravel()
    assert not seen[exact == 0].any(), "an excluded token was chosen"
    expected = exact * seen.sum()
    often = expected >= 10
    observed, wanted = seen[often].astype(float), expected[often]
    if (rest := expected[~often].sum()) > 0:
        observed, wanted = np.append(observed, seen[~often].sum()), np.append(wanted, rest)
    cells = len(wanted) - (rest < 1)  # a rest that nobody can see in so many samples tells nothing
    statistic = float(((observed[:cells] - wanted[:cells]) ** 2 / wanted[:cells]).sum())
    assert cells > 1 and statistic < chi_square_limit(cells - 1), f"chi-square {statistic:.1f} with {cells} cells"


def binomial_limit(trials: int, chance: float, risk: float) -> int:
    """Smallest m with P(X > m) < risk for X binomial."""
    tail, m = 0.0, trials
    while m >= 0:
        tail += math.comb(trials, m) * chance**m * (1 - chance) ** (trials - m)
        if tail >= risk:
            return m
        m -= 1
    return 0
