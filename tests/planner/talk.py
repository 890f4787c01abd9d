"""How the loop talks with a controller, rests included: what `loop.generation` does, for simulations."""

from __future__ import annotations

from typing import Any

from localspec.loop.control import RoundReport
from localspec.loop.rest import Rest


class Talk:
    """Asks and tells one controller; a double that knows no rest hears of every round."""

    def __init__(self, controller: Any) -> None:
        self._controller = controller
        self._rest = Rest()
        self._limit = 0

    def limit(self, room: int) -> int:
        rest = self._rest
        self._limit = min(rest.limit, room) if rest.left else self._controller.limit(max(room, 0))
        return self._limit

    def tell(self, report: RoundReport) -> None:
        rest = self._rest
        if rest.left and not report.drafted:
            rest.add(draft_s=report.draft_s, verify_s=report.verify_s)
            if not rest.left:
                self.end()
            return
        self.end()
        self._controller.observe(report)
        if not report.drafted:
            rounds = getattr(self._controller, "rest", 0)
            rest.begin(rounds, limit=self._limit, context=report.context + report.accepted + 1)

    def end(self) -> None:
        report = self._rest.end()
        if report:
            self._controller.observe(report)
