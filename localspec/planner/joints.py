"""What a drafter's joint probabilities are worth: how many nodes it was as sure of were taken, of those it promised.

A draft is sure in its own way: at temperature 0 its favourite is taken far more often than its law says, its fourth
place less often. Knows nothing about trees or costs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from localspec.planner.profile import Claim

EDGES = (0.01, 0.02, 0.04, 0.07, 0.12, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9)
HONEST = 2.0  # promised tokens that weigh as much as the drafter's word, or as the word of all buckets
LARGE = 1e100
FRESH, FIRST_ROUNDS = 4, 32  # what promises are worth is reckoned anew every so many rounds, at first after each
MEMORY = 0.99  # what one more round leaves of the weight of the ones before
REMEMBERED = 12.0  # promised tokens of a size that those of another day count as, at most


class Joints:
    """The record of promises, by how large they were."""

    def __init__(self, known: Sequence[Claim] = ()) -> None:
        self._taken = [0.0] * (len(EDGES) + 1)
        self._promised = [0.0] * (len(EDGES) + 1)
        self._unit = 1.0  # the weight of the last round
        for claim in known:
            size, told = bisect_right(EDGES, claim.sure), claim.at_most(REMEMBERED)
            self._taken[size], self._promised[size] = told.accepted, told.of
        self._all_taken, self._all_promised = HONEST + sum(self._taken), HONEST + sum(self._promised)
        self._rounds = 0
        self._factors = self._learned()

    @property
    def promises(self) -> tuple[Claim, ...]:
        """What promises of each size were worth, as far as any was made."""
        said = zip((0.0, *EDGES), self._taken, self._promised, strict=True)
        return tuple(Claim(least, taken / self._unit, of / self._unit) for least, taken, of in said if of > 0.0)

    def believed(self, joint: float) -> float:
        """The probability of being taken of a node that the drafter gives `joint`."""
        worth = joint * self._factors[bisect_right(EDGES, joint)]
        return worth if worth < 1.0 else 1.0

    def all_believed(self, joints: Sequence[float]) -> list[float]:
        """The same of many nodes."""
        factors = self._factors
        return [worth if (worth := joint * factors[bisect_right(EDGES, joint)]) < 1.0 else 1.0 for joint in joints]

    def gains(self, joints: Sequence[float], *, share: float, price: float) -> list[float]:
        """What `share` of the probabilities believed of many nodes is beyond `price`, of those of which it is."""
        factors, most = self._factors, share - price  # of what is certain
        if most <= 0.0:
            return []
        return [
            gain if gain < most else most
            for joint in joints
            if (gain := share * joint * factors[bisect_right(EDGES, joint)] - price) > 0.0
        ]

    def learn(self, drafted: Sequence[float], taken: Sequence[float]) -> None:
        """One round: the joint probabilities of the nodes that were judged, and of those that were taken."""
        self._age()
        unit = self._unit
        for joint in drafted:
            self._promised[bisect_right(EDGES, joint)] += joint * unit
        for joint in taken:
            self._taken[bisect_right(EDGES, joint)] += unit
        self._all_taken += len(taken)
        self._all_promised += sum(drafted)
        self._refresh()

    def fade(self, rounds: int = 1) -> None:
        """Rounds are over: what was seen before counts less, and what is not seen again is forgiven in the end."""
        for _ in range(rounds):
            self._age()
            self._refresh()

    def _age(self) -> None:
        self._unit /= MEMORY
        if self._unit > LARGE:
            self._taken = [weight / self._unit for weight in self._taken]
            self._promised = [weight / self._unit for weight in self._promised]
            self._unit = 1.0
        self._all_taken += (1.0 - MEMORY) * (HONEST - self._all_taken)
        self._all_promised += (1.0 - MEMORY) * (HONEST - self._all_promised)

    def _refresh(self) -> None:
        self._rounds += 1
        if self._rounds % FRESH == 0 or self._rounds < FIRST_ROUNDS:
            self._factors = self._learned()

    def _learned(self) -> list[float]:
        """What a promise of each size is worth, in promises."""
        overall, honest = HONEST * self._all_taken / self._all_promised * self._unit, HONEST * self._unit
        return [
            (taken + overall) / (promised + honest) for taken, promised in zip(self._taken, self._promised, strict=True)
        ]
