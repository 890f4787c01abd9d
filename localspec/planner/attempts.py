"""What rounds with a drafter that says how sure it is took and brought: the value of asking it at all.

Counts are kept rather than values, so that an attempt is judged at today's costs, not at those believed at its time.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.planner.profile import Attempt

RECORD = 0.95  # what one attempt leaves of the weight of the ones before
SMALL = 1e-3  # share of attempts that is not worth writing down
TOLD = 3.0  # attempts that what was heard of counts as
LOOK = 0.75  # the same for a look at something parked: what it shows counts more


class Attempts:
    """Sums over recent attempts, newer ones weighing more."""

    def __init__(self, widest: int) -> None:
        self.weight = 0.0
        self._rows = [0.0] * (widest + 1)
        self._steps = 0.0
        self._emitted = 0.0

    def know(self, attempt: Attempt) -> None:
        """Start from what attempts were like another day."""
        self.weight = TOLD
        for rows, share in attempt.rows:
            self._rows[min(rows, len(self._rows) - 1)] += TOLD * share
        self._steps, self._emitted = TOLD * attempt.steps, TOLD * attempt.emitted

    @property
    def mean(self) -> Attempt | None:
        """What they are like, None before the first."""
        if not self.weight:
            return None
        rows = tuple((n, count / self.weight) for n, count in enumerate(self._rows) if count > SMALL * self.weight)
        return Attempt(rows, self._steps / self.weight, self._emitted / self.weight)

    def observe(self, *, rows: int, steps: float, emitted: int, look: bool) -> None:
        """One attempt: rows of its pass, draft steps, tokens it emitted."""
        fade = LOOK if look else RECORD
        self.weight = fade * self.weight + 1.0
        self._rows = [fade * count for count in self._rows]
        self._rows[min(rows, len(self._rows) - 1)] += 1.0
        self._steps = fade * self._steps + steps
        self._emitted = fade * self._emitted + emitted

    def advantage(self, curve: Sequence[float], draft: float) -> float:
        """Tokens that an attempt brings beyond those its time is worth in plain passes; 0.0 before the first."""
        if not self.weight:
            return 0.0
        passes = sum(count * cost for count, cost in zip(self._rows, curve, strict=True))
        return (self._emitted - passes - self._steps * draft) / self.weight
