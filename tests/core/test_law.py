"""Laws: probabilities, draws, what is left after a rejection; dense and sparse, float32 and float64 alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.fold import GROUPS
from localspec.core.law import Law, mass
from localspec.errors import EngineError
from tests.core import chisquare

Row = npt.NDArray[np.float64]


class Fixed:
    """A generator that says these numbers."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = list(numbers)

    def random(self) -> float:
        return self.numbers.pop(0)


def sparse(row: Row) -> Law:
    """The law of `row` that holds only its possible ids."""
    ids = np.flatnonzero(row)
    return Law.of(row[ids], ids.astype(np.int32))


def rows(size: int) -> st.SearchStrategy[Row]:
    weights = st.one_of(st.just(0.0), st.floats(1e-6, 1.0))
    return st.lists(weights, min_size=size, max_size=size).filter(any).map(lambda row: np.array(row))


@given(rows(6), st.sampled_from([np.float32, np.float64]))
def test_prob_is_the_weight_over_the_total(row: Row, dtype: Any) -> None:
    row = row.astype(dtype)
    for law in (Law.of(row), sparse(row)):
        assert law.weights.dtype == dtype
        probs = [law.prob(token) for token in range(6)]
        np.testing.assert_allclose(probs, row / row.sum(dtype=np.float64), rtol=1e-12)
        np.testing.assert_allclose(law.dense(6), probs, rtol=1e-12)
        assert law.top == max(probs)
        assert law.prob(6) == 0.0
        assert law.prob(1_000_000) == 0.0


def test_whole_numbers_are_weights() -> None:
    assert Law.of([1, 3]).prob(1) == 0.75


@pytest.mark.parametrize("weights", [[0.0, 0.0], [1.0, -0.5], [1.0, np.nan], [np.inf, 1.0]])
def test_what_is_no_law_is_refused(weights: list[float]) -> None:
    with pytest.raises(EngineError, match="no law") as caught:
        Law.of(weights)
    assert caught.value.hint


def test_certainty() -> None:
    law = Law.one_hot(70_000)
    assert law.is_certain
    assert law.prob(70_000) == law.top == 1.0
    assert law.sample(np.random.default_rng(0)) == 70_000
    assert not Law.of([0.0, 1.0]).is_certain


@given(rows(7), st.integers(0, 999))
def test_a_draw_inverts_the_cumulated_law(row: Row, step: int) -> None:
    """The id under u when the probabilities are laid end to end: so over all u each has its own probability."""
    u = step / 1000
    ends = np.cumsum(row / row.sum())
    if np.abs(ends - u).min() < 1e-9:
        return
    expected = int(np.flatnonzero(ends > u)[0])
    assert Law.of(row).sample(Fixed(u)) == expected  # type: ignore[arg-type]
    assert sparse(row).sample(Fixed(u)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("u", [0.0, np.nextafter(1.0, 0.0)])
def test_extreme_draws_are_possible_ids(u: float) -> None:
    row = np.array([0.0, 0.1, 0.7, 0.2, 0.0], dtype=np.float32)
    long = np.zeros(5000, dtype=np.float32)
    long[[1500, 2524, 3000]] = 0.1
    assert row[Law.of(row).sample(Fixed(u))] > 0.0  # type: ignore[arg-type]
    for v in (0.0, np.nextafter(1.0, 0.0)):
        assert long[Law.of(long).sample(Fixed(u, v))] > 0.0  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1024, 1025, 5000])
def test_draws_from_long_rows_follow_the_law(size: int) -> None:
    """Long rows are drawn from in two steps, a group and a member: counted over classes of groups times members."""
    rng = np.random.default_rng(5)
    classes = np.arange(size) % GROUPS // 128 + 8 * (np.arange(size) // GROUPS)
    row = np.exp(2.0 * rng.normal(size=size)).astype(np.float32)
    row[rng.random(size) < 0.5] = 0.0
    law = Law.of(row)
    counts, probs = np.zeros(classes.max() + 1), np.zeros(classes.max() + 1)
    for _ in range(20_000):
        counts[classes[law.sample(rng)]] += 1
    np.add.at(probs, classes, law.dense(size))
    assert chisquare.fit(counts, probs) > 1e-3


@pytest.mark.parametrize("size", [1, 1000, 1024, 1025, 49_152, 151_936])
def test_mass_is_the_sum(size: int) -> None:
    row = np.random.default_rng(6).random(size)
    assert mass(row) == pytest.approx(row.sum(), rel=1e-14)
    assert mass(row.astype(np.float32)) == pytest.approx(row.astype(np.float32).sum(dtype=np.float64), rel=2e-7)


