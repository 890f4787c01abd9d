"""What the rounds of one verifier cost and brought, whoever drafted: shared by the controllers of several drafters.

Holds t(n), the mean speed, and the purse from which finding out is paid, so that several who are curious spend no more
together than one alone. Knows no clock and no drafter.
"""

from __future__ import annotations

from typing import Protocol

from localspec.planner.costs import PassCosts
from localspec.planner.profile import Profile

# All costs are in plain passes: seconds / t(1).
PURSE = 5.0  # what may be spent on finding out at the start
SEEDED = 2.0  # the same where a profile says what to expect, and not what was left
FULL = 8.0  # the most that can be saved up
DEBT = -1.0  # it can be emptied no further
WORST = -3.0  # nor is more than this of what drafts lost that should have paid held against it: hope would never return
ALLOWANCE = 0.01  # share of the time that may be spent on finding out
STAKE, SHARE = 1.5, 0.02  # what drafts may lose in an answer: at its start, and of its time
SURPRISE = 3.0  # a round that costs more than this beyond what was hoped has met an accident, which is not its fault
PACE = 0.03  # least weight of a round in the mean speed
SETTLED = round(1.0 / PACE) - 3  # rounds after which all weigh the same


class Report(Protocol):
    """What is read of a finished round; `loop.control.RoundReport` says what the fields mean."""

    @property
    def drafted(self) -> int: ...
    @property
    def tested(self) -> int: ...
    @property
    def accepted(self) -> int: ...
    @property
    def refused(self) -> bool: ...
    @property
    def draft_s(self) -> float: ...
    @property
    def verify_s(self) -> float: ...
    @property
    def confidences(self) -> tuple[float, ...]: ...
    @property
    def taken(self) -> tuple[float, ...]: ...
    @property
    def rounds(self) -> int: ...


class Books:
    """Kept round by round.

    passes       what a pass over n tokens costs
    purse        plain passes that may be spent on finding out, now
    rounds       entered so far
    stake        plain passes that the answer under way can lose, now
    since_plain  rounds since the last plain pass
    """

    __slots__ = (
        "_luck",
        "_saved",
        "_spent",
        "_tokens",
        "passes",
        "purse",
        "rounds",
        "since_plain",
        "speed",
        "stake",
        "worth",
    )

    def __init__(self, longest: int, profile: Profile | None = None) -> None:
        """`longest`: of a draft."""
        self.passes = PassCosts(longest + 1, profile.verify_s if profile else ())
        self._saved = PURSE
        if profile:
            self._saved = SEEDED if profile.purse is None else min(PURSE, max(DEBT, profile.purse))
        self._luck = 0.0  # what drafts that should have paid have lost of late
        self.rounds = 0
        self.since_plain = 0
        self.purse = self._saved
        self.stake = STAKE
        self.speed = 1.0
        """Tokens per plain pass of the mean round."""
        self.worth = 1.0
        """Tokens that the time of a plain pass brings elsewhere."""
        self._tokens = self._spent = 1.0  # of a mean round

    def begin(self) -> None:
        """Another answer: what the ones before it won is not staked in it."""
        self.stake = STAKE

    @property
    def curve(self) -> list[float]:
        """t(n) / t(1), with hope while the purse can bear to be wrong."""
        return self.passes.hoped if self.purse > 1.0 else self.passes.expected

    def rows(self, count: int) -> float:
        """The same for one count, also for one wider than is recorded."""
        curve = self.curve
        return curve[count] if count < len(curve) else self.passes.cost(count)

    def enter(self, report: Report, *, foreseen: float, curious: bool = False) -> float:
        """Enter a round whose drafting was expected to cost this much, or several; what each cost in plain passes.

        `curious`: what it cost and brought is the purse's. Of other rounds the purse only bears losses, until later
        gains make up for them: what one drafter wins is not spent on finding out about another. 0.0 before a plain pass
        was measured: there is nothing to compare with.
        """
        plain = self.passes.plain
        if not plain:
            return 0.0
        rows, emitted, rounds = report.drafted + 1, report.accepted + 1, report.rounds
        spent = self.passes.cost(rows) + report.draft_s / plain
        most = self.rows(rows) + foreseen + SURPRISE
        if spent > most:
            spent = most
        gain, allowed, saved = emitted - spent, rounds * ALLOWANCE * spent, self._saved
        stake = self.stake + rounds * (SHARE * spent + gain)
        self.stake = stake if stake < FULL else FULL
        luck = self._luck + allowed
        if curious:
            saved += gain
        else:
            luck += rounds * gain
        if luck > 0.0:
            saved, luck = saved + (luck if luck < allowed else allowed), 0.0
        self._luck = WORST if luck < WORST else luck
        self._saved = FULL if saved > FULL else DEBT if saved < DEBT else saved
        self.purse = self._saved + self._luck
        self.since_plain = 0 if rows == 1 else self.since_plain + 1
        kept, last = 1.0, self.rounds + rounds
        for at in range(self.rounds + 1, last + 1):
            kept *= 1.0 - (PACE if at > SETTLED else 1.0 / (at + 3))
        self.rounds, weight = last, 1.0 - kept
        self._tokens += weight * (emitted - self._tokens)
        self._spent += weight * (spent - self._spent)
        self.speed = self._tokens / self._spent
        self.worth = self.speed if self.speed > 1.0 else 1.0
        return spent
