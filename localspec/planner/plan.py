"""What speculation would bring on texts that are known: the arithmetic behind `localspec plan`.

A text is walked as the loop would decode it: a round drafts up to N tokens, so many of them pass, the verifier adds
one, and the next round begins behind that. Each round costs what passes and draft tokens were measured to cost. Where
acceptance is a matter of chance the walk is the exact expectation over it. Knows no clock, no model and no file.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import prod

from localspec.loop.control import RoundReport
from localspec.planner.controller import AutoLength
from localspec.planner.profile import Profile

LONGEST = 15
"""Tokens of a draft that are looked at."""
LENGTHS = (1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15)
SHAPES = ("2", "3", "2,1", "2,2", "3,1,1", "3,2,1", "4,2,1", "2,2,2", "4,2,2", "4,2,2,1")
"""Trees that are compared with chains."""
Length = int | str


@dataclass(frozen=True)
class Trace:
    """One text of which a drafter was asked at every position.

    chances  at position i: of each token it would draft there, the chance to be accepted if those before it were
    claims   at position i: how sure the drafter was of each of them
    ranks    of each token of the text, how many tokens the drafter thought likelier; empty where it was not asked
    ended    the last token ends the text; nobody knew that before, so drafts reach beyond it. Else the text was cut
    """

    chances: tuple[tuple[float, ...], ...]
    claims: tuple[tuple[float, ...], ...]
    ranks: tuple[int, ...] = ()
    ended: bool = False

    def __len__(self) -> int:
        return len(self.chances)


@dataclass(frozen=True)
class Costs:
    """Seconds.

    verify_s  (n, one verifier pass over n tokens), n = 1 first
    draft_s   one draft token of a chain, 0 for a drafter that looks up
    layers_s  (n, one draft pass over n tokens), for trees and for several streams; empty: nothing is known of them
    again_s   what the draft reads more after a draft that was accepted to its end
    ask_s     asking the drafter, whatever it answers
    law_s     the law of one row and the acceptance of its token
    round_s   the rest of a round
    streams   texts that are decoded side by side, each pass holding the rows of all of them
    anew_s    (n, what a verifier pass over n tokens takes longer behind one over another number); empty: nothing
    """

    verify_s: tuple[tuple[int, float], ...]
    draft_s: float = 0.0
    layers_s: tuple[tuple[int, float], ...] = ()
    again_s: float = 0.0
    ask_s: float = 0.0
    law_s: float = 0.0
    round_s: float = 0.0
    streams: int = 1
    anew_s: tuple[tuple[int, float], ...] = ()

    def anew(self, rows: int, before: int) -> float:
        """What a verifier pass over so many tokens takes longer behind one over `before`, 0: behind none."""
        return between(self.anew_s, rows * self.streams) if self.anew_s and before not in (0, rows) else 0.0

    def verify(self, rows: int) -> float:
        """A verifier pass over so many tokens of each stream."""
        return between(self.verify_s, rows * self.streams)

    def layer(self, nodes: int) -> float:
        """A draft pass over so many nodes of each stream."""
        if not self.layers_s:
            return self.draft_s
        return self.draft_s * between(self.layers_s, nodes * self.streams) / self.layers_s[0][1]

    @property
    def outside(self) -> float:
        """What a round costs besides passes and laws; streams are served one after the other."""
        return self.round_s * self.streams

    @property
    def plain(self) -> float:
        """A round of plain decoding."""
        return self.verify(1) + self.law_s * self.streams + self.outside

    def chain(self, count: int) -> float:
        """A round that drafts `count` tokens, without the laws of its rows."""
        return self.verify(count + 1) + count * self.layer(1) + self.ask_s * self.streams + self.outside

    def tree(self, widths: Sequence[int]) -> float:
        """A round that drafts a tree of so many children on each depth."""
        layers = [prod(widths[:depth]) for depth in range(len(widths) + 1)]
        return self.verify(sum(layers)) + sum(map(self.layer, layers[:-1])) + self.outside


@dataclass(frozen=True)
class Walk:
    """What decoding a text takes: expected sums over its rounds."""

    tokens: float = 0.0
    seconds: float = 0.0
    passes: float = 0.0
    drafted: float = 0.0
    tested: float = 0.0
    accepted: float = 0.0

    def __add__(self, other: Walk) -> Walk:
        return Walk(*(mine + theirs for mine, theirs in zip(_fields(self), _fields(other), strict=True)))


def _fields(walk: Walk) -> tuple[float, ...]:
    return (walk.tokens, walk.seconds, walk.passes, walk.drafted, walk.tested, walk.accepted)


@dataclass(frozen=True)
class Candidate:
    """One way to speculate, with what is expected of it.

    speedup      median over the texts of plain seconds / seconds, which is what `bench` reports
    low, high    the least and the most of them
    round_s      the longest a reader waits for the next piece: a round whose draft has its full length
    walk, plain_s  sums over all texts
    """

    drafter: str
    N: Length
    tree: str
    speedup: float
    low: float
    high: float
    round_s: float
    plain_s: float
    walk: Walk

    @property
    def alpha(self) -> float | None:
        """accepted / tested."""
        return self.walk.accepted / self.walk.tested if self.walk.tested else None

    @property
    def tokens_per_pass(self) -> float:
        return self.walk.tokens / self.walk.passes

    @property
    def mean_round_s(self) -> float:
        return self.walk.seconds / self.walk.passes

    @property
    def overall(self) -> float:
        """Plain seconds / seconds of all texts together: the quotient that the arithmetic shows."""
        return self.plain_s * self.walk.tokens / self.walk.seconds


def between(points: Sequence[tuple[int, float]], n: int) -> float:
    """Seconds at n: measured, on the line between two measured neighbours, or on the last one's slope beyond."""
    if n <= points[0][0]:
        return points[0][1]
    for (left, low), (right, high) in pairwise(points):
        if n <= right:
            return low + (high - low) * (n - left) / (right - left)
    if len(points) == 1:
        return points[0][1] * n / points[0][0]
    (left, low), (right, high) = points[0], points[-1]
    return high + max(0.0, high - low) / (right - left) * (n - right)


