"""Chi-square: critical values against tables, the gamma function against identities, pooling, and false alarms."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core import statistics
from localspec.core.statistics import ChiSquare, Path, combined, critical, fit, pooled, same, tail, upper_gamma


@pytest.mark.parametrize(
    ("confidence", "dof", "value"),
    [  # the table of every textbook
        (0.95, 1, 3.841),
        (0.95, 2, 5.991),
        (0.95, 3, 7.815),
        (0.95, 5, 11.070),
        (0.95, 10, 18.307),
        (0.95, 20, 31.410),
        (0.95, 30, 43.773),
        (0.95, 50, 67.505),
        (0.95, 100, 124.342),
        (0.90, 4, 7.779),
        (0.99, 1, 6.635),
        (0.99, 7, 18.475),
        (0.99, 60, 88.379),
        (0.999, 1, 10.828),
        (0.999, 10, 29.588),
        (0.999999, 1, 23.928),
        (0.9999999, 2, 32.236),
        (0.05, 10, 3.940),
    ],
)
def test_critical_values(confidence: float, dof: int, value: float) -> None:
    assert critical(confidence, dof) == pytest.approx(value, abs=6e-4)
    assert ChiSquare(0.0, dof, dof + 1).critical(confidence) == critical(confidence, dof)
    assert tail(value, dof) == pytest.approx(1.0 - confidence, abs=2e-4)


@given(st.floats(1e-3, 400.0))
def test_known_cases_of_the_gamma_function(x: float) -> None:
    assert upper_gamma(1.0, x) == pytest.approx(math.exp(-x), rel=1e-10)
    assert upper_gamma(0.5, x) == pytest.approx(math.erfc(math.sqrt(x)), rel=1e-10)
    assert upper_gamma(3.0, x) == pytest.approx(math.exp(-x) * (1 + x + x * x / 2), rel=1e-10)


@given(st.floats(0.5, 300.0), st.floats(0.0, 600.0))
def test_the_recurrence_holds_on_both_sides_of_the_switch(a: float, x: float) -> None:
    step = math.exp(a * math.log(x) - x - math.lgamma(a + 1.0)) if x > 0.0 else 0.0
    assert upper_gamma(a + 1.0, x) == pytest.approx(upper_gamma(a, x) + step, rel=1e-8, abs=1e-12)


def test_far_out_the_tail_is_small_and_no_error() -> None:
    assert 0.0 < tail(1_000.0, 100) < 1e-140
    assert tail(1e6, 3) == 0.0
    assert tail(0.0, 3) == tail(0.0, 0) == 1.0
    assert critical(0.95, 0) == 0.0


def test_a_statistic_by_hand() -> None:
    test = fit(np.array([30, 50, 20]), np.array([0.25, 0.5, 0.25]))
    assert (test.dof, test.cells) == (2, 3)
    assert test.chi2 == pytest.approx(2.0)
    assert test.p_value == pytest.approx(math.exp(-1.0))
    two = same({(1,): 60, (2,): 40}, {(1,): 40, (2,): 60})
    assert two.dof == 1
    assert two.chi2 == pytest.approx(8.0)


def test_samples_of_different_sizes() -> None:
    """Against the contingency table by hand: rows 100 and 300, columns 90 and 310."""
    a: dict[Path, int] = {(1,): 30, (2,): 70}
    b: dict[Path, int] = {(1,): 60, (2,): 240}
    by_hand = sum(
        (count - total * column / 400) ** 2 / (total * column / 400)
        for sample, total in ((a, 100), (b, 300))
        for count, column in ((sample[1,], 90), (sample[2,], 310))
    )
    assert same(a, b).chi2 == pytest.approx(by_hand)


def test_cells_that_expect_little_are_counted_together() -> None:
    test = fit(np.array([90, 4, 3, 3, 0]), np.array([0.9, 0.04, 0.03, 0.03, 0.0]))
    assert (test.cells, test.dof) == (2, 1)
    assert test.chi2 == pytest.approx(0.0)
    lonely = fit(np.array([3, 1]), np.array([0.5, 0.5]))
    assert (lonely.cells, lonely.dof, lonely.p_value) == (1, 0, 1.0)


def test_what_is_impossible_costs_something() -> None:
    """A token that the law excludes makes its cell too large, and no division by zero."""
    assert fit(np.array([500, 460, 40]), np.array([0.5, 0.5, 0.0])).p_value < 1.0
    assert fit(np.array([300, 300, 400]), np.array([0.5, 0.5, 0.0])).p_value < 1e-30


def test_rare_paths_join_their_prefix_then_the_rest() -> None:
    left: dict[Path, int] = {(1, 1): 50, (1, 2): 4, (1, 3): 3, (2, 1): 1, (3, 3): 2}
    right: dict[Path, int] = {(1, 1): 40, (1, 2): 3, (1, 4): 5, (2, 2): 2, (3, 3): 1, (4, 0): 9}
    cells = pooled(left, right, least=10)
    assert cells == {(1, 1): (50, 40), (1,): (7, 8), (): (3, 12)}


def test_a_rest_that_is_rare_itself_takes_the_smallest_cell() -> None:
    cells = pooled({(1,): 30, (2,): 8, (3,): 1}, {(1,): 30, (2,): 8, (4,): 1}, least=10)
    assert cells == {(1,): (30, 30), (): (9, 9)}


@given(
    st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 3)), st.integers(1, 40)),
    st.dictionaries(st.tuples(st.integers(0, 3)), st.integers(1, 40)),
)
def test_pooling_loses_nothing(left: dict[Path, int], right: dict[Path, int]) -> None:
    cells = pooled(left, right)
    assert [sum(column) for column in zip((0, 0), *cells.values(), strict=True)] == [
        sum(left.values()),
        sum(right.values()),
    ]
    assert len(cells) <= 1 or all(sum(counts) >= 2 * statistics.LEAST for counts in cells.values())


def test_independent_tests_add_up() -> None:
    assert combined([ChiSquare(1.5, 2, 3), ChiSquare(4.0, 5, 6)]) == ChiSquare(5.5, 7, 9)
    assert combined([]) == ChiSquare(0.0, 0, 0)


def test_nothing_seen_proves_nothing() -> None:
    assert same({}, {(1,): 20, (2,): 20}).p_value == 1.0


def test_equal_laws_are_refused_as_rarely_as_promised() -> None:
    """400 pairs of samples of one skewed law over pairs of tokens: 5 % above the critical value, give or take."""
    rng = np.random.default_rng(7)
    law = np.outer(0.6 ** np.arange(12), 0.7 ** np.arange(12)).ravel()
    law /= law.sum()

    def sample() -> Counter[Path]:
        return Counter(divmod(token, 12) for token in rng.choice(law.size, size=500, p=law).tolist())

    pairs = [same(sample(), sample()) for _ in range(400)]
    assert 0.02 < np.mean([test.p_value < 0.05 for test in pairs]) < 0.09
    assert 0.4 < np.mean([test.p_value < 0.5 for test in pairs]) < 0.6
