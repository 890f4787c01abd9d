"""Pearson's chi-square: how far counts are from a law, or two tables of counts from each other.

The tail is the incomplete gamma function by its power series (Abramowitz and Stegun, Handbook of Mathematical
Functions, 6.5.29) and, further out, by its continued fraction (6.5.31) with the method of Lentz (1976). Knows nothing
about tokens or how anything was drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.floating] | npt.NDArray[np.integer]
Probs = npt.NDArray[np.floating]
Path = tuple[int, ...]

LEAST = 10.0
"""Counts to be expected in a cell, so that the statistic follows the chi-square law; twice the usual rule of thumb,
since sums over many cells of five are somewhat too wide."""
_TINY = 1e-300
_EPSILON = 1e-15


@dataclass(frozen=True)
class ChiSquare:
    """The statistic over `cells`, `dof` of which are free."""

    chi2: float
    dof: int
    cells: int

    @property
    def p_value(self) -> float:
        """Probability of a statistic at least this large when the laws are equal."""
        return tail(self.chi2, self.dof)

    def critical(self, confidence: float) -> float:
        """The value that equal laws stay below with this probability."""
        return critical(confidence, self.dof)


def combined(tests: Iterable[ChiSquare]) -> ChiSquare:
    """Independent tests as one: statistics and degrees of freedom add up."""
    all_of = list(tests)
    return ChiSquare(sum(test.chi2 for test in all_of), sum(test.dof for test in all_of), sum(t.cells for t in all_of))


def fit(counts: Counts, probs: Probs) -> ChiSquare:
    """(n,) counts against the (n,) probabilities they should have; cells that expect little are counted as one."""
    expected = counts.sum() * probs / probs.sum()
    cells = _grouped(expected, LEAST)
    return _against([float(counts[cell].sum()) for cell in cells], [float(expected[cell].sum()) for cell in cells])


def same(left: Mapping[Path, int], right: Mapping[Path, int]) -> ChiSquare:
    """Two samples of paths: do they come from one law? Rare paths are pooled."""
    cells = pooled(left, right)
    mine, theirs = sum(left.values()), sum(right.values())
    if not mine or not theirs:
        return ChiSquare(0.0, 0, len(cells))
    weight = math.sqrt(theirs / mine)
    chi2 = sum((weight * a - b / weight) ** 2 / (a + b) for a, b in cells.values())
    return ChiSquare(chi2, max(len(cells) - 1, 0), len(cells))


def pooled(
    left: Mapping[Path, int], right: Mapping[Path, int], least: float = 2 * LEAST
) -> dict[Path, tuple[int, int]]:
    """Path -> counts (left, right); paths with fewer than `least` in both together join the path one step shorter.

    So what is rare after a common token stays apart from what is rare after another, and () holds the rest. Only the
    sum of the two counts decides, which says nothing about their difference.
    """
    cells = {path: (left.get(path, 0), right.get(path, 0)) for path in sorted(left.keys() | right.keys())}
    for length in range(max(map(len, cells), default=0), 0, -1):
        for path in [path for path, counts in cells.items() if len(path) == length and sum(counts) < least]:
            _merge(cells, path, path[:-1])
    if len(cells) > 1 and sum(cells.get((), (least, 0))) < least:
        smallest = min((path for path in cells if path), key=lambda path: sum(cells[path]))
        _merge(cells, smallest, ())
    return cells


def tail(chi2: float, dof: int) -> float:
    """P(X >= chi2) for X chi-square with `dof` degrees of freedom; 1 for none."""
    return 1.0 if dof == 0 else upper_gamma(dof / 2.0, chi2 / 2.0)


def critical(confidence: float, dof: int) -> float:
    """The chi2 with P(X < chi2) = confidence, by halving an interval."""
    if dof == 0:
        return 0.0
    low, high = 0.0, 2.0 * dof + 10.0
    while tail(high, dof) > 1.0 - confidence:
        low, high = high, 2.0 * high
    while high - low > 1e-10 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if tail(middle, dof) > 1.0 - confidence else (low, middle)
    return high


def upper_gamma(a: float, x: float) -> float:
    """The regularised upper incomplete gamma function Q(a, x), for a > 0 and x >= 0."""
    if x <= 0.0:
        return 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    # Each expansion where it is the one that converges quickly.
    return 1.0 - scale * _series(a, x) if x < a + 1.0 else scale * _fraction(a, x)


def _series(a: float, x: float) -> float:
    """1/a + x/(a (a+1)) + x^2/(a (a+1) (a+2)) + ..."""
    term = total = 1.0 / a
    while term > total * _EPSILON:
        a += 1.0
        term *= x / a
        total += term
    return total


def _fraction(a: float, x: float) -> float:
    """1/(x+1-a - 1(1-a)/(x+3-a - 2(2-a)/(x+5-a - ...)))."""
    b = x + 1.0 - a
    c, d = 1.0 / _TINY, 1.0 / (b or _TINY)
    value, step, change = d, 0, 0.0
    while abs(change - 1.0) > _EPSILON:
        step += 1
        b += 2.0
        numerator = -step * (step - a)
        d = 1.0 / (numerator * d + b or _TINY)
        c = b + numerator / c or _TINY
        change = c * d
        value *= change
    return value


def _grouped(expected: Probs, least: float) -> list[npt.NDArray[np.intp]]:
    """Indices of each cell: one id where it expects `least`, the others together, with as few large ones as needed."""
    order = np.argsort(expected, kind="stable")
    small = int((expected < least).sum())
    while 0 < small < len(order) and expected[order[:small]].sum() < least:
        small += 1
    return [order[:small], *order[small:].reshape(-1, 1)] if small else list(order.reshape(-1, 1))


def _against(counts: list[float], expected: list[float]) -> ChiSquare:
    chi2 = sum((count - mean) ** 2 / mean for count, mean in zip(counts, expected, strict=True) if mean > 0.0)
    return ChiSquare(chi2, max(len(counts) - 1, 0), len(counts))


def _merge(cells: dict[Path, tuple[int, int]], path: Path, into: Path) -> None:
    (a, b), (c, d) = cells.pop(path), cells.get(into, (0, 0))
    cells[into] = (a + c, b + d)
