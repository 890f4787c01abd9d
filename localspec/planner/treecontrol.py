"""The controller behind `--tree auto`: whether to draft a tree, how many layers, and how many nodes to keep.

A node is kept while its expected gain pays for its share of the pass: the number of nodes is the one with the most
expected tokens per time, by the measured t(n) (cf. Sequoia's hardware-aware trees, Chen et al. 2024). The argument why
this cannot bias the law is `planner.controller`'s, with one addition: nodes are only left out by what is known of them
where they are deterministic picks; drawn siblings are planned before the draw.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.planner.controller import DOUBT, HORIZON, RESERVE, AutoLength, Report
from localspec.planner.profile import Profile

NODES = 31
MEMORY = 0.97
"""What one more round leaves of the weight of the record of promises."""


class AutoTree(AutoLength):
    """Chooses the size of every tree for the most tokens per second; plain decoding is a choice."""

    def __init__(self, profile: Profile | None = None, *, nodes: int = NODES) -> None:
        super().__init__(profile, longest=nodes)
        self._layers = 0
        self._promised = self._kept = 4.0  # accepted tokens: by the joint probabilities, and as it turned out

    def limit(self, room: int) -> int:
        """Most nodes of the next tree, 0 .. room; 0 means a plain pass."""
        self._limit, self._layers, self._looking, self._joint = 0, 0, False, 0.0
        if room > 0 and self._passes.count(1) >= 2 and self._is_worth_trying():
            self._limit, self._layers = min(room, self._longest), 1
        return self._limit

    def pays(self, depth: int, chance: float) -> bool:
        """Is one more draft pass for `depth` worth it, if its parents are reached with probability `chance`?"""
        slope = (self._passes.hoped[min(depth + 1, self._longest)] - 1.0) / depth
        pays = chance * self._trust * self._acceptance.mean > self._worth * (self._draft + slope)
        self._layers += pays
        return pays

    def choose(self, joints: Sequence[float]) -> int:
        """How many of the nodes, best first, bring the most tokens per time."""
        curve, drafted = self._passes.hoped, max(1, self._layers) * self._draft
        best, best_rate, gain = 0, 1.0 / (1.0 + drafted), 0.0
        chosen = 0.0
        for count, joint in enumerate(joints[: self._longest], start=1):
            gain += self._trust * joint
            rate = (1.0 + gain) / (curve[count + 1] + drafted)
            if rate > best_rate:
                best, best_rate, chosen = count, rate, gain
        self._joint = chosen
        return best

    def observe(self, report: Report) -> None:
        """Learn from a finished round."""
        if report.drafted and self._joint:
            self._promised = MEMORY * self._promised + self._joint / self._trust
            self._kept = MEMORY * self._kept + report.accepted
        super().observe(report)

    def _steps(self, report: Report) -> int:
        return self._layers

    @property
    def _trust(self) -> float:
        """What the drafter's probabilities are worth, by what became of its trees."""
        return min(1.5, max(0.1, self._kept / self._promised))

    @property
    def _worth(self) -> float:
        """Tokens that the time of a plain pass brings elsewhere."""
        return max(1.0, self._tokens / self._spent)

    def _is_worth_trying(self) -> bool:
        """Do trees pay on average, or is it time to look again?"""
        advantage = self._attempts.advantage(self._passes.hoped, self._draft)
        if advantage > 0.0 and HORIZON * advantage >= self._missed * self._lag:
            return True
        price = self._draft - advantage + self._missed * self._lag
        curious = advantage + DOUBT / (1.0 + self._attempts.weight) ** 0.5 > 0.0 and self._purse > price + RESERVE
        self._looking = self._idle >= self._gap and self._purse > price
        return curious or self._looking
