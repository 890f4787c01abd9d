"""A text that does not change, sorted so that the places that read like the end of another text are found at once.

Every place is sorted by the tokens before it, read backwards (a suffix array of the reversed text, cut at `LONGEST`
tokens): places with a long past in common are neighbours, so the best matches stand around the point where the other
text's own past would be sorted in. Takes 8 bytes a token. Knows nothing about drafts.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from localspec.core.draft import Ids
from localspec.core.ngrams import Match

LONGEST = 32
"""Pasts that agree in so many tokens are as good as equal."""
SEPARATOR = -1
"""Stands between texts that were joined: it is no token, so nothing is read across it."""


class Corpus:
    """`tokens` sorted by their pasts; `SEPARATOR` between texts that do not belong together."""

    def __init__(self, tokens: Ids) -> None:
        # Backwards, a past is a slice; and this array hands out slices and numbers faster than one of numpy.
        self._backwards = array("i", tokens[::-1].astype(np.int32).tobytes())
        self._order = array("i", _sorted_by_past(tokens).astype(np.int32).tobytes())

    def __len__(self) -> int:
        return len(self._backwards)

    def __getitem__(self, at: int) -> int:
        """The token at index `at`, `SEPARATOR` between two texts."""
        return self._backwards[len(self._backwards) - 1 - at]

    def matches(self, tail: Sequence[int], count: int, *, least: int, longest: int) -> list[Match]:
        """Up to `count` places that read like the end of `tail` for `least` tokens or more, longest first.

        Counts up to `longest` tokens of agreement, at most `LONGEST`.
        """
        past = array("i", reversed(tail[-min(longest, LONGEST) :]))
        after = bisect_left(self._order, past, key=lambda place: self._past(place, len(past)))
        before = after - 1
        lengths = [self._agreement(before, past), self._agreement(after, past)]
        found: list[Match] = []
        while len(found) < count and max(lengths) >= least:
            earlier = lengths[0] >= lengths[1]
            at, length = (before, lengths[0]) if earlier else (after, lengths[1])
            follower = len(self) - self._order[at]
            if follower < len(self) and self[follower] != SEPARATOR:
                found.append(Match(length, follower))
            if earlier:
                before -= 1
                lengths[0] = self._agreement(before, past)
            else:
                after += 1
                lengths[1] = self._agreement(after, past)
        return found

    def _past(self, place: int, size: int) -> array[int]:
        """Up to `size` tokens from `place` of the reversed text."""
        return self._backwards[place : place + size]

    def _agreement(self, at: int, past: array[int]) -> int:
        """Tokens of `past` that the place sorted `at` shares; 0 outside the text."""
        if not 0 <= at < len(self._order):
            return 0
        length = 0
        for mine, theirs in zip(self._past(self._order[at], len(past)), past, strict=False):
            if mine != theirs:
                break
            length += 1
        return length


def _sorted_by_past(tokens: Ids) -> npt.NDArray[np.int64]:
    """Places of the reversed text, sorted by what is read from there; by doubling the length that the ranks know of."""
    size = len(tokens)
    ranks = np.unique(tokens[::-1], return_inverse=True)[1].astype(np.int64).reshape(-1) + 1  # 0: behind the end
    order = np.argsort(ranks, kind="stable")
    known = 1
    while known < LONGEST and size and ranks[order[-1]] < size:
        rest = np.zeros(size, dtype=np.int64)
        rest[: max(0, size - known)] = ranks[known:]
        keys = ranks * (size + 1) + rest
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        ranks[order] = np.concatenate([[1], 1 + np.cumsum(ordered[1:] != ordered[:-1])])
        known *= 2
    return order
