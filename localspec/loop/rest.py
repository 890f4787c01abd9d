"""A stretch of rounds without a draft that a controller wants to hear of only when it is over.

A round takes a few milliseconds and every line of Python in it runs on a cold cache, so what need not be said is not.
"""

from __future__ import annotations

import statistics

from localspec.loop.control import RoundReport


class Rest:
    """The stretch under way, if there is one. left: rounds that it may still last; limit: of the drafts in it."""

    __slots__ = ("_context", "_draft_s", "_verify_s", "left", "limit")

    def __init__(self) -> None:
        self.left = self.limit = 0
        self._context = 0
        self._draft_s = 0.0
        self._verify_s: list[float] = []

    def begin(self, rounds: int, *, limit: int, context: int) -> None:
        """So many rounds may pass; `context` tokens are in the verifier's cache."""
        self.left, self.limit, self._context = rounds, limit, context

    def add(self, *, draft_s: float, verify_s: float) -> None:
        """One round, in which nothing was drafted."""
        self.left -= 1
        self._draft_s += draft_s
        self._verify_s.append(verify_s)

    def end(self) -> RoundReport | None:
        """It is over: what there is to tell, None when no round passed."""
        times, draft_s = self._verify_s, self._draft_s
        self.left, self._verify_s, self._draft_s = 0, [], 0.0
        if not times:
            return None
        return RoundReport(
            drafted=0,
            tested=0,
            accepted=0,
            refused=False,
            draft_s=draft_s / len(times),
            verify_s=statistics.median(times),
            context=self._context,
            rounds=len(times),
        )
