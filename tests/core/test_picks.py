"""Picks are the largest of a row, lower ids first among equals, with about the probability a full softmax gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as rows

from localspec.core.law import Law
from localspec.core.picks import heaviest, likeliest
from localspec.core.sampling import Sampling

FREE = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
NOBODY = np.empty(0, dtype=np.int32)


def softmax(logits: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    weights = np.exp(logits.astype(np.float64) - logits.max())
    return weights / weights.sum()


def ranking(row: npt.NDArray[Any], count: int) -> list[int]:
    return np.argsort(-row, kind="stable")[:count].tolist()


@pytest.mark.parametrize("size", [1, 2, 31, 1024])
@pytest.mark.parametrize("count", [1, 3, 40])
def test_up_to_a_thousand_ids_it_is_the_softmax(size: int, count: int) -> None:
    logits = (4.0 * np.random.default_rng(size).standard_normal(size)).astype(np.float32)
    picks = likeliest(logits, count)
    assert [token for token, _ in picks] == ranking(logits, count)
    assert [prob for _, prob in picks] == pytest.approx(softmax(logits)[ranking(logits, count)], rel=1e-5)


@pytest.mark.parametrize("spread", [2.0, 4.0, 8.0])
def test_on_a_vocabulary_the_order_is_exact_and_the_probability_about_right(spread: float) -> None:
    """The sum runs over a thousand group maxima: never too modest, and good where the row is peaked."""
    logits = (spread * np.random.default_rng(3).standard_normal(49_152)).astype(np.float32)
    exact = softmax(logits)
    picks = likeliest(logits, 8)
    assert [token for token, _ in picks] == ranking(logits, 8)
    for token, prob in picks:
        assert exact[token] * (1 - 1e-4) <= prob <= 1.0
    if spread == 8.0:
        assert picks[0][1] == pytest.approx(exact[picks[0][0]], rel=0.05)


def test_equal_logits_go_to_the_lower_id() -> None:
    logits = np.zeros(5000, dtype=np.float32)
    logits[[4000, 17, 3000]] = 2.0
    assert [token for token, _ in likeliest(logits, 5)] == [17, 3000, 4000, 0, 1]


def test_blocked_ids_come_last_and_with_nothing() -> None:
    """B05: an id that means something else to the two models is -inf here."""
    logits = np.array([1.0, -np.inf, 2.0], dtype=np.float32)
    picks = likeliest(logits, 3)
    assert [token for token, _ in picks] == [2, 0, 1]
    assert [prob for _, prob in picks] == pytest.approx([0.731, 0.269, 0.0], abs=1e-3)


@given(rows.arrays(np.float32, st.integers(1, 80), elements=st.floats(-40, 40, width=32)), st.integers(1, 90))
def test_any_row(logits: npt.NDArray[np.float32], count: int) -> None:
    picks = likeliest(logits, count)
    assert [token for token, _ in picks] == ranking(logits, count)
    assert sum(prob for _, prob in picks) <= 1.0 + 1e-5
    law = FREE.law(logits, NOBODY)
    positive = [token for token in ranking(law.weights, count) if law.weights[token] > 0.0]
    assert [token for token, _ in heaviest(law, count)] == positive


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.5, top_k=3), FREE, Sampling(temperature=0.0)])
def test_the_heaviest_of_a_law(sampling: Sampling) -> None:
    """Filters leave a few ids: fewer picks than asked for, none of them impossible."""
    logits = (3.0 * np.random.default_rng(7).standard_normal(3000)).astype(np.float32)
    law = sampling.law(logits, NOBODY)
    dense = law.dense(3000)
    picks = heaviest(law, 50)
    assert [token for token, _ in picks] == [token for token in ranking(dense, 50) if dense[token] > 0.0]
    assert [prob for _, prob in picks] == pytest.approx([dense[token] for token, _ in picks])
    assert len(picks) == min(50, np.count_nonzero(dense))


def test_a_certain_law_has_one_pick() -> None:
    assert heaviest(Law.one_hot(7), 4) == [(7, 1.0)]
    assert heaviest(Law.of(np.array([0.0, 3.0, 0.0, 1.0])), 4) == [(1, 0.75), (3, 0.25)]
