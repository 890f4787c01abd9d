"""How sure a greedy draft is, without a softmax over the vocabulary. Knows nothing about who asks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from localspec.core.fold import fold


def confidence(logits: npt.NDArray[np.floating]) -> float:
    """About the probability of the largest of (V,) logits at temperature 1, in 1/V .. 1.

    The sum runs over the largest logit of each of a thousand groups instead of over all: somewhat too sure, monotone
    in what matters, and calibrated by whoever compares it with outcomes.
    """
    maxima = fold(np.maximum, logits)
    return float(1.0 / np.exp(maxima - maxima.max()).sum())
