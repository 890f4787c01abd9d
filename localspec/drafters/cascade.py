"""Several drafters asked in order of price; the first that has something to say is heard.

A cheap one (lookup) answers where the text repeats itself, the next (a model) where it does not. Wins on mixed text.
Where a controller measures, each member has one of its own and it says whose turn it is (`planner.choice`), so that
little is lost elsewhere; with a fixed length a member whose drafts are hardly ever taken is left out for some answers.
A member that cannot be opened, or fails, is named in a warning, and the others go on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from localspec.core.draft import EMPTY, Draft, Ids, Verdict
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Lender
from localspec.drafters.members import COMBINING, Members
from localspec.engine.base import Cancelled, Pass
from localspec.errors import UsageError

MEMORY = 0.85
"""What one more draft leaves of the weight of a member's record."""
POOR = 0.15
"""Tokens taken per draft below which a member is left out."""
LONGEST_REST = 16
"""Answers that a member is left out of at most."""


@dataclass(frozen=True)
class Options:
    """What a user can set with -o.

    order  drafters by name, the cheapest first
    """

    order: str = "ngram,model"

    def __post_init__(self) -> None:
        if len(set(self.names)) < max(2, len(self.names)) or set(self.names) & set(COMBINING):
            raise UsageError(
                f"option order is {self.order!r}", hint="Name two or more other drafters, like order=ngram,model."
            )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.order.split(",") if name.strip())


@dataclass
class Record:
    """Of one member: the tokens taken per draft. Starts from a good opinion.

    One that is poor is left out for the rest of the answer, because the longer a drafter is not asked the more it has
    to read before it can draft again; and then for 1, 2, 4, ... answers, as long as it stays poor.
    """

    gain: float = 1.0
    rest: int = 0
    pause: int = 1

    def begin(self) -> None:
        """Another answer: does it take part? Whoever comes back gets a chance."""
        if self.rest:
            self.rest -= 1
        elif self.gain > POOR:
            self.pause = 1
        if not self.rest:
            self.gain = max(self.gain, 1.3 * POOR)

    def learn(self, taken: int) -> None:
        """What came of one draft."""
        self.gain = MEMORY * self.gain + (1.0 - MEMORY) * taken
        if self.gain <= POOR and not self.rest:
            self.rest, self.pause = 1 + self.pause, min(LONGEST_REST, 2 * self.pause)  # 1: the rest of this answer


class Cascade:
    """The drafter; its members are built by the lender, so that no technique knows another."""

    name = "cascade"

    def __init__(self, options: Options, lender: Lender) -> None:
        """Raises `DrafterError` when no member can be opened."""
        self.options = options
        self.heard = "none"
        self._members = Members("The cascade", options.names, lender)
        self._records = {name: Record() for name in self._members.names}
        self._is_measured = False  # somebody else minds who pays

    @property
    def members(self) -> list[str]:
        """Those that could be opened and have not failed."""
        return self._members.names

    def begin(
        self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled, later: Collection[str] = ()
    ) -> None:
        """A new answer for all that take part."""
        for name in self.members:
            self._records[name].begin()
        takes_part = [name for name in self.members if not self._records[name].rest]
        self._members.begin(takes_part, tokens, sampling=sampling, rule=rule, cancelled=cancelled, later=later)

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        """The draft of whoever the controller asks; without one that chooses, the first that is not empty."""
        self._is_measured = budget.turns is not None
        if budget.turns:
            self.heard, draft = self._members.drafted(tokens, budget.turns())
            return draft
        for name in self.members:
            if not self._records[name].rest:
                self.heard, draft = self._members.drafted(tokens, [(name, budget)])
                if len(draft):
                    return draft
        self.heard = "none"
        return EMPTY

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Tell the one that spoke what became of its draft and the others that a round is over; keep its record."""
        if verdict is not None and self.heard in self._records and not self._is_measured:
            self._records[self.heard].learn(len(verdict.path))
        self._members.observe(result, verdict, heard=self.heard)

    def close(self) -> None:
        self._members.close()
