"""The race on a dense law looks at few ids and finds what a race of all of them would."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from localspec.core.law import Law
from localspec.core.noise import SIZE, SPAN, Noise, members
from localspec.core.race import block_maxima, places


def brute(weights: npt.NDArray[Any], noise: Noise, count: int) -> list[int]:
    """Everyone runs."""
    ids = np.flatnonzero(weights)
    times = noise.of(ids) / weights[ids].astype(np.float64)
    return [int(i) for i in ids[np.argsort(times, kind="stable")[:count]]]


def shapes(size: int) -> dict[str, npt.NDArray[np.float64]]:
    """Weights of every temper."""
    rng = np.random.default_rng(size)
    ranks = rng.permutation(size) + 1.0
    peaks = np.exp(rng.normal(size=size) - 30)
    peaks[[0, size - 1]] = 1.0
    holes = np.exp(3 * rng.normal(size=size)) * (rng.random(size) < 0.01)
    holes[size // 2] = 1.0
    last = np.zeros(size)
    last[-1] = 1.0
    return {
        "flat": np.ones(size),
        "mild": np.exp(rng.normal(size=size)),
        "wild": np.exp(4 * rng.normal(size=size)),
        "zipf": ranks**-1.2,
        "sorted": (np.arange(size) + 1.0) ** -1.5,
        "two peaks": peaks,
        "holes": holes,
        "certain": last,
    }


@pytest.mark.parametrize("size", [2, 5, 127, 129, 3000, SPAN, SPAN + 1, 20_000, 49_152])
@pytest.mark.parametrize("name", shapes(2))
def test_pruning_is_exact(size: int, name: str) -> None:
    for dtype in (np.float32, np.float64):
        weights = shapes(size)[name].astype(dtype)
        for position in range(8):
            noise = Noise.at(1, position)
            expected = brute(weights, noise, 8)
            for count in (1, 3, 8):
                assert places(Law.of(weights), noise, count) == expected[:count]


@pytest.mark.parametrize("name", shapes(2))
def test_dense_and_sparse_laws_have_the_same_winner(name: str) -> None:
    weights = shapes(2000)[name]
    ids = np.flatnonzero(weights)
    for position in range(50):
        noise = Noise.at(2, position)
        dense = places(Law.of(weights), noise, 4)
        assert places(Law.of(weights[ids], ids.astype(np.int32)), noise, 4) == dense
        assert places(Law.of(weights / weights.sum()), noise, 4) == dense


def test_ids_without_a_weight_never_arrive() -> None:
    """Underflow leaves zeros in the laws of long tails; 0 / 0 must not come first."""
    weights = np.array([0.0, 0.5, 0.0, 0.25, 0.25])
    ids = np.array([3, 7, 20, 90, 4000], dtype=np.int32)
    for position in range(50):
        noise = Noise.at(6, position)
        found = places(Law.of(weights, ids), noise, 5)
        assert found == places(Law.of(weights[weights > 0], ids[weights > 0]), noise, 5)
        assert sorted(found) == [7, 90, 4000]


def test_padding_changes_nothing() -> None:
    """A vocabulary padded with impossible ids sees the same noise: Qwen2.5 has files of 151,936 and of 152,064 ids."""
    weights = shapes(3000)["wild"]
    for padding in (1, 128, 20_000):
        padded = np.concatenate([weights, np.zeros(padding)])
        for position in range(20):
            noise = Noise.at(3, position)
            assert places(Law.of(padded), noise, 3) == places(Law.of(weights), noise, 3)


def test_float32_changes_the_winner_only_at_near_ties() -> None:
    weights = shapes(4000)["wild"]
    weights /= weights.sum()
    for position in range(300):
        noise = Noise.at(4, position)
        a, b = places(Law.of(weights), noise, 1)[0], places(Law.of(weights.astype(np.float32)), noise, 1)[0]
        times = noise.of(np.array([a, b])) / weights[[a, b]]
        assert times[0] == pytest.approx(times[1], rel=1e-6)


def test_places_end_when_no_one_is_left() -> None:
    law = Law.of([0.0, 2.0, 0.0, 1.0])
    assert sorted(places(law, Noise.at(5, 0), 9)) == [1, 3]
    assert places(Law.one_hot(70_000), Noise.at(5, 0), 3) == [70_000]


@pytest.mark.parametrize("size", [1, 100, 129, SPAN, SPAN + 300, 49_152])
def test_block_maxima(size: int) -> None:
    weights = np.random.default_rng(size).random(size)
    padded = np.concatenate([weights, np.zeros(-size % SPAN)])
    expected = padded[members(np.arange(len(padded) // SIZE))].max(axis=1)
    found = block_maxima(weights)
    np.testing.assert_array_equal(found, expected[: len(found)])
    assert not expected[len(found) :].any()
