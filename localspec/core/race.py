"""The race that `core.coupled` runs: id i arrives at time E_i / w_i, and the earliest follows the law w exactly.

On a dense law only ids that can still win are looked at: nobody arrives before the smallest E of its block over its own
weight, and a few arrivals that are known early rule out almost everyone. Knows nothing about seeds, drafts or models.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from localspec.core.law import Law, Weights
from localspec.core.noise import SIZE, SPAN, Integers, Noise, members

SLACK = 1.0 + 1e-9  # more than rounding can move a time


def places(law: Law, noise: Noise, count: int) -> list[int]:
    """The first `count` ids to arrive, fewer when the law has fewer; times are compared in float64."""
    if law.is_certain and law.ids is not None:
        return [law.ids.item(0)]
    if law.ids is not None:
        return _run(law.ids, law.weights, noise, count)
    ids = _contenders(law.weights, noise, count)
    return _run(ids, law.weights[ids], noise, count)


def _run(ids: npt.NDArray[np.integer], weights: Weights, noise: Noise, count: int) -> list[int]:
    """The ids with the `count` smallest times; ids without a weight never arrive."""
    if not weights.all():
        running = np.flatnonzero(weights)
        ids, weights = ids[running], weights[running]
    times = noise.of(ids) / weights
    if count == 1:
        return [ids.item(int(times.argmin()))]
    return [ids.item(place) for place in np.lexsort((ids, times))[:count]]


def _contenders(weights: Weights, noise: Noise, count: int) -> Integers:
    """Ascending ids of a dense law that include the first `count` to arrive."""
    heaviest = block_maxima(weights).astype(np.float64)
    minima, firsts = noise.minima(len(heaviest))
    count = min(count, len(heaviest))
    heavy = heaviest.argpartition(len(heaviest) - count)[len(heaviest) - count :]
    with np.errstate(divide="ignore"):  # without a weight one never arrives
        # Known arrivals, one per block: of heavy blocks the heaviest member, of the others the one with the minimum.
        known = minima / _weights_of(firsts, weights)
        favourites = members(heavy)
        favourites = favourites[np.arange(count), _weights_of(favourites, weights).argmax(axis=1)]
        known[heavy] = noise.of(favourites) / _weights_of(favourites, weights)
    known.partition(count - 1)
    limit = known.item(count - 1) * SLACK
    if limit == np.inf:
        return np.flatnonzero(weights)
    blocks = np.flatnonzero(minima <= limit * heaviest)
    ids = members(blocks)
    ids = ids[minima[blocks, None] <= limit * _weights_of(ids, weights)]
    ids.sort()
    return ids


def block_maxima(weights: Weights) -> Weights:
    """The largest weight of every block that has an id in the row."""
    spans, rest = divmod(len(weights), SPAN)
    maxima: Weights = weights[: spans * SPAN].reshape(spans, SIZE, SIZE).max(axis=1).reshape(-1)
    if rest == 0:
        return maxima
    tail = np.zeros(-(-rest // SIZE) * SIZE, dtype=weights.dtype)
    tail[:rest] = weights[-rest:]
    return np.concatenate((maxima, tail.reshape(-1, SIZE).max(axis=0)))


def _weights_of(ids: Integers, weights: Weights) -> npt.NDArray[np.float64]:
    """The weights of `ids`, 0 beyond the row."""
    found = weights.take(ids, mode="clip").astype(np.float64)
    found[ids >= len(weights)] = 0.0
    return found
