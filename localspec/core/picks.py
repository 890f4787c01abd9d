"""Deterministic picks: the likeliest tokens of a row, with about how likely each is. Knows no rule and no settings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from localspec.core.filters import largest
from localspec.core.fold import fold
from localspec.core.law import Law


def likeliest(logits: npt.NDArray[np.floating], count: int) -> list[tuple[int, float]]:
    """The `count` largest of (V,) logits as (id, probability at temperature 1), likeliest first.

    The sum runs over the largest logit of each of a thousand groups instead of over all, as in `core.confidence`.
    """
    maxima = fold(np.maximum, logits)
    top = maxima.max()
    ids = largest(logits, maxima, count)
    probs = np.exp(logits[ids] - top) / np.exp(maxima - top).sum()
    return list(zip(ids.tolist(), probs.tolist(), strict=True))


def heaviest(law: Law, count: int) -> list[tuple[int, float]]:
    """The `count` likeliest ids of a law as (id, probability), likeliest first; ids without a weight are left out."""
    at = largest(law.weights, fold(np.maximum, law.weights), count)
    at = at[law.weights[at] > 0.0]
    ids = at if law.ids is None else law.ids[at]
    return list(zip(ids.tolist(), (law.weights[at] / law.total).tolist(), strict=True))