def walked(
    length: int,
    row: Callable[[int], Sequence[float]],
    cost: Callable[[int], float],
    costs: Costs,
    *,
    nodes: Callable[[int], float] = float,
    ended: bool = False,
) -> Walk:
    """The whole text. `row(i)`: chances at each depth of the draft at position i; `cost(k)`: of a round of that depth.

    `nodes(k)`: how many tokens a draft of that depth holds.
    """
    ahead: list[tuple[float, ...]] = [(0.0,) * 6 for _ in range(length + 1)]
    widths = [0] * (length + 1)  # rows of the pass at each position

    def goes_on(sums: list[float], at: int, next_: int, weight: float) -> None:
        _add(sums, ahead[next_], weight)
        if next_ < length:
            sums[1] += weight * costs.anew(widths[next_], widths[at])

    for at in range(length - 1, -1, -1):
        left = length - at
        chances = row(at) if ended else row(at)[: left - 1]
        count, reached = len(chances), 1.0
        widths[at] = 1 + int(nodes(count))
        tested = accepted = 0.0
        sums = [0.0] * 6
        for depth, chance in enumerate(chances[:left]):
            tested += reached
            accepted += reached * chance
            goes_on(sums, at, at + depth + 1, reached * (1.0 - chance))
            reached *= chance
        finished = reached if count >= left else 0.0  # a draft that holds the end of the text ends there
        goes_on(sums, at, min(length, at + count + 1), reached)
        emitted = accepted + 1.0 - finished
        seconds = cost(count) if not finished else finished * cost(left) + (1.0 - finished) * cost(count)
        seconds += (accepted + 1.0) * costs.law_s * costs.streams + (reached * costs.again_s if count else 0.0)
        drafted = (1.0 - finished) * nodes(count) + finished * nodes(min(count, left))
        own = (emitted, seconds, 1.0, drafted, tested, accepted)
        ahead[at] = tuple(sum_ + mine for sum_, mine in zip(sums, own, strict=True))
    return Walk(*ahead[0])


def _add(sums: list[float], other: tuple[float, ...], weight: float) -> None:
    if weight:
        for place, value in enumerate(other):
            sums[place] += weight * value


def chain(trace: Trace, costs: Costs, N: int) -> Walk:
    """The text with drafts of up to N tokens."""
    return walked(len(trace), lambda at: trace.chances[at][:N], costs.chain, costs, ended=trace.ended)


def tree(trace: Trace, costs: Costs, widths: Sequence[int]) -> Walk:
    """The text with trees of picks: a depth is accepted when the token that comes is among its so many likeliest."""
    taken = [[float(rank < width) for width in widths] for rank in trace.ranks]
    nodes = list(accumulate((prod(widths[: depth + 1]) for depth in range(len(widths))), initial=0))

    def row(at: int) -> list[float]:
        return [taken[at + depth][depth] for depth in range(min(len(widths), len(trace) - at))]

    return walked(len(trace), row, lambda count: costs.tree(widths[:count]), costs, nodes=nodes.__getitem__)


