"""The controller behind `--N auto`: how far to draft, from what passes, drafts and acceptance cost and bring here.

It draws on finished rounds and, within a round, on the confidences of the tokens before: all known before the token in
question is drawn. So the length of a draft is a stopping time, the tokens in it are drawn from the laws they report,
and each of them is judged: the rule's output law does not depend on what is decided here, nor on the times it came from.
Never does it drop a token that was drawn. Knows no clock, no model and no text; times come in with the reports.
"""

from __future__ import annotations

from typing import Protocol

from localspec.planner.acceptance import Acceptance
from localspec.planner.costs import Estimate, PassCosts
from localspec.planner.profile import Profile

LENGTHS = (1, 2, 3, 5, 7, 11, 15)  # few, so that a backend can reuse its graphs; n = N + 1 lies on usual tiles
PURSE = 5.0  # plain passes that may be spent on finding out, at the start
FULL = 8.0  # the most that can be saved up
RESERVE = 1.5  # what first curiosity leaves for later looks
ALLOWANCE = 0.01  # share of the time that may be spent on finding out
FIRST_GAP, LAST_GAP = 8, 32  # rounds between two looks at something that does not pay
LOOKAHEAD = 4  # rows that are looked at together: a kernel's tile costs at its first row
FREE = 0.01  # a draft that costs less than this share of a plain pass is always asked for
HOPED_DRAFT = 0.25  # what a draft token may cost before it was measured twice, in plain passes
HOPED_CATCH_UP = 0.1  # what a token read up on may cost before it was measured, in draft tokens
CHANCE = 0.7  # acceptance that a look hopes for
PLAIN_EVERY = 64  # rounds after which t(1) is measured again while drafting hardly pays
CURIOSITY = 0.8  # what a record of one test may hide, in acceptance
HORIZON = 100  # tokens over which a drafter that was left behind has to earn what catching up costs
SWITCH = 1.02  # another length must be better by this


class Report(Protocol):
    """What is read of a finished round; see `loop.control.RoundReport`."""

    @property
    def drafted(self) -> int: ...
    @property
    def tested(self) -> int: ...
    @property
    def accepted(self) -> int: ...
    @property
    def draft_s(self) -> float: ...
    @property
    def verify_s(self) -> float: ...
    @property
    def context(self) -> int: ...
    @property
    def confidences(self) -> tuple[float, ...]: ...


