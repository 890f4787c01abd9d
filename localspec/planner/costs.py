"""Running estimates of what passes and draft tokens cost, from times that jitter and have outliers.

Delays are one-sided: the least of the first samples is the best guess, then a mean of clipped deviations takes over.
What was only heard of, from a profile, holds where nothing was measured, then as one of the first samples, and nowhere
once a measured pass contradicts it. Knows no clock: seconds come in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

TICK = 1e-9  # a coarse clock may show nothing at all
FIRST = 3  # up to this many samples the least one counts
CLIP = 0.25  # a sample further off than this share of the estimate counts as this far off
MEMORY = 0.04  # least weight of a new sample
FORM = 0.01  # the same for the cost of a pass relative to others
SETTLED, REFRESH = 3, 8  # after so many samples of a time, the curves are drawn anew only with every eighth
ENOUGH = 8  # plain passes from which on only those behind another one are samples of t(1)
RARE = 64  # passes without such a one, after which others will do; controllers ask for a plain pass as rarely
DRIFT = 0.06  # weight of a new sample in the factor that all passes share
STEEP = 0.6  # cost of one more row before any was measured, in plain passes: a compute-bound machine
HOPE = 0.35  # share of the average cost of a row so far that the next ones are hoped to cost
GENTLE = 0.02  # the least one more row can cost, in plain passes
AGREES = 0.3  # a pass that was heard of is believed when a measured one is off by no more than this share
MANY = 32  # tokens of a prompt from which on what it took says something about rows
CREDIT = 0.7  # share of that which a row of a narrow pass costs at least: the first batch of a process may be slow
TRIAL = 3  # widest draft, in effect, before what was heard of is believed: a pass over four tokens can do no great harm


class Estimate:
    """One time, in seconds."""

    __slots__ = ("count", "memory", "value")

    def __init__(self, memory: float = MEMORY) -> None:
        self.memory = memory
        self.count = 0
        self.value = 0.0

    def observe(self, seconds: float) -> None:
        """Take in one sample."""
        if seconds < TICK:
            seconds = TICK
        count = self.count = self.count + 1
        if count <= FIRST:
            self.value = seconds if count == 1 else min(self.value, seconds)
            return
        weight = 1.0 / count
        self.value *= 1.0 + (weight if weight > self.memory else self.memory) * (clipped(seconds / self.value) - 1.0)


class PassCosts:
    """t(n): seconds of one verifier pass over n tokens, n = 1 .. longest, with what it leaves the next pass to pay.

    All n share one slowly moving factor: a growing context or a warm machine slows every pass, so a pass that was
    measured long ago stays comparable with one that was measured now.
    """

    def __init__(self, longest: int, heard: Iterable[tuple[int, float]] = ()) -> None:
        """`heard`: seconds of passes over n tokens that were measured another day, n = 1 among them, or nothing."""
        self.longest = longest
        self._heard = {n: seconds for n, seconds in heard if n <= longest}
        self._believed = False  # a measured pass was as heard
        self._shape = [Estimate(FORM) for _ in range(longest + 1)]
        self._measured: set[int] = set()  # of n > 1
        self._row = 0.0  # seconds of a token of a prompt, 0.0: not known
        self._last = 1  # n of the last pass
        self._unseen = 0  # passes since t(1) was seen
        self._delayed = Estimate()  # seconds of plain passes behind wider ones
        self._alone = 1.0  # share of the wider ones that are followed by such a one
        self._factor = 1.0
        self._settled = 0
        self.plain = self._heard.get(1, 0.0)
        """t(1), 0.0 before it was measured or heard of."""
        self._draw()

    @property
    def times(self) -> tuple[tuple[int, float], ...]:
        """(n, seconds) of all that was measured twice or heard of; empty before t(1) is known."""
        if not self.is_known:
            return ()
        curve, plain = self.expected, self.plain
        lengths = {n for n in range(2, self.longest + 1) if self._shape[n].count >= 2} | set(self._heard) | {1}
        return tuple((n, curve[n] * plain) for n in sorted(lengths))

    def count(self, n: int) -> int:
        """How often a pass over n tokens was measured."""
        return self._shape[n].count

    def observe(self, n: int, seconds: float) -> None:
        """One pass over n tokens took this long; passes wider than `longest` are not recorded."""
        last, self._last = self._last, n
        took: float | None = seconds
        if last > 1 and self._shape[1].count >= ENOUGH:
            took = self._without_delay(n, seconds)
        self._unseen = 0 if n == 1 and took is not None else self._unseen + 1
        if n <= self.longest and took is not None:
            self._count(n, took)

    def _count(self, n: int, seconds: float) -> None:
        """Take in a sample of t(n)."""
        shape = self._shape[n]
        if shape.count >= FIRST:
            self._factor *= 1.0 + DRIFT * (clipped(seconds / (self._factor * shape.value)) - 1.0)
        shape.observe(seconds / self._factor)
        if self._shape[1].count:
            self.plain = self._shape[1].value * self._factor
        if n > 1:
            self._measured.add(n)
        self._settled = self._settled + 1 if shape.count > SETTLED else REFRESH
        if self._heard and n > 1 and not self._believed:
            self._compare(n)
        if self._settled >= REFRESH:
            self._draw()

    def _without_delay(self, n: int, seconds: float) -> float | None:
        """What a pass over n tokens behind a wider one would have taken elsewhere; None: that can be seen elsewhere.

        Backends build their graph anew for another width. What that costs a plain pass belongs to the wide one before
        it, and where another wide one follows there is nothing to pay.
        """
        self._alone += MEMORY * ((n == 1) - self._alone)
        if n > 1:
            return seconds
        self._delayed.observe(seconds / self._factor)
        return seconds / (1.0 + self._delay) if self._unseen > RARE else None

    @property
    def _delay(self) -> float:
        """What a plain pass behind a wider one takes longer, in plain passes."""
        return max(0.0, self._delayed.value / self._shape[1].value - 1.0) if self._delayed.count >= FIRST else 0.0

    def read(self, count: int, seconds: float) -> None:
        """A prompt of `count` tokens was read in this time: no row of a narrower pass costs much less than one of it.

        That is what a machine bound by computing says before anything was drafted, where hope would be dear.
        """
        self._last = count or self._last
        if count >= MANY and (not self._row or seconds / count < self._row):
            self._row = seconds / count
            self._settled = REFRESH

    def _compare(self, n: int) -> None:
        """Believe what was heard of if this pass was like that; forget it if it was not, twice."""
        if not self._shape[1].count:
            return
        told = _between(self._heard, n) / self._heard[1]
        if abs(self._shape[n].value / self._shape[1].value - told) <= AGREES * told:
            self._believed = True
        elif self._shape[n].count >= 2:
            self._heard = {}
        self._settled = REFRESH

    def cost(self, n: int) -> float:
        """t(n) / t(1), also for an n beyond the longest."""
        curve = self.expected
        return curve[n] if n <= self.longest else curve[-1] * n / self.longest

    def _draw(self) -> None:
        self._settled = 0
        plain, heard = self._shape[1], max(self._heard, default=0)
        self.is_known = plain.count >= 2 or (
            plain.count == 1 and heard > 0 and plain.value <= (1.0 + AGREES) * self._heard[1]
        )
        """Is t(1) known well enough to compare other passes with it?"""
        self.is_hearsay = heard > 0 and not self._believed
        """Does the curve rest on what was heard of and not yet seen?"""
        measured = max(self._measured, default=min(plain.count, 1))
        self.widest = max(measured, min(heard, TRIAL) if self.is_hearsay else heard)
        """The largest n that was measured, or is believed; 0 before any."""
        values = {n: seconds / self._heard[1] for n, seconds in self._heard.items() if n > 1}
        if plain.count:  # what was measured counts more; without t(1) it cannot be compared with anything
            values |= {n: self._relative(n) for n in self._measured}
        self.expected = self._expected(sorted(values.items()))
        """t(n) / t(1) at index n: measured or heard of, on the line between such neighbours, on their slope beyond."""
        self.hoped = self._hoped(values, heard)
        """As `expected`, but what was not measured twice costs a fraction of the rows before it."""
        self.fair = [
            hoped if shape.count == 1 else 0.5 * (expected + hoped)
            for shape, expected, hoped in zip(self._shape, self.expected, self.hoped, strict=True)
        ]
        """Between the two: a slope that goes on for ever forbids what was never tried, and a first pass may be late."""

    def _relative(self, n: int) -> float:
        """t(n) / t(1) as measured: what was heard of and believed counts as one of the first samples."""
        shape = self._shape[n]
        measured = shape.value / self._shape[1].value + self._alone * self._delay
        if self._believed and shape.count < FIRST and n <= max(self._heard):
            return min(measured, _between(self._heard, n) / self._heard[1])
        return measured

    def _expected(self, known: list[tuple[int, float]]) -> list[float]:
        curve = [0.0, 1.0]
        at = 1
        for n, value in known:
            if n > at + 1:
                step = (value - curve[at]) / (n - at)
                curve += [curve[at] + step * more for more in range(1, n - at)]
            curve.append(value)
            at = n
        slope = max(GENTLE, (curve[at] - 1.0) / (at - 1)) if at > 1 else STEEP
        return curve + [curve[at] + slope * more for more in range(1, self.longest - at + 1)]

    def _hoped(self, known: Collection[int], heard: int) -> list[float]:
        curve, slope, last = self.expected.copy(), GENTLE, 1.0
        row = CREDIT * self._row / self.plain if self.plain else 0.0
        for n in range(2, self.longest + 1):
            if last + slope < curve[n] and n > heard and self._shape[n].count < 2:
                curve[n] = min(curve[n], max(last + slope, n * row))
            last = curve[n]
            if n in known:
                slope = max(GENTLE, HOPE * (self.expected[n] - 1.0) / (n - 1))
        return curve


def _between(times: dict[int, float], n: int) -> float:
    """The time of a pass over n tokens, n = 1 being known: on the line between known ones, in proportion beyond."""
    if n in times:
        return times[n]
    below, above = max(at for at in times if at < n), min((at for at in times if at > n), default=0)
    if not above:
        return times[below] * n / below
    return times[below] + (times[above] - times[below]) * (n - below) / (above - below)


def clipped(ratio: float) -> float:
    """`ratio`, at most `CLIP` away from 1."""
    return 1.0 - CLIP if ratio < 1.0 - CLIP else 1.0 + CLIP if ratio > 1.0 + CLIP else ratio
