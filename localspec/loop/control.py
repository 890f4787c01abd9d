"""The seam of length control: how many tokens to draft next. `planner.controller` holds the measuring one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable


class RoundReport(NamedTuple):
    """One finished round, in the controller's terms; times in seconds.

    drafted, tested, accepted   nodes
    refused        the round ended because nothing that hung below the last token was accepted
    draft_s        spent in the drafter's propose and observe
    verify_s       spent in the verifier's pass (evaluate and commit)
    taken          of each accepted node, how likely the drafter said the path down to it was
    drafter        whose draft it was, where there are several
    confidences    what the drafter said, before drawing, of the tokens at each depth of the path that was tested; may
                   be shorter than that path
    rounds         that are told as one: alike, without a draft; the times are those of one of them
    """

    drafted: int
    tested: int
    accepted: int
    refused: bool
    draft_s: float
    verify_s: float
    confidences: tuple[float, ...] = ()
    taken: tuple[float, ...] = ()
    drafter: str = ""
    rounds: int = 1


class Controller(Protocol):
    """Decides from the past, never from a row not yet used, how far the next draft may go."""

    @property
    def asks(self) -> bool:
        """False when `pays` says yes to everything, so that nobody need find out how sure a row is."""
        ...

    def read(self, count: int, seconds: float) -> None:
        """The verifier has read so many tokens of a prompt in this time."""
        ...

    def begin(self, prompt: int) -> bool:
        """Another answer, to so many tokens: should the drafter read them now, or only when it is first asked?"""
        ...

    def limit(self, room: int) -> int:
        """Most tokens the next draft may hold, 0 .. room; 0 means a plain pass. Not asked in a rest."""
        ...

    @property
    def rest(self) -> int:
        """How many rounds may now pass unheard, their limit that of the last one, as long as nothing is drafted.

        They are observed as one when the rest is over.
        """
        ...

    def may_pay(self, confidence: float) -> bool:
        """Could a draft pay whose first token is right with at most this probability? Asked about no token yet."""
        ...

    def pays(self, depth: int, confidence: float) -> bool:
        """Does one more token at `depth` pay if it is right with probability `confidence`?"""
        ...

    def choose(self, joints: Sequence[float]) -> int:
        """How many nodes of a tree, best first, each reached and taken with this probability, are worth their rows?"""
        ...

    def widen(self, depth: int, joints: Sequence[float]) -> int:
        """How many nodes of a tree, best first, each reached and taken with this probability, are worth being expanded?

        One more draft pass, for `depth`, expands all of them.
        """
        ...

    def price(self, count: int) -> float:
        """What a verifier pass over `count` tokens costs in plain passes, as far as it is known."""
        ...

    def observe(self, report: RoundReport) -> None:
        """Learn from a finished round."""
        ...

    def explain(self) -> str:
        """One line: what is chosen now and why."""
        ...

    def warnings(self) -> list[str]:
        """Lines about a pair that cannot work well, each given out once."""
        ...


@runtime_checkable
class Chooser(Controller, Protocol):
    """A controller that also decides which of several drafters is asked."""

    @property
    def later(self) -> Collection[str]:
        """Those that had better read the prompt only when they are first asked, as of the last `begin`."""
        ...

    def turns(self) -> Iterable[tuple[str, int, bool]]:
        """Who is asked in this round, in order, with the most nodes of its draft, and whether that may be a tree.

        To be taken one by one: who comes next may depend on what the one before said of its guesses.
        """
        ...


@dataclass(frozen=True)
class FixedLength:
    """Always N, whatever happens: for benchmarks and for people who know."""

    N: int
    asks: bool = False
    rest: int = 64
    """There is nothing to learn."""

    def read(self, count: int, seconds: float) -> None:
        return None

    def begin(self, prompt: int) -> bool:
        return self.N > 0

    def limit(self, room: int) -> int:
        return min(self.N, room)

    def may_pay(self, confidence: float) -> bool:
        return True

    def pays(self, depth: int, confidence: float) -> bool:
        return True

    def choose(self, joints: Sequence[float]) -> int:
        return len(joints)

    def widen(self, depth: int, joints: Sequence[float]) -> int:
        return len(joints)

    def price(self, count: int) -> float:
        return 1.0

    def observe(self, report: RoundReport) -> None:
        return None

    def explain(self) -> str:
        return f"N={self.N}, as asked"

    def warnings(self) -> list[str]:
        return []
