"""Which ids survive a filter, found without sorting a vocabulary: the largest logits, the nucleus of a row.

Works on logits of any kind; `maxima` are their folded group maxima and `top` is the largest. Ties go to the lower id.
Knows no settings.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.floating]
Chosen = npt.NDArray[np.intp]

FIRST_LOOK = 256  # ids ranked before anyone asks for more


def candidates(logits: Logits, maxima: Logits, count: int) -> Chosen:
    """Ascending ids that hold the `count` largest logits, and few others."""
    count = min(count, len(logits))
    # `count` groups have a maximum at or above this bar, so at least `count` logits have.
    source = maxima if count <= len(maxima) // 2 else logits
    bar = np.partition(source, len(source) - count)[len(source) - count]
    return np.flatnonzero(logits >= bar)


def largest(logits: Logits, maxima: Logits, count: int) -> Chosen:
    """Ids of the `count` largest logits, largest first."""
    ids = candidates(logits, maxima, count)
    return ids[np.argsort(-logits[ids], kind="stable")[:count]]


def nucleus(
    logits: Logits, maxima: Logits, *, top: np.floating[Any], share: float, floor: np.floating[Any] | None
) -> Chosen:
    """Ids of the largest logits that together reach `share` of the mass, largest first.

    Ids whose logit is below `floor` may be missing: a later filter takes them away.
    """
    # One after the other, in the row's own type: over a whole row in float32 the rounding of llama.cpp's sum is worth
    # several ids at the edge, and they should be the same ids.
    whole = np.exp(logits - top).cumsum().item(-1)
    enough = len(logits) if floor is None else int(np.count_nonzero(logits >= floor))
    count = FIRST_LOOK
    while True:
        ranked = largest(logits, maxima, count)
        needed = reach(np.exp(logits[ranked] - top), whole=whole, share=share)
        if needed <= len(ranked) or len(ranked) >= enough:
            return ranked[:needed]
        count *= 4


def reach(weights: Logits, *, whole: float, share: float) -> int:
    """How many of the descending weights reach `share` of the `whole`; more than there are when all do not.

    Sums run one after the other in the row's own type, as llama.cpp's do.
    """
    probs = weights / weights.dtype.type(whole)
    return int(probs.cumsum().searchsorted(probs.dtype.type(share))) + 1