class AutoLength:
    """Chooses the length of every draft so that tokens per second are as high as they can be, plain decoding included.

    All costs are in plain passes, t(n) / t(1). What is done against the estimates, to find out, is paid from a purse
    that bounds what curiosity can cost: `PURSE` passes and `ALLOWANCE` of the time.
    """

    def __init__(self, profile: Profile | None = None, *, longest: int = 15) -> None:
        self._longest = longest
        self._passes = PassCosts(longest + 1, profile.verify_s if profile else ())
        self._step = Estimate()
        if profile and profile.draft_s is not None:
            self._step.know(profile.draft_s)
        self._catch_up = Estimate()
        self._acceptance = Acceptance(longest, profile.acceptance if profile else ())
        self._purse = PURSE
        self._speaks = False
        self._length = 0
        self._choice = 0
        self._looking = False
        self._asked = 0
        self._joint = 1.0
        self._idle = 0
        self._gap = FIRST_GAP
        self._missed = 0
        self._unmeasured = 0
        self._attempts = 0.0
        self._rows_used = [0.0] * (longest + 2)
        self._steps_used = 0.0
        self._emitted = 0.0
        self._tokens = self._spent = 1.0
        self._rounds = 0
        self._context = 0
        self._warned: set[str] = set()
        self._warnings: list[str] = []

    def limit(self, room: int) -> int:
        """Most tokens the next draft may hold, 0 .. room; 0 means a plain pass."""
        self._asked, self._joint, self._looking = 0, 1.0, False
        if room <= 0 or self._passes.count(1) < 2:
            self._choice = 0
        else:
            reach = min(room, self._longest, self._frontier())
            self._choice = self._attempt(reach) if self._speaks else self._best(reach)
        return self._choice

    def pays(self, depth: int, confidence: float) -> bool:
        """Does one more token at `depth` pay if it is right with probability `confidence`?"""
        self._speaks = True
        self._asked = depth
        believed = self._acceptance.claim(confidence)
        self._joint = (self._joint if depth > 1 else 1.0) * believed
        return self._joint > self._bar(depth)

    def observe(self, report: Report) -> None:
        """Learn from a finished round."""
        rows, emitted = report.drafted + 1, report.accepted + 1
        self._passes.observe(rows, report.verify_s)
        self._acceptance.observe(report.accepted, report.tested > report.accepted, report.confidences)
        steps = max(report.drafted, self._asked, 1) if self._choice else 0
        if report.context != self._context:
            self._missed = 0  # another answer: the drafter has read its prompt
        self._context = report.context + emitted
        spent = self._rows_cost(rows) + report.draft_s / self._passes.plain
        if steps:
            self._learn_draft(report.draft_s, steps)
        gained = emitted - spent
        self._purse = min(FULL, self._purse + ALLOWANCE * spent + gained)
        self._rounds += 1
        weight = max(0.03, 1.0 / (self._rounds + 3))
        self._tokens += weight * (emitted - self._tokens)
        self._spent += weight * (spent - self._spent)
        self._unmeasured = 0 if rows == 1 else self._unmeasured + 1
        if steps:
            self._record(rows, steps, emitted)
            self._length = self._choice
            if self._looking:
                self._gap = 1 if gained > 0.0 else min(LAST_GAP, max(FIRST_GAP, 2 * self._gap))
            self._idle = self._missed = 0
        else:
            self._idle += 1
            self._missed += emitted

    def explain(self) -> str:
        """One line: what is chosen now and why."""
        return ""

    def warnings(self) -> list[str]:
        """Lines about a pair that cannot work well, each given out once."""
        said, self._warnings = self._warnings, []
        return said

    @property
    def _draft(self) -> float:
        """Cost of one draft token."""
        cost = self._step.value / self._passes.plain
        return cost if self._step.count >= 2 else min(cost, HOPED_DRAFT)

    @property
    def _lag(self) -> float:
        """Cost, for the drafter, of one token that was decoded without it."""
        return self._catch_up.value / self._passes.plain if self._catch_up.count else HOPED_CATCH_UP * self._draft

    def _frontier(self) -> int:
        """The longest draft that is not a leap beyond what was measured, or one that half the purse can bear."""
        widest = max(1, self._passes.widest)
        leap = next((length for length in (1, 3, 7) if widest <= length), self._longest)
        return leap if 2.0 * self._price(leap) < self._purse else max(1, widest - 1)

    def _curve(self) -> list[float]:
        return self._passes.hoped if self._purse > 1.0 else self._passes.expected

    def _rows_cost(self, rows: int) -> float:
        expected = self._passes.expected
        return expected[rows] if rows < len(expected) else expected[-1] * rows / len(expected)

    def _learn_draft(self, seconds: float, steps: int) -> None:
        if self._missed < 4:
            self._step.observe(seconds / steps)
        elif self._step.count:
            self._catch_up.observe(max(0.0, seconds - steps * self._step.value) / self._missed)

    def _best(self, reach: int) -> int:
        """The length for a drafter that does not say how sure it is."""
        sure, sure_rate = self._peak(self._passes.expected, reach)
        if sure and sure_rate < 1.15 and self._unmeasured > PLAIN_EVERY:
            return 0
        if self._missed and HORIZON * (sure_rate - 1.0) < self._missed * self._lag:
            sure = 0
        hoped, hoped_rate = self._peak(self._passes.hoped, reach, CURIOSITY / self._acceptance.tested)
        if hoped_rate > 1.05 * max(1.0, sure_rate) and self._affords(hoped, leaving=0.0 if sure else RESERVE):
            self._looking = not sure
            return hoped
        if sure:
            return sure
        return self._look(reach)

    def _look(self, reach: int) -> int:
        """A probe of what does not pay, when its time has come and the purse can bear it."""
        if self._idle < self._gap:
            return 0
        curve, draft = self._passes.hoped, self._draft
        rates = {n: sum(CHANCE**i for i in range(n + 1)) / (curve[n + 1] + n * draft) for n in (1, 2, 3) if n <= reach}
        length = max(rates, key=rates.__getitem__)
        if not self._affords(length):
            return 0
        self._looking = True
        return length

    def _affords(self, length: int, *, leaving: float = 0.0) -> bool:
        """Can the purse bear a draft of this length if nothing of it is accepted?"""
        return self._purse > leaving + self._price(length)

    def _price(self, length: int) -> float:
        """What a draft of this length may cost if nothing of it is accepted."""
        return self._passes.hoped[length + 1] - 1.0 + length * self._draft + self._missed * self._lag

    def _record(self, rows: int, steps: int, emitted: int) -> None:
        """Remember what an attempt took and brought; recent ones count more."""
        fade = 0.75 if self._looking else 0.95
        self._attempts = fade * self._attempts + 1.0
        self._rows_used = [fade * used for used in self._rows_used]
        self._rows_used[min(rows, len(self._rows_used) - 1)] += 1.0
        self._steps_used = fade * self._steps_used + steps
        self._emitted = fade * self._emitted + emitted

    def _advantage(self) -> float:
        """What an attempt brings over a plain pass, on average, at today's costs."""
        if not self._attempts:
            return 0.0
        curve = self._passes.hoped
        rows = sum(used * cost for used, cost in zip(self._rows_used, curve, strict=False))
        return (self._emitted - rows - self._steps_used * self._draft) / self._attempts

    def _peak(self, curve: list[float], reach: int, bonus: float = 0.0) -> tuple[int, float]:
        """The best length and its tokens per plain pass time; (0, 1.0) when none beats plain decoding."""
        best, best_rate = 0, 1.0
        tokens, passed, draft, depth = 1.0, 1.0, self._draft, 0
        for length in LENGTHS:
            if length > reach:
                break
            while depth < length:
                depth += 1
                passed *= min(1.0, self._acceptance.at(depth) + bonus)
                tokens += passed
            rate = tokens / (curve[length + 1] + length * draft)
            if rate > best_rate * (1.0 if length == self._length else SWITCH if best else 1.0):
                best, best_rate = length, rate
        return best, best_rate

    def _attempt(self, reach: int) -> int:
        """The limit for a drafter that says how sure it is of each token; `pays` decides how far it really goes."""
        if self._draft <= FREE:
            return reach
        reach = self._peak(self._passes.hoped, reach, self._acceptance.claimed - self._acceptance.mean)[0] or 1
        advantage = self._advantage()
        if advantage > 0.0 and HORIZON * advantage >= self._missed * self._lag:
            return reach
        price = self._draft - advantage + self._missed * self._lag
        curious = advantage + 2.0 / (1.0 + self._attempts) ** 0.5 > 0.0 and self._purse > price + RESERVE
        self._looking = self._idle >= self._gap and self._purse > price
        return reach if curious or self._looking else 0

    def _bar(self, depth: int) -> float:
        """The probability of being accepted, elders included, from which on a token at `depth` pays."""
        curve, draft = self._curve(), self._draft
        worth = max(1.0, self._tokens / self._spent)  # tokens that the time of a plain pass brings elsewhere
        trust = self._acceptance.mean
        gain = passed = 1.0
        base = curve[depth]
        left = self._choice - depth  # draft tokens that may follow; each has to be paid before it is asked about
        bar = worth * (curve[depth + 1] - base + draft * min(1, left))
        for more in range(1, min(LOOKAHEAD, left + 1)):
            passed *= trust
            gain += passed
            bar = min(bar, worth * (curve[depth + 1 + more] - base + draft * min(1 + more, left)) / gain)
        return bar
