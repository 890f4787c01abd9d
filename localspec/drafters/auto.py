"""Several drafters; the controller says before every round who is asked: `planner.choice` measures and decides.

Wins where a text changes between what one drafter is good at and what another is. Loses what looking at the others now
and then costs. Without a controller that chooses, the members are asked in order until one has something to say.
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

USUAL = "model,ngram"


@dataclass(frozen=True)
class Options:
    """What a user can set with -o.

    among  drafters by name, the one to start with first; empty: the pair's own, and what else suits the pair
    """

    among: str = ""

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names)) < len(self.names) or set(self.names) & {*COMBINING, "none"}:
            raise UsageError(
                f"option among is {self.among!r}",
                hint="Name other drafters, like among=model,ngram; not to draft is always one of the choices.",
            )

    @property
    def names(self) -> tuple[str, ...]:
        """`USUAL` where no pair says what suits it."""
        return tuple(name.strip() for name in (self.among or USUAL).split(",") if name.strip())


class Auto:
    """The drafter; its members are built by the lender, so that no technique knows another."""

    name = "auto"

    def __init__(self, options: Options, lender: Lender) -> None:
        """Raises `DrafterError` when no member can be opened."""
        self.options = options
        self.heard = "none"
        self._members = Members("Drafter auto", options.names, lender)

    @property
    def members(self) -> list[str]:
        """Those that could be opened and have not failed."""
        return self._members.names

    def begin(
        self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled, later: Collection[str] = ()
    ) -> None:
        """A new answer for all of them."""
        self._members.begin(self.members, tokens, sampling=sampling, rule=rule, cancelled=cancelled, later=later)

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        """The draft of whoever the controller asks; without one that chooses, the first that is not empty."""
        if budget.turns:
            self.heard, draft = self._members.drafted(tokens, budget.turns())
            return draft
        for name in self.members:
            self.heard, draft = self._members.drafted(tokens, [(name, budget)])
            if len(draft):
                return draft
        return EMPTY

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Tell the one whose draft it was what became of it, and the others that a round is over."""
        self._members.observe(result, verdict, heard=self.heard)

    def close(self) -> None:
        self._members.close()
