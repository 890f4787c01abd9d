"""Rests: rounds without a draft that a controller hears of as one, when they are over.

A round takes a few milliseconds and every line of Python in it runs on a cold cache, so what need not be said is not.
"""

from __future__ import annotations

import statistics
from typing import Protocol

from localspec.loop.control import RoundReport


class Resting(Protocol):
    """What is used of a `loop.control.Controller`."""

    @property
    def rest(self) -> int: ...
    def limit(self, room: int) -> int: ...
    def observe(self, report: RoundReport) -> None: ...


class Rest:
    """Stands between the loop and a controller: asks and tells it, unless it rests."""

    __slots__ = ("_controller", "_draft_s", "_left", "_limit", "_verify_s")

    def __init__(self, controller: Resting) -> None:
        self._controller = controller
        self._left = 0  # rounds that the rest under way may still last
        self._limit = 0  # of the drafts in it, or of the last round
        self._draft_s = 0.0
        self._verify_s: list[float] = []

    @property
    def is_parked(self) -> bool:
        """Is nothing to be drafted in this round, whatever room there is?"""
        return self._left > 0 and not self._limit

    def limit(self, room: int) -> int:
        """As `Controller.limit`."""
        if self._left:
            return min(self._limit, room)
        self._limit = self._controller.limit(room)
        return self._limit

    def takes(self, *, draft_s: float, verify_s: float) -> bool:
        """A round in which nothing was drafted: does it belong to a rest, so that there is nothing more to say?"""
        if not self._left:
            return False
        self._left -= 1
        self._draft_s += draft_s
        self._verify_s.append(verify_s)
        if not self._left:
            self.end()
        return True

    def tell(self, report: RoundReport) -> None:
        """Let the controller learn from a round, at once or when its rest is over."""
        if not report.drafted and self.takes(draft_s=report.draft_s, verify_s=report.verify_s):
            return
        self.end()
        self._controller.observe(report)
        if not report.drafted:
            self._left = self._controller.rest

    def end(self) -> None:
        """The rest is over, if there was one: tell what it was."""
        times, draft_s = self._verify_s, self._draft_s
        self._left, self._verify_s, self._draft_s = 0, [], 0.0
        if times:
            self._controller.observe(
                RoundReport(
                    drafted=0,
                    tested=0,
                    accepted=0,
                    refused=False,
                    draft_s=draft_s / len(times),
                    verify_s=statistics.median(times),
                    rounds=len(times),
                )
            )