def automatic(
    traces: Sequence[Trace], costs: Costs, profile: Profile, *, lookup: bool, seed: int = 0
) -> tuple[list[Walk], AutoLength]:
    """The texts, one after the other, with the real controller on a simulated clock; twice, and the second time counts.

    Also the controller, which has learned from them.
    """
    controller, luck = AutoLength(profile, lookup=lookup), random.Random(seed)
    for _ in range(2):
        walks = [_automatic(trace, costs, controller, luck) for trace in traces]
    return walks, controller


def _automatic(trace: Trace, costs: Costs, controller: AutoLength, luck: random.Random) -> Walk:
    at, whole, full, rows = 0, Walk(), False, 0
    controller.begin(0)
    while at < len(trace):
        room = LONGEST if trace.ended else min(len(trace) - at - 1, LONGEST)
        limit = controller.limit(room) if room > 0 else 0
        offered, count = trace.chances[at][:limit], 0
        while count < len(offered) and controller.pays(count + 1, trace.claims[at][count]):
            count += 1
        # A model has computed the row of the token that did not pay; a lookup has nothing to compute.
        steps = min(limit, count + (count < len(offered))) if costs.draft_s else count
        accepted = 0
        while accepted < min(count, len(trace) - at) and luck.random() < trace.chances[at][accepted]:
            accepted += 1
        draft_s = steps * costs.layer(1) + (costs.ask_s if limit else 0.0) + (costs.again_s if full and limit else 0.0)
        verify_s, rows = costs.verify(count + 1) + costs.anew(count + 1, rows), count + 1
        tested = min(accepted + 1, count)
        controller.observe(
            RoundReport(
                drafted=count,
                tested=tested,
                accepted=accepted,
                refused=accepted < count,
                draft_s=draft_s,
                verify_s=verify_s,
                confidences=trace.claims[at][:count],
            )
        )
        seconds = draft_s + verify_s + (accepted + 1) * costs.law_s * costs.streams + costs.outside
        whole += Walk(min(accepted + 1, len(trace) - at), seconds, 1.0, count, tested, accepted)
        at, full = at + accepted + 1, 0 < count == accepted
    return whole


def candidate(drafter: str, N: Length, shape: str, walks: Sequence[Walk], costs: Costs, *, longest: int) -> Candidate:
    """One candidate out of the walks of all texts; `longest`: tokens of its longest draft."""
    ratios = [costs.plain * walk.tokens / walk.seconds for walk in walks]
    full, rows = costs.chain(longest), longest + 1
    if shape not in ("none", "auto"):
        widths = list(map(int, shape.split(",")))
        full, rows = costs.tree(widths), sum(prod(widths[:depth]) for depth in range(len(widths) + 1))
    return Candidate(
        drafter,
        N,
        shape,
        statistics.median(ratios),
        min(ratios),
        max(ratios),
        full + costs.anew(rows, 1) + (longest + 1) * costs.law_s,
        costs.plain,
        sum(walks, Walk()),
    )


def candidates(drafter: str, traces: Sequence[Trace], costs: Costs, *, trees: bool) -> list[Candidate]:
    """Chains of every length, and trees where the drafter was asked for ranks and the verifier can check them."""
    found = [
        candidate(drafter, N, "none", [chain(trace, costs, N) for trace in traces], costs, longest=N) for N in LENGTHS
    ]
    if trees and costs.layers_s and all(trace.ranks for trace in traces):
        for shape in SHAPES:
            widths = list(map(int, shape.split(",")))
            walks = [tree(trace, costs, widths) for trace in traces]
            found.append(candidate(drafter, len(widths), shape, walks, costs, longest=len(widths)))
    return found


def by_depth(traces: Sequence[Trace]) -> tuple[float, ...]:
    """Acceptance at depth 1, 2, ..., each given that those before it were; as far as enough tokens came there."""
    rates: list[float] = []
    for depth in range(LONGEST):
        reached = passed = 0.0
        for trace in traces:
            for row in trace.chances:
                if len(row) > depth:
                    before = prod(row[:depth])
                    reached += before
                    passed += before * row[depth]
        if reached < 4.0:
            break
        rates.append(min(1.0, passed / reached))
    return tuple(rates)


def around(found: Sequence[Candidate], best: Candidate) -> list[Candidate]:
    """The chain of `best`'s drafter that is fastest, with its neighbours: three lengths, shortest first."""
    chains = [one for one in found if one.drafter == best.drafter and one.tree == "none" and one.N != "auto"]
    if not chains:
        return [best]
    middle = chains.index(max(chains, key=lambda one: one.speedup))
    start = min(max(0, middle - 1), max(0, len(chains) - 3))
    return chains[start : start + 3]


def with_learned(profile: Profile, controller: AutoLength) -> Profile:
    """The measured profile, with what rounds and the drafter's word are like once the controller knows them."""
    learned = controller.learned()
    return profile if learned is None else replace(profile, attempt=learned.attempt, claims=learned.claims)
