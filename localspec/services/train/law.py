"""The verifier's law row by row: its likeliest tokens with their probabilities, and draws from them.

Pure numpy. A draw comes from the kept tokens only, which is what training data needs; the exact law of answers is the
business of `core.sampling`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

DEEPEST = 20.0  # a token this far (in logits) below the best is never among the kept ones that matter


@dataclass(frozen=True)
class Top:
    """The k likeliest tokens of each of n rows, likeliest first, with natural log-probabilities at temperature 1."""

    ids: npt.NDArray[np.int32]
    log_probs: npt.NDArray[np.float32]


def top_of(logits: npt.NDArray[np.float32], count: int) -> Top:
    """The `count` likeliest tokens of each row of (n, V)."""
    rows, size = logits.shape
    count = min(count, size)
    ids = np.empty((rows, count), dtype=np.int32)
    log_probs = np.empty((rows, count), dtype=np.float32)
    for row in range(rows):
        ids[row], log_probs[row] = _top_of_row(logits[row], count)
    return Top(ids, log_probs)


def _top_of_row(row: npt.NDArray[np.float32], count: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    best = float(row.max())
    total = best + float(np.log(np.exp(row - best).sum()))
    near = np.flatnonzero(row > best - DEEPEST)
    if len(near) < count:
        near = np.arange(len(row))
    if len(near) > count:
        near = near[np.argpartition(row[near], len(near) - count)[-count:]]
    near = near[np.argsort(-row[near], kind="stable")]
    return near.astype(np.int32), row[near] - np.float32(total)


def draw(
    ids: npt.NDArray[np.int32],
    log_probs: npt.NDArray[np.float32],
    temperature: float,
    rng: np.random.Generator,
    *,
    min_p: float = 0.0,
) -> int:
    """One of the kept tokens of a row; 0 is greedy. `min_p` drops what is less likely than that share of the best."""
    if temperature == 0.0:
        return int(ids[0])
    weights = np.exp((log_probs - log_probs[0]).astype(np.float64) / temperature)
    weights[np.exp(log_probs - log_probs[0]) < min_p] = 0.0
    return int(ids[np.searchsorted(weights.cumsum(), rng.random() * weights.sum(), side="right")])
