"""Several drafters asked in order of price; the first that has something to say is heard.

A cheap one (lookup) answers where the text repeats itself, the next (a model) where it does not. Wins on mixed text;
loses little elsewhere: the cascade minds, by the clock, what each member costs and brings, lets one draft no further
than its own steps pay for, and leaves out one that does not pay. A member that cannot be opened, or fails, is named in
a warning, and the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from localspec.core.draft import EMPTY, Draft, Ids, Verdict
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Drafter, Lender
from localspec.drafters.members import COMBINING, Members
from localspec.engine.base import Cancelled, Pass
from localspec.errors import UsageError

T = TypeVar("T")

MEMORY = 0.85
"""What one more answer leaves of the weight of a member's record."""
FREE = 0.02
"""A member that takes less for a token, in plain passes, is asked in every round: whether its rows pay is not its
business but that of the controller.
"""
LONGEST_REST = 16
"""Answers that a member is left out of at most."""
POOR = 0.15
"""Where a fixed length was asked for the clock has no say: there one that brings fewer tokens a draft is left out."""
HOPE = 1.3
"""What a member is thought to bring for its cost when it is looked at again."""


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
class Member:
    """A drafter with its record, in plain passes.

    gain: tokens taken per question; cost: of drafting and of more rows; step: of drafting one token. Starts from a good
    opinion. One that does not pay is left out for the rest of the answer, because the longer a drafter is not asked
    the more it has to read before it can draft again; and then for 1, 2, 4, ... answers, as long as it does not pay.
    """

    drafter: Drafter
    gain: float = 1.0
    cost: float = 0.5
    step: float = 0.0
    rest: int = 0
    pause: int = 1

    @property
    def pays(self) -> bool:
        return self.step < FREE or self.cost < self.gain

    def begin(self) -> None:
        """Another answer: does it take part?"""
        if self.rest:
            self.rest -= 1
        elif self.pays:
            self.pause = 1
        if not self.rest and not self.pays:
            self.gain = HOPE * self.cost

    def learn(self, *, gain: float, cost: float, step: float) -> None:
        """What came of one answer."""
        self.gain = MEMORY * self.gain + (1.0 - MEMORY) * gain
        self.cost = MEMORY * self.cost + (1.0 - MEMORY) * cost
        self.step = MEMORY * self.step + (1.0 - MEMORY) * step
        if not self.pays and not self.rest:
            self.rest, self.pause = 1 + self.pause, min(LONGEST_REST, 2 * self.pause)  # 1: the rest of this answer

    def minded(self, budget: Budget) -> Budget:
        """A budget that also asks whether a token pays for the step that drafts the one behind it."""
        if not budget.asks or self.step < FREE:
            return budget
        joint = 1.0

        def pays(depth: int, confidence: float) -> bool:
            nonlocal joint
            joint = (joint if depth > 1 else 1.0) * confidence
            return joint > self.step + budget.price(depth + 1) - budget.price(depth) and budget.pays(depth, confidence)

        return replace(budget, pays=pays)


class Cascade:
    """The drafter; its members are built by the lender, so that no technique knows another."""

    name = "cascade"

    def __init__(self, options: Options, lender: Lender) -> None:
        """Raises `DrafterError` when no member can be opened."""
        self.options = options
        self._drafters = Members("The cascade", options.names, lender)
        self._members = [Member(self._drafters[name]) for name in self._drafters.names]
        self._asked: list[tuple[Member, float]] = []  # in the round under way, with the seconds it took
        self._heard: Member | None = None
        self._minds_clock = True
        self._drafted = 0
        self._price = 1.0  # of the round's pass, in plain passes
        self._handed_over = 0.0  # when its draft was

    @property
    def heard(self) -> str:
        """Whose draft the last one was."""
        return self._heard.drafter.name if self._heard else "none"

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        """A new answer for all that take part."""
        for member in list(self._members):
            member.begin()
            if member.rest:
                continue
            begin = partial(member.drafter.begin, tokens, sampling=sampling, rule=rule, cancelled=cancelled)
            self._harmless(member, begin, None)

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        """The first draft that is not empty."""
        self._asked, self._heard = [], None
        draft = EMPTY
        for member in list(self._members):
            if member.rest:
                continue
            started = time.perf_counter()
            draft = self._harmless(member, partial(member.drafter.propose, tokens, member.minded(budget)), EMPTY)
            self._asked.append((member, time.perf_counter() - started))
            if len(draft):
                self._heard = member
                break
        self._minds_clock = budget.asks
        self._drafted, self._price = len(draft), max(1.0, budget.price(1 + len(draft)))
        self._handed_over = time.perf_counter()
        return draft

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Tell the one that spoke what became of its draft and the others that a round is over; keep their records."""
        plain_s = (time.perf_counter() - self._handed_over) / self._price
        if verdict is not None and self._minds_clock:
            for member, seconds in self._asked:
                asked = seconds / plain_s
                if member is self._heard:
                    step = asked / (1 + self._drafted)
                    member.learn(gain=len(verdict.path), cost=asked + self._price - 1.0, step=step)
                else:
                    member.learn(gain=0.0, cost=asked, step=asked)
        elif verdict is not None and self._heard is not None:
            self._heard.learn(gain=len(verdict.path), cost=POOR, step=1.0)
        for member in list(self._members):
            outcome = verdict if member is self._heard else None
            self._harmless(member, partial(member.drafter.observe, result, outcome), None)

    def close(self) -> None:
        self._drafters.close()

    def _harmless(self, member: Member, step: Callable[[], T], otherwise: T) -> T:
        result = self._drafters.harmless(member.drafter.name, step, otherwise)
        if member.drafter.name not in self._drafters:
            self._members.remove(member)
        return result
