"""How often a sibling is taken when its elders were refused, by its rank; and the tree that such rates ask for.

A tree for sampled siblings has to be settled before they are drawn, so it is planned from the past: places are added
by their chance of being reached and taken, as long as they are worth their rows (cf. Sequoia, Chen et al. 2024).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from localspec.core.draft import ROOT, Draft, Verdict
from localspec.core.growth import Growth
from localspec.core.shapes import Place, Shape

PRIOR = (0.65, 0.35, 0.25, 0.2, 0.15, 0.12, 0.1, 0.1)
WEIGHT = 8.0
"""The prior counts as this many tests."""
MEMORY = 0.99
"""What one more test of a rank leaves of the weight of its record."""

LEAST = 0.01
"""No rate is believed to be nearer to 0 or 1."""


class Ranks:
    """Running rates of one drafter."""

    def __init__(self) -> None:
        self._taken = [WEIGHT * rate for rate in PRIOR]
        self._tested = [WEIGHT] * len(PRIOR)

    def rate(self, rank: int) -> float:
        """Chance of a sibling of this rank, given that its elders were refused."""
        rank = min(rank, len(PRIOR) - 1)
        return min(max(self._taken[rank] / self._tested[rank], LEAST), 1.0 - LEAST)

    def learn(self, draft: Draft, verdict: Verdict) -> None:
        """Count the tests of one verdict."""
        for parent, taken in zip((ROOT, *verdict.path), (*verdict.path, None), strict=True):
            for rank, node in enumerate(draft.children.get(parent, ())):
                at = min(rank, len(PRIOR) - 1)
                self._taken[at] = MEMORY * self._taken[at] + (node == taken)
                self._tested[at] = MEMORY * self._tested[at] + 1.0
                if node == taken:
                    break

    def chances(self, count: int) -> list[float]:
        """Of the first `count` siblings, the chance of each to be the one that is taken."""
        left, chances = 1.0, []
        for rank in range(count):
            chances.append(left * self.rate(rank))
            left -= chances[-1]
        return chances


def plan(
    ranks: Ranks,
    growth: Growth,
    *,
    widen: Callable[[int, Sequence[float]], int],
    choose: Callable[[Sequence[float]], int],
) -> Shape:
    """The places with the best chances that `growth` has room for and `choose` finds worth their rows.

    widen  (depth, chances, best first) -> how many nodes that are reached with these are worth being expanded by one
           more draft pass, for `depth`
    """
    chances = ranks.chances(growth.width)
    places: list[Place] = []
    joints: list[float] = []
    leaves, inner = 0, set[Place]()
    expanded: dict[int, list[float]] = {}  # depth -> chances of the parents there
    closed: set[int] = set()  # depths that take no more parents: the next one would be less likely still
    waiting: list[tuple[float, Place]] = [(-chances[0], (0,))]
    while waiting and len(places) < growth.nodes:
        joint, place = heapq.heappop(waiting)
        parent, depth = place[:-1], len(place)
        splits = not parent or parent in inner
        if splits and leaves == growth.leaves:
            continue
        if parent and place[-1] == 0:
            parents = [*expanded.get(depth, ()), -joint / chances[0]]
            if depth in closed or widen(depth, parents) < len(parents):
                closed.add(depth)
                continue
            expanded[depth] = parents
        leaves += splits
        inner.add(parent)
        places.append(place)
        joints.append(-joint)
        rank = place[-1] + 1
        if rank < len(chances):
            heapq.heappush(waiting, (joint * chances[rank] / chances[rank - 1], (*parent, rank)))
        if depth < growth.depth:
            heapq.heappush(waiting, (joint * chances[0], (*place, 0)))
    return Shape(tuple(places[: choose(joints)]))
