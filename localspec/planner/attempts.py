"""What rounds with a drafter that says how sure it is took and brought: the value of asking it at all.

Counts are kept rather than values, so that an attempt is judged at today's costs, not at those believed at its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

from localspec.planner.profile import Attempt

RECORD = 0.95  # what one attempt leaves of the weight of the ones before
SMALL = 1e-3  # share of attempts that is not worth writing down
TOLD, REMEMBERED = 3.0, 12.0  # attempts that what was heard of counts as, at least and at most
RECENT = 0.8  # the same for what is compared with other drafters, which change places with the text
LOOK = 0.75  # the same for a look at something parked: what it shows counts more
LARGE = 1e100


class Attempts:
    """Sums over recent attempts, newer ones weighing more: each weighs more by a factor than the one before it."""

    __slots__ = ("_curve", "_emitted", "_memory", "_passes", "_rows", "_steps", "_unit", "_weight")

    def __init__(self, widest: int, memory: float = RECORD) -> None:
        self._memory = memory
        self._unit = 1.0  # the weight of the last attempt
        self._weight = self._steps = self._emitted = 0.0
        self._rows = [0.0] * (widest + 1)
        self._curve: Sequence[float] = ()  # that `_passes` holds for: what passes of such widths cost together
        self._passes = 0.0

    @property
    def weight(self) -> float:
        """How many attempts the sums are worth, the last one counting as one."""
        return self._weight / self._unit

    def know(self, attempt: Attempt) -> None:
        """Start from what attempts were like another day."""
        weight = min(REMEMBERED, max(TOLD, attempt.count))
        self._unit, self._weight = 1.0, weight
        for rows, share in attempt.rows:
            self._rows[min(rows, len(self._rows) - 1)] += weight * share
        self._steps, self._emitted = weight * attempt.steps, weight * attempt.emitted
        self._curve = ()

    @property
    def mean(self) -> Attempt | None:
        """What they are like, None before the first."""
        whole = self._weight
        if not whole:
            return None
        rows = tuple((n, count / whole) for n, count in enumerate(self._rows) if count > SMALL * whole)
        return Attempt(rows, self._steps / whole, self._emitted / whole, self.weight)

    def observe(self, *, rows: int, steps: float, emitted: int, look: bool) -> None:
        """One attempt: rows of its pass, draft steps, tokens it emitted."""
        self._unit /= min(LOOK, self._memory) if look else self._memory
        unit = self._unit
        self._weight += unit
        if rows >= len(self._rows):
            rows = -1
        self._rows[rows] += unit
        self._steps += steps * unit
        self._emitted += emitted * unit
        if self._curve:
            self._passes += self._curve[rows] * unit
        if unit > LARGE:
            self._rescale()

    def advantage(self, curve: Sequence[float], draft: float, worth: float = 1.0) -> float:
        """Tokens that an attempt brings beyond those its time is worth; 0.0 before the first.

        `curve` is t(n) / t(1); another one is another object.
        `worth`: tokens that a plain pass's time brings elsewhere.
        """
        if not self._weight:
            return 0.0
        if curve is not self._curve:
            self._curve, self._passes = curve, sum(map(mul, self._rows, curve))
        return (self._emitted - worth * (self._passes + self._steps * draft)) / self._weight

    def _rescale(self) -> None:
        unit, self._unit = self._unit, 1.0
        self._weight /= unit
        self._steps /= unit
        self._emitted /= unit
        self._curve = ()
        self._rows = [count / unit for count in self._rows]