@given(rows(6), st.integers(0, 7))
def test_without_is_the_law_given_another_id(row: Row, token: int) -> None:
    expected = row.copy()
    expected[token : token + 1] = 0.0
    for law in (Law.of(row), sparse(row)):
        rest = law.without(token)
        if not expected.any():
            assert rest is None
        else:
            assert rest is not None
            np.testing.assert_allclose(rest.dense(6), expected / expected.sum(), atol=1e-15)


def test_without_keeps_tiny_remainders_exact() -> None:
    """What is left is summed anew: subtracting from the total would leave only rounding."""
    rest = Law.of(np.array([1.0, 1e-20, 3e-20])).without(0)
    assert rest is not None
    assert rest.prob(2) == pytest.approx(0.75, rel=1e-12)


def expected_residual(q: Row, p: Row) -> Row:
    rest = np.maximum(q / q.sum() - p / p.sum(), 0.0)
    return rest / rest.sum()


@given(rows(6), rows(6))
def test_the_residual_is_the_positive_part_of_the_difference(q: Row, p: Row) -> None:
    if np.abs(q / q.sum() - p / p.sum()).sum() < 1e-6:
        return
    for law in (Law.of(q), sparse(q)):
        for draft in (Law.of(p), sparse(p), Law.of(p * 5.0)):
            np.testing.assert_allclose(law.residual(draft).dense(6), expected_residual(q, p), atol=1e-9)
    single = Law.of(q.astype(np.float32)).residual(sparse(p.astype(np.float32)))
    assert single.weights.dtype == np.float32
    if np.abs(q / q.sum() - p / p.sum()).sum() > 1e-2:
        np.testing.assert_allclose(single.dense(6), expected_residual(q, p), atol=1e-4)


@pytest.mark.parametrize(("mine", "theirs"), [(4, 6), (6, 4)])
def test_vocabularies_of_two_sizes(mine: int, theirs: int) -> None:
    """A padded draft or verifier: ids that one of them lacks have probability 0 there."""
    q, p = np.zeros(6), np.zeros(6)
    q[:mine] = np.random.default_rng(7).random(mine)
    p[:theirs] = np.random.default_rng(8).random(theirs)
    for law in (Law.of(q[:mine]), sparse(q)):
        for draft in (Law.of(p[:theirs]), sparse(p)):
            np.testing.assert_allclose(law.residual(draft).dense(6), expected_residual(q, p), atol=1e-12)


def test_a_rejected_certain_pick_leaves_the_rest() -> None:
    q = np.array([0.6, 0.3, 0.1])
    for law in (Law.of(q), sparse(q)):
        np.testing.assert_allclose(law.residual(Law.one_hot(0)).dense(3), [0.0, 0.75, 0.25], atol=1e-15)
        np.testing.assert_allclose(law.residual(Law.one_hot(9)).dense(3), q, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_residual_of_equal_laws_is_the_law(dtype: Any) -> None:
    """B39: max(q - p, 0) of equal rows is empty, and a division would give NaN."""
    q = np.random.default_rng(9).random(5000).astype(dtype)
    for p in (q, q * dtype(1 / 3), q * (1 + np.finfo(dtype).eps)):
        residual = Law.of(q).residual(Law.of(p))
        assert residual.total > 0.0
        assert np.isfinite(residual.weights).all()
        np.testing.assert_allclose(residual.dense(5000), q / q.sum(dtype=np.float64), rtol=1e-5)
    assert Law.one_hot(3).residual(Law.one_hot(3)).prob(3) == 1.0


def test_the_residual_against_what_is_left_of_a_cold_draft() -> None:
    """After its favourite a draft at a low temperature has subnormal weights, still a law like any other."""
    q = np.array([0.2, 0.5, 0.2, 0.1], dtype=np.float32)
    p = Law.of(np.array([1.0, 4e-42, 8e-42, 4e-42], dtype=np.float32)).without(0)
    assert p is not None
    np.testing.assert_allclose(Law.of(q).residual(p).dense(4), [4 / 9, 5 / 9, 0.0, 0.0], rtol=1e-3)


def test_a_small_difference_is_no_noise_in_float64() -> None:
    """B39: rows that differ by 1e-9 have a residual of their own, the one id that gained."""
    q = np.full(4, 0.25)
    p = q + np.array([-1e-9, 1e-9, 0.0, 0.0])
    np.testing.assert_allclose(Law.of(q).residual(Law.of(p)).dense(4), [1.0, 0.0, 0.0, 0.0], atol=1e-6)


def test_nothing_is_written_to_the_laws() -> None:
    q, p = np.array([0.5, 0.5]), np.array([0.1, 0.9])
    q.flags.writeable = p.flags.writeable = False
    Law.of(q).residual(Law.of(p))
    Law.of(q).without(0)
    Law.of(q).sample(np.random.default_rng(0))
