"""The seam of length control: how many tokens to draft next. `planner.controller` holds the measuring one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One finished round, in the controller's terms; times in seconds.

    drafted, tested, accepted   nodes
    depth          length of the accepted path plus one: tokens the round emitted
    draft_s        spent in the drafter's propose and observe
    verify_s       spent in the verifier's pass (evaluate and commit)
    context        tokens in the verifier's cache before the round
    confidences    what the drafter said of its tokens before drawing them, by depth; may be shorter than drafted
    """

    drafted: int
    tested: int
    accepted: int
    draft_s: float
    verify_s: float
    context: int
    confidences: tuple[float, ...] = ()


class Controller(Protocol):
    """Decides from the past, never from a row not yet used, how far the next draft may go."""

    def limit(self, room: int) -> int:
        """Most tokens the next draft may hold, 0 .. room; 0 means a plain pass."""
        ...

    def pays(self, depth: int, confidence: float) -> bool:
        """Does one more token at `depth` pay if it is right with probability `confidence`?"""
        ...

    def observe(self, report: RoundReport) -> None:
        """Learn from a finished round."""
        ...

    def explain(self) -> str:
        """One line: what is chosen now and why."""
        ...


@dataclass(frozen=True)
class FixedLength:
    """Always N, whatever happens: for benchmarks and for people who know."""

    N: int

    def limit(self, room: int) -> int:
        return min(self.N, room)

    def pays(self, depth: int, confidence: float) -> bool:
        return True

    def observe(self, report: RoundReport) -> None:
        return None

    def explain(self) -> str:
        return f"N={self.N}, as asked"
