"""Several drafters asked in order of price; the first that has something to say is heard.

A cheap one (lookup) answers where the text repeats itself, the next (a model) where it does not. Wins on mixed text;
loses nothing but the time of asking. A member whose drafts keep being refused is asked less often.
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.core.draft import EMPTY, Draft, Ids, Verdict
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Drafter, Lender
from localspec.engine.base import Cancelled, Pass
from localspec.errors import UsageError

MEMORY = 0.9
"""What one more draft leaves of the weight of a member's record."""
POOR = 0.15
"""A member of whose first tokens less than this share is taken is asked only now and then."""
PAUSE = 8
"""Rounds between two questions to such a member."""


@dataclass(frozen=True)
class Options:
    """What a user can set with -o.

    order  drafters by name, the cheapest first
    """

    order: str = "ngram,model"

    def __post_init__(self) -> None:
        if len(set(self.names)) < 2 or "cascade" in self.names:
            raise UsageError(
                f"option order is {self.order!r}", hint="Name at least two other drafters, like order=ngram,model."
            )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.order.split(",") if name.strip())


@dataclass
class Member:
    """A drafter with its record: the share of its drafts whose first token was taken."""

    drafter: Drafter
    taken: float = 1.0
    heard: float = 2.0
    silent: int = 0

    @property
    def is_poor(self) -> bool:
        return self.taken / self.heard < POOR

    def learn(self, taken: bool) -> None:
        self.taken = MEMORY * self.taken + taken
        self.heard = MEMORY * self.heard + 1.0


class Cascade:
    """The drafter; its members are built by the lender, so that no technique knows another."""

    name = "cascade"

    def __init__(self, options: Options, lender: Lender) -> None:
        self.options = options
        self._members = [Member(lender.drafter(name)) for name in options.names]
        self._last: Member | None = None

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        """A new answer for all of them."""
        for member in self._members:
            member.drafter.begin(tokens, sampling=sampling, rule=rule, cancelled=cancelled)

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        """The first draft that is not empty."""
        self._last = None
        for member in self._members:
            if member.is_poor and member.silent < PAUSE:
                member.silent += 1
                continue
            member.silent = 0
            draft = member.drafter.propose(tokens, budget)
            if len(draft):
                self._last = member
                return draft
        return EMPTY

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Tell the one that spoke what became of its draft, and the others that a round is over."""
        for member in self._members:
            spoke = member is self._last
            member.drafter.observe(result, verdict if spoke else None)
            if spoke and verdict is not None and verdict.tested:
                member.learn(bool(verdict.path))

    def close(self) -> None:
        for member in self._members:
            member.drafter.close()
