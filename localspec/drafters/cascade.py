"""Several drafters asked in order of price; the first that has something to say is heard.

A cheap one (lookup) answers where the text repeats itself, the next (a model) where it does not. Wins on mixed text;
loses little elsewhere, because a member that costs more than it brings, by the clock, is asked only now and then. A
member that cannot be opened, or fails, is named in a warning, and the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from localspec.core.draft import EMPTY, Draft, Ids, Verdict
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Drafter, Lender
from localspec.engine.base import Cancelled, Pass
from localspec.errors import DrafterError, LocalspecError, UsageError

T = TypeVar("T")

MEMORY = 0.9
"""What one more answer leaves of the weight of a member's record."""
FREE = 0.02
"""A member that costs less, in plain passes, is asked in every round."""
PAUSE, LONGEST_PAUSE = 4, 64
"""Rounds before a member that does not pay is looked at again; they double each time that it still does not."""


@dataclass(frozen=True)
class Options:
    """What a user can set with -o.

    order  drafters by name, the cheapest first
    """

    order: str = "ngram,model"

    def __post_init__(self) -> None:
        if len(set(self.names)) < max(2, len(self.names)) or "cascade" in self.names:
            raise UsageError(
                f"option order is {self.order!r}", hint="Name two or more other drafters, like order=ngram,model."
            )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.order.split(",") if name.strip())


@dataclass
class Member:
    """A drafter with its record, in plain passes. gain: tokens taken per question; cost: of drafting and of more rows.

    Starts from a good opinion. A member that was left out has to catch up with the text, and what that costs says
    nothing about it; so a look takes two questions, of which the second counts.
    """

    drafter: Drafter
    gain: float = 1.0
    cost: float = 0.5
    silent: int = 0
    pause: int = PAUSE
    catching_up: bool = False

    @property
    def pays(self) -> bool:
        return self.cost < max(FREE, self.gain)

    def is_due(self) -> bool:
        """Ask it in this round? Called once a round that comes so far."""
        self.catching_up = not self.pays and not self.catching_up and self.silent >= self.pause
        due = self.pays or self.silent >= self.pause
        self.silent = self.silent + 1 if not due or self.catching_up else 0
        return due

    def learn(self, gain: float, cost: float) -> None:
        """What came of one answer."""
        if self.catching_up:
            return
        self.gain = MEMORY * self.gain + (1.0 - MEMORY) * gain
        self.cost = MEMORY * self.cost + (1.0 - MEMORY) * cost
        self.pause = PAUSE if self.pays else min(LONGEST_PAUSE, 2 * self.pause)


class Cascade:
    """The drafter; its members are built by the lender, so that no technique knows another."""

    name = "cascade"

    def __init__(self, options: Options, lender: Lender) -> None:
        """Raises `DrafterError` when no member can be opened."""
        self.options = options
        self._warn = lender.warn
        opened = [self._opened(name, lender) for name in options.names]
        self._members = [Member(drafter) for drafter in opened if drafter is not None]
        if not self._members:
            raise DrafterError(f"no drafter of {options.order} can be used")
        self._asked: list[tuple[Member, float]] = []  # in the round under way, with the seconds it took
        self._heard: Member | None = None
        self._price = 1.0  # of the round's pass, in plain passes
        self._handed_over = 0.0  # when its draft was

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        """A new answer for all of them."""
        for member in list(self._members):
            begin = partial(member.drafter.begin, tokens, sampling=sampling, rule=rule, cancelled=cancelled)
            self._harmless(member, begin, None)

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        """The first draft that is not empty."""
        self._asked, self._heard = [], None
        draft = EMPTY
        for member in list(self._members):
            if not member.is_due():
                continue
            started = time.perf_counter()
            draft = self._harmless(member, partial(member.drafter.propose, tokens, budget), EMPTY)
            self._asked.append((member, time.perf_counter() - started))
            if len(draft):
                self._heard = member
                break
        self._price = max(1.0, budget.price(1 + len(draft)))
        self._handed_over = time.perf_counter()
        return draft

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Tell the one that spoke what became of its draft and the others that a round is over; keep their records."""
        plain_s = (time.perf_counter() - self._handed_over) / self._price
        if verdict is not None:
            for member, seconds in self._asked:
                heard = member is self._heard
                rows = self._price - 1.0 if heard else 0.0
                member.learn(len(verdict.path) if heard else 0.0, seconds / plain_s + rows)
        for member in list(self._members):
            outcome = verdict if member is self._heard else None
            self._harmless(member, partial(member.drafter.observe, result, outcome), None)

    def close(self) -> None:
        for member in self._members:
            member.drafter.close()

    def _opened(self, name: str, lender: Lender) -> Drafter | None:
        try:
            return lender.drafter(name)
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001  whatever is wrong with one, the others go on
            self._warn(f"The cascade goes on without {name}: {_told(error)}")
        return None

    def _harmless(self, member: Member, step: Callable[[], T], otherwise: T) -> T:
        """What `step` returns; if it fails its member leaves, and the last one takes the cascade along."""
        try:
            return step()
        except Exception as error:
            if len(self._members) == 1:
                raise
            self._members.remove(member)
            self._warn(f"The cascade goes on without {member.drafter.name}, which failed: {_told(error)}")
            member.drafter.close()
        return otherwise


def _told(error: Exception) -> str:
    """An error and its remedy in one line."""
    reason = str(error).rstrip(".") or type(error).__name__
    return f"{reason}. {error.hint}".rstrip() if isinstance(error, LocalspecError) else f"{reason}."
