"""Running estimates of how often draft tokens are accepted: by depth, and by the drafter's own confidence.

Recent tests count more than old ones, and a change of the text is noticed by comparing the last few tests with the
longer record; a run of bad luck counts against the drafter's word at once. Knows nothing about costs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from localspec.planner.profile import Claim

RECORD = 0.985  # what one test leaves of the weight of the longer record
RECENT = 0.9  # and of the record of the last few
CHANGE = 0.35  # the two records disagree: the text has changed
KNOWN = 3.0  # tests that a rate which was known before counts as
OWN = 8.0  # tests at its own depth that weigh as much as what is known of all depths
CLAIMS = 0.04  # least weight of a new claim in their mean
FADE = 0.99  # what a round without a test leaves of the weight of the record
LEAST = 4.0  # weight that a record keeps however old it is
EDGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
MOOD = 0.85  # what one test leaves of the weight of the last few claims
PATIENCE = 2.0  # claims that are taken to be right before the mood sinks
HONEST = 6.0  # tests in a bucket that weigh as much as the drafter's word
REMEMBERED = 12.0  # tests in a bucket that those of another day count as, at most


class Acceptance:
    """Probabilities that a token is accepted, given that the ones before it in the draft were."""

    def __init__(self, longest: int, known: Sequence[float] = (), claims: Sequence[Claim] = ()) -> None:
        start = sum(known) / len(known) if known else 0.6
        weight = KNOWN if known else 2.0
        self._known = tuple(known[:longest])
        self.right, self.tested = start * weight, weight
        self.recent_right, self.recent_tested = start, 1.0
        self.claimed = start
        self._claims = 1
        self.tests = 0
        self.passed = 0
        self._at_right = [0.0] * (longest + 1)
        self._at_tested = [0.0] * (longest + 1)
        self._by_depth: list[float] | None = None
        for depth, rate in enumerate(known[:longest], start=1):
            self._at_right[depth], self._at_tested[depth] = rate * KNOWN, KNOWN
        self._claims_lately = self._right_lately = 0.0
        self.mood = 1.0
        """What the drafter's word was worth lately, at most what it says: texts have stretches."""
        self._said_right = [0.0] * (len(EDGES) + 1)
        self._said_tested = [0.0] * (len(EDGES) + 1)
        for claim in claims:
            bucket, told = bisect_right(EDGES, claim.sure), claim.at_most(REMEMBERED)
            self._said_right[bucket], self._said_tested[bucket] = min(told.accepted, told.of), told.of

    @property
    def mean(self) -> float:
        """At any depth."""
        return self.right / self.tested

    @property
    def by_depth(self) -> list[float]:
        """At each depth: index 1 for the first token."""
        if self._by_depth is None:
            known = OWN * self.mean
            pairs = zip(self._at_right, self._at_tested, strict=True)
            self._by_depth = [(right + known) / (tested + OWN) for right, tested in pairs]
        return self._by_depth

    @property
    def learned(self) -> tuple[float, ...]:
        """The rates at depth 1, 2, ... as far as they were tested often enough, or known before."""
        deepest = max((depth for depth, tests in enumerate(self._at_tested) if tests >= LEAST), default=0)
        return tuple(self.by_depth[1 : max(deepest, len(self._known)) + 1])

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What the drafter's word was worth, as far as it was tested."""
        said = zip((0.0, *EDGES), self._said_right, self._said_tested, strict=True)
        return tuple(Claim(sure, right, tests) for sure, right, tests in said if tests > 0.0)

    def believed(self, confidence: float) -> float:
        """What a drafter's `confidence` is worth, by what became of tokens it was as sure of."""
        bucket = bisect_right(EDGES, confidence)
        return (self._said_right[bucket] + HONEST * confidence) / (self._said_tested[bucket] + HONEST)

    def claim(self, confidence: float) -> float:
        """`believed`, counted among the claims made of tokens, drafted or not."""
        believed = self.believed(confidence)
        self._claims += 1
        weight = 1.0 / (self._claims + 1)
        self.claimed += (weight if weight > CLAIMS else CLAIMS) * (believed - self.claimed)
        return believed

    def observe(self, accepted: int, rejected: bool, confidences: Sequence[float]) -> None:
        """One round: so many tokens passed in a row, and whether one more was tested and failed."""
        tested = accepted + rejected
        if not tested:
            self.fade()
            return
        self._by_depth = None
        self.tests += tested
        self.passed += accepted
        self._count(accepted, tested)
        if confidences:
            self._compare(accepted, confidences[:tested])
        recent = self.recent_right / self.recent_tested
        if abs(recent - self.right / self.tested) > CHANGE and self.recent_tested > LEAST:
            self._change()

    def fade(self, rounds: int = 1) -> None:
        """So many rounds without a test."""
        left = FADE**rounds
        if self.mood < 1.0:
            self._claims_lately *= left
            self._right_lately *= left
            self._set_mood()
        if self.tested > LEAST:
            self.right *= left
            self.tested *= left
            self.recent_right *= left
            self.recent_tested *= left

    def _count(self, accepted: int, tested: int) -> None:
        """Add the tests of a round, first ones first, to the records of all depths and of each."""
        right, weight, recent_right, recent_weight = self.right, self.tested, self.recent_right, self.recent_tested
        rights, weights = self._at_right, self._at_tested
        for depth in range(1, tested + 1):
            passed = depth <= accepted
            right, weight = RECORD * right + passed, RECORD * weight + 1.0
            recent_right, recent_weight = RECENT * recent_right + passed, RECENT * recent_weight + 1.0
            if depth < len(rights):
                rights[depth] = RECORD * rights[depth] + passed
                weights[depth] = RECORD * weights[depth] + 1.0
        self.right, self.tested, self.recent_right, self.recent_tested = right, weight, recent_right, recent_weight

    def _compare(self, accepted: int, confidences: Sequence[float]) -> None:
        """Hold the claims of a round against what became of them, and let the mood follow."""
        claims, lately = self._claims_lately, self._right_lately
        rights, weights = self._said_right, self._said_tested
        for depth, confidence in enumerate(confidences, start=1):
            passed, bucket = depth <= accepted, bisect_right(EDGES, confidence)
            claims = MOOD * claims + (rights[bucket] + HONEST * confidence) / (weights[bucket] + HONEST)
            lately = MOOD * lately + passed
            rights[bucket] = RECORD * rights[bucket] + passed
            weights[bucket] = RECORD * weights[bucket] + 1.0
        self._claims_lately, self._right_lately = claims, lately
        self._set_mood()

    def _set_mood(self) -> None:
        mood = (self._right_lately + PATIENCE) / (self._claims_lately + PATIENCE)
        self.mood = mood if mood < 1.0 else 1.0

    def _change(self) -> None:
        """The last few tests tell another story: let them speak for all."""
        self.right, self.tested = self.recent_right, self.recent_tested
        self._at_right = [0.0] * len(self._at_right)
        self._at_tested = [0.0] * len(self._at_tested)
