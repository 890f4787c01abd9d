"""What drafting a tree costs: so much for every draft pass, and so much for every node that shares it.

Only the time of all passes of a round is known, so the two are fitted together, recent rounds weighing more. Knows no
clock: seconds come in.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.planner.costs import FIRST, TICK, clipped

MEMORY = 0.97  # what one more round leaves of the weight of the ones before
SHARE = 0.15  # cost of one more node before any was measured, in passes
WEIGHT = 4.0  # the guess counts as so many nodes


class LayerCosts:
    """Seconds of the draft passes of a round, as a function of how many nodes each of them held."""

    def __init__(self) -> None:
        self.passed = TICK
        """Seconds of a pass over one node."""
        self.node = 0.0
        """Seconds of one more node in it."""
        self.count = 0
        # Sums of products of passes, further nodes and seconds.
        self._pp = self._pn = self._nn = self._ps = self._ns = 0.0

    def steps(self, widths: Sequence[int]) -> float:
        """How many passes over one node take as long as passes over so many nodes each."""
        passes = len(widths)
        return passes + self.node / self.passed * (sum(widths) - passes)

    def observe(self, widths: Sequence[int], seconds: float) -> None:
        """These passes took so long together."""
        passes, nodes = float(len(widths)), float(sum(widths) - len(widths))
        if self.count >= FIRST:
            before = self.passed * passes + self.node * nodes
            seconds = before * clipped(seconds / before)
        self.count += 1
        self._pp = MEMORY * self._pp + passes * passes
        self._pn = MEMORY * self._pn + passes * nodes
        self._nn = MEMORY * self._nn + nodes * nodes
        self._ps = MEMORY * self._ps + passes * seconds
        self._ns = MEMORY * self._ns + nodes * seconds
        self._fit()

    def _fit(self) -> None:
        """Least squares, with the guess that a node costs `SHARE` of a pass as further observations."""
        pp, pn, nn = self._pp + WEIGHT * SHARE * SHARE, self._pn - WEIGHT * SHARE, self._nn + WEIGHT
        determinant = pp * nn - pn * pn
        passed, node = (nn * self._ps - pn * self._ns) / determinant, (pp * self._ns - pn * self._ps) / determinant
        self.passed, self.node = passed if passed > TICK else TICK, node if node > 0.0 else 0.0
