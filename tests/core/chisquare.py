"""Pearson's chi-square, for checks by counting; the tail by Wilson and Hilferty's cube root (good to three digits)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.floating]


def tail(chi2: float, dof: int) -> float:
    """P(X >= chi2) for X chi-square with `dof` degrees of freedom."""
    spread = 2.0 / (9.0 * dof)
    z = ((chi2 / dof) ** (1.0 / 3.0) - (1.0 - spread)) / math.sqrt(spread)
    return 0.5 * math.erfc(z / math.sqrt(2.0))


def fit(counts: Counts, probs: Counts) -> float:
    """p-value of the rows of `counts` under the laws in the rows of `probs`; what is impossible must not occur."""
    counts, probs = np.atleast_2d(counts), np.atleast_2d(probs)
    assert not counts[probs == 0.0].any()
    expected = counts.sum(axis=1, keepdims=True) * probs
    used = expected > 0.0
    chi2 = float(((counts - expected)[used] ** 2 / expected[used]).sum())
    return tail(chi2, int(used.sum() - used.any(axis=1).sum()))


def same(a: Counts, b: Counts) -> float:
    """p-value of two tables of counts coming from the same laws, row by row."""
    a, b = np.atleast_2d(a), np.atleast_2d(b)
    rows_a, rows_b = a.sum(axis=1, keepdims=True), b.sum(axis=1, keepdims=True)
    used = (a + b > 0) & (rows_a > 0) & (rows_b > 0)
    weight = np.sqrt(rows_b / np.maximum(rows_a, 1))
    chi2 = float((((weight * a - b / weight) ** 2) / np.maximum(a + b, 1))[used].sum())
    return tail(chi2, int(used.sum() - used.any(axis=1).sum()))
