"""The arithmetic of speculative decoding: the numbers that texts state loosely, and the inequalities behind them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core import theory

Row = npt.NDArray[np.float64]
LAWS = st.lists(st.floats(0.001, 1.0), min_size=5, max_size=5).map(lambda row: np.array(row) / sum(row))


def test_numbers_that_lessons_state_loosely() -> None:
    assert theory.best_length(0.8, 0.05, 20) == 8
    assert theory.speedup(0.8, 8, 0.05) == pytest.approx(3.09, abs=0.005)
    assert theory.speedup(0.8, 5, 0.05) == pytest.approx(2.95, abs=0.005)
    assert theory.tokens_per_pass(0.6, 5) == pytest.approx(2.38, abs=0.005)
    assert theory.tokens_per_pass(0.9, 5) == pytest.approx(4.69, abs=0.005)


@given(st.floats(0.0, 0.999), st.integers(0, 30))
def test_tokens_per_pass_is_the_geometric_sum(alpha: float, N: int) -> None:
    assert theory.tokens_per_pass(alpha, N) == pytest.approx((1 - alpha ** (N + 1)) / (1 - alpha), rel=1e-9)
    assert theory.tokens_per_pass(1.0, N) == N + 1


@given(st.floats(0.0, 1.0), st.floats(0.001, 2.0))
def test_drafting_pays_exactly_when_alpha_exceeds_the_cost(alpha: float, c: float) -> None:
    """Leviathan et al. 2023, corollary 3.9."""
    if abs(alpha - c) > 1e-9:
        assert (theory.best_length(alpha, c, 12) > 0) == (alpha > c)


def test_the_best_length_is_the_fastest_of_all() -> None:
    for alpha in (0.3, 0.6, 0.8, 0.95):
        for c in (0.02, 0.1, 0.5):
            best = theory.best_length(alpha, c, 40)
            assert theory.speedup(alpha, best, c) == max(theory.speedup(alpha, N, c) for N in range(41))


@given(LAWS, LAWS)
def test_overlap_and_divergence(q: Row, p: Row) -> None:
    assert theory.overlap(q, p) == pytest.approx(1.0 - 0.5 * np.abs(q - p).sum())
    assert theory.divergence(q, p) >= 0.0
    assert theory.overlap(q, p) >= theory.least_overlap(theory.divergence(q, p)) - 1e-12
    assert theory.divergence(q, q) == pytest.approx(0.0, abs=1e-12)


def test_divergence_where_one_law_excludes_a_token() -> None:
    some, all_of = np.array([1.0, 0.0]), np.array([0.5, 0.5])
    assert theory.divergence(some, all_of) == pytest.approx(np.log(2.0))
    assert theory.divergence(all_of, some) == np.inf
    assert theory.least_overlap(np.inf) == 0.0


def test_the_long_run_is_what_a_long_text_shows() -> None:
    rng = np.random.default_rng(0)
    laws = rng.dirichlet(np.ones(3), size=(3, 3))
    weights = theory.long_run(laws)
    np.testing.assert_allclose(np.einsum("ab,abc->bc", weights, laws), weights, atol=1e-12)
    assert weights.sum() == pytest.approx(1.0)


def test_the_long_run_of_a_text_that_goes_round_in_circles() -> None:
    laws = np.zeros((2, 2, 2))
    laws[:, 0, 1] = laws[:, 1, 0] = 1.0  # 0 1 0 1 ...
    np.testing.assert_allclose(theory.long_run(laws), [[0.0, 0.5], [0.5, 0.0]], atol=1e-9)
