"""The kept tokens of a row are the likeliest ones with their true probabilities, and draws follow them."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.services.train.law import draw, top_of


@pytest.mark.parametrize("spread", [0.01, 1.0, 30.0])
def test_top_tokens_are_those_of_a_full_sort(spread: float) -> None:
    logits = (np.random.default_rng(1).standard_normal((5, 300)) * spread).astype(np.float32)
    top = top_of(logits, 8)
    for row, ids, logs in zip(logits.astype(np.float64), top.ids, top.log_probs, strict=True):
        expected = row - row.max() - np.log(np.exp(row - row.max()).sum())
        assert ids.tolist() == np.argsort(-row, kind="stable")[:8].tolist()
        assert np.allclose(logs, expected[ids], atol=1e-4)


def test_no_more_tokens_than_there_are() -> None:
    assert top_of(np.zeros((1, 3), dtype=np.float32), 8).ids.tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_draws_follow_the_law_at_a_temperature(temperature: float) -> None:
    ids, logs = np.array([7, 3, 5], dtype=np.int32), np.log(np.array([0.6, 0.3, 0.1], dtype=np.float32))
    rng = np.random.default_rng(0)
    drawn = [draw(ids, logs, temperature, rng) for _ in range(6000)]
    weights = np.array([0.6, 0.3, 0.1]) ** (1 / temperature)
    for token, share in zip(ids, weights / weights.sum(), strict=True):
        assert drawn.count(int(token)) / 6000 == pytest.approx(share, abs=0.025)


def test_temperature_zero_is_the_best_and_min_p_drops_the_rest() -> None:
    ids, logs = np.array([7, 3], dtype=np.int32), np.log(np.array([0.7, 0.3], dtype=np.float32))
    rng = np.random.default_rng(0)
    assert {draw(ids, logs, 0.0, rng) for _ in range(50)} == {7}
    assert {draw(ids, logs, 1.0, rng, min_p=0.5) for _ in range(50)} == {7}
    assert {draw(ids, logs, 1.0, rng) for _ in range(50)} == {7, 3}
