"""The controller behind `--tree auto`: whether to draft a tree, how many layers of it, and how many nodes to keep.

A node is kept while its expected gain pays for its share of the pass, by the measured t(n) (cf. Sequoia's
hardware-aware trees, Chen et al. 2024), and expanded while what may follow it pays for its share of a draft pass. A
chain is the thin case. The argument why this cannot bias the law is `planner.controller`'s, with one addition: nodes
are left out by what is known of them only where they are deterministic picks; drawn siblings are planned before the
draw.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from localspec.planner.books import PACE, Books, Report
from localspec.planner.controller import (
    BEHIND,
    FIRST_GAP,
    FREE,
    HORIZON,
    LEAST,
    LENGTHS,
    LEVELS,
    PLACES,
    PLAIN_EVERY,
    RESERVE,
    THIN,
    AutoLength,
)
from localspec.planner.diagnosis import Diagnosis
from localspec.planner.joints import Joints
from localspec.planner.layers import LayerCosts
from localspec.planner.profile import Profile

SIZES = (*LENGTHS, 19, 23, 31)  # few, like `LENGTHS`, so that t(n) is known where it is used
FIRST = 4  # trees that are drafted to see what they are worth
LEAPS = (1, 3, 7, 15)  # most nodes while nothing wider than this was measured


class AutoTree(AutoLength):
    """Chooses the size of every tree for the most tokens per second; plain decoding is a choice.

    A drafter that answers in chains, as all do whose own model cannot hold a tree, is treated as `AutoLength` would.
    """

    branches = True

    def __init__(
        self,
        profile: Profile | None = None,
        *,
        longest: int = SIZES[-1],
        lookup: bool = False,
        books: Books | None = None,
        diagnosis: Diagnosis | None = None,
    ) -> None:
        super().__init__(profile, longest=longest, lookup=lookup, books=books, diagnosis=diagnosis)
        self._layers = LayerCosts()
        self._node = 0.0  # cost of one more node in a draft pass
        self._joints = Joints(profile.promises if profile else ())
        self._widths = [1]  # nodes of each draft pass of the round under way
        self._kept: Sequence[float] = ()  # joint probabilities of the nodes of its draft
        self._picky = False  # the drafter asks what to keep, so an attempt need not become a draft
        self._is_chain = False
        self._drafts = 0  # trees that were judged
        self._size = 0.0  # their mean number of nodes

    def limit(self, room: int) -> int:
        """Most nodes of the next tree, 0 .. room; 0 means a plain pass."""
        self._widths, self._kept = [1], ()
        if self._is_chain:
            return super().limit(room)
        self._limit, self._looking, self._parked = 0, False, False
        self._cut = room < self._longest
        self._promised, self._kept_rows, self._rival, self._doubting = 0.0, 0, 1.0, False
        # Where trees gain little, t(1) has to be known well, and only a plain pass tells it.
        stale = self._books.since_plain > PLAIN_EVERY and self._books.worth < THIN
        if room > 0 and self._passes.is_known and not stale:
            self._short = 0.0
            self._parked = not self._is_worth_trying()
            self._limit = 0 if self._parked else self._within_stake(min(room, self._longest, self._frontier()))
        return self._limit

    def may_pay(self, confidence: float) -> bool:
        """Could a tree pay whose likeliest node is right with at most this probability?"""
        if self._is_chain:
            return super().may_pay(confidence)
        self._speaks = True
        believed = self._joints.believed(confidence)
        return believed > self._bar_at(PLACES + int(LEVELS * believed))

    def pays(self, depth: int, confidence: float) -> bool:
        """Asked by drafters of chains only."""
        if not self._is_chain:
            self._is_chain, self._bars = True, {}
        return super().pays(depth, confidence)

    def widen(self, depth: int, joints: Sequence[float]) -> int:
        """How many of these nodes are worth being expanded by one more draft pass?"""
        if depth > self._limit:
            return 0  # no path is longer than the tree has nodes
        row, worth, mean = (self._passes.hoped[depth + 1] - 1.0) / depth, self._books.worth, self._acceptance.mean
        each = worth * (self._node + (row if row > LEAST else LEAST))
        gains = self._joints.gains(joints, share=mean, price=each)
        count = len(gains)
        if not count or sum(gains) <= worth * (self._draft - self._node):
            return 0
        del self._widths[depth - 1 :]
        self._widths.append(count)
        return count

    def choose(self, joints: Sequence[float]) -> int:
        """How many of the nodes, best first, are worth their rows?"""
        self._picky = True
        curve, worth = self._books.curve, self._books.worth
        best, most, gain = 0, 0.0, 0.0
        for count, believed in enumerate(self._joints.all_believed(joints[: self._longest]), start=1):
            gain += believed
            price, least = curve[count + 1] - 1.0, LEAST * count
            profit = gain - worth * (price if price > least else least)
            if profit > most and (count in SIZES or count == len(joints)):
                best, most, self._promised, self._kept_rows = count, profit, gain, count
        if not best and joints and (self._looking or self._drafts < FIRST) and self._affords(1):
            best = 1  # what nobody drafts teaches nothing
        self._kept = joints[:best]
        return best

    def learn(self, report: Report, spent: float) -> None:
        """What the round says about the drafter."""
        idle = self._idle
        if self._kept and report.drafted:
            self._joints.learn(self._kept, report.taken)
            self._drafts += 1
            self._size += max(PACE, 1.0 / self._drafts) * (report.drafted - self._size)
        elif self._limit and not self._is_chain and not self.lookup:  # which waits then
            self._joints.fade(report.rounds)
        super().learn(report, spent)
        if not report.drafted:
            self._idle = idle + report.rounds  # also when the drafter was asked and nothing of its tree was worth a row

    def wait(self, report: Report, spent: float) -> None:
        """The round had no tree, or was another drafter's."""
        if not self._is_chain:
            self._joints.fade(report.rounds)
        super().wait(report, spent)

    def learned(self) -> Profile | None:
        """What it would start from another day; None as long as it has seen too little."""
        profile = super().learned()
        return profile and replace(profile, promises=self._joints.promises)

    def explain(self) -> str:
        """One line: what is chosen now and why."""
        if self._is_chain or not self._books.rounds:
            return super().explain()
        row, drafting = self._passes.expected[2] - 1.0, f"a draft pass {self._draft:.2f}"
        if self._idle >= FIRST_GAP or not self._drafts:
            return f"no tree: a row costs {row:.2f} plain passes, {drafting}"
        size = round(self._size)
        return (
            f"trees of about {size} nodes: {size + 1} rows cost {self._passes.expected[size + 1]:.2f} plain passes, "
            f"{drafting}: {self._books.speed:.2f}x plain"
        )

    def _steps(self, report: Report) -> float:
        """Draft passes of the round, with their further nodes as fractions of one."""
        if self._is_chain:
            return super()._steps(report)
        return self._layers.steps(self._widths)

    def _learn_draft(self, seconds: float, steps: float) -> None:
        if self._is_chain or self._missed >= BEHIND:
            super()._learn_draft(seconds, steps)
            return
        self._layers.observe(self._widths, seconds)
        self._step.count, self._step.value = self._layers.count, self._layers.passed

    def _reckon(self) -> None:
        super()._reckon()
        if self._layers.count:
            self._node = self._draft * self._layers.node / self._layers.passed

    def _frontier(self) -> int:
        widest = self._passes.widest
        leap = self._longest if widest > LEAPS[-1] else LEAPS[bisect_left(LEAPS, widest)]
        return leap if self._affords(leap) else max(1, widest - 1)

    def _drafting(self, length: int) -> float:
        return super()._drafting(length if self._is_chain else len(self._widths))

    def _is_worth_trying(self) -> bool:
        """Do trees pay on average, or is it time to look again?"""
        advantage, behind = self._attempts.advantage(self._passes.hoped, self._draft), self._missed * self._lag
        left = self._books.purse - (self._draft - advantage + behind)  # in the purse if nothing comes of it
        self._looking = self._idle >= self._pause and left > 0.0
        if (advantage > 0.0 and HORIZON * advantage >= behind) or (self._picky and self._draft <= FREE):
            return True
        self._doubting = not self._is_hopeless and left > RESERVE and advantage + self._doubt() > 0.0
        return self._doubting or self._looking
