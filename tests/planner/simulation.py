"""A machine with a simulated clock, a text with known acceptance, and the best that fixed lengths can do on them.

The controller is shown times with jitter and outliers; speeds are counted in the true times, so they judge decisions
and nothing else, and come out the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from localspec.loop.control import RoundReport
from localspec.loop.rest import Rest

Shape = Callable[[int], float]
Floats = npt.NDArray[np.float64]
PROMPT = 50
"""Tokens that each answer is to."""


class Lengths(Protocol):
    """What is judged; see `loop.control.Controller`."""

    @property
    def rest(self) -> int: ...
    def begin(self, prompt: int) -> bool: ...
    def limit(self, room: int) -> int: ...
    def pays(self, depth: int, confidence: float) -> bool: ...
    def observe(self, report: RoundReport) -> None: ...


def table(milliseconds: dict[int, float]) -> Shape:
    """t(n) on straight lines between measured points."""
    ns, times = list(milliseconds), [ms / 1e3 for ms in milliseconds.values()]
    return lambda n: float(np.interp(n, ns, times))


SHAPES: dict[str, Shape] = {
    "flat": lambda n: 0.02 * (1 + 0.01 * (n - 1)),
    "linear": lambda n: 0.02 * (1 + 0.8 * (n - 1)),
    "gentle": lambda n: 0.02 * (1 + 0.1 * (n - 1)),
    "stepped": lambda n: 0.02 * (1.0 if n <= 1 else 1.2 if n <= 4 else 1.6 if n <= 8 else 2.6),
    # measured: SmolLM2-135M on two CPU cores
    "Q4_1": table({1: 16.2, 2: 29.0, 4: 45.5, 6: 59.0, 8: 77.5, 12: 91.2, 16: 134.9}),
    "Q4_0": table({1: 11.5, 2: 19.8, 4: 23.5, 6: 33.7, 8: 39.9, 12: 55.8, 16: 64.2}),
    "F32": table({1: 35.7, 2: 47.7, 4: 57.6, 6: 60.1, 8: 68.1, 12: 77.0, 16: 97.1}),
}


@dataclass(frozen=True)
class Text:
    """Token by token: whether a guess is accepted there, and what the drafter says of it before, if it does.

    Every choice of lengths meets the same luck at the same place.
    """

    accepted: npt.NDArray[np.bool_]
    said: Floats | None


def text(
    rates: Sequence[float], *, spread: float | None = None, said: Callable[[Floats], Floats] | None = None, seed: int
) -> Text:
    """A text with these mean rates.

    With `spread` each token has a chance of its own, from a beta law about its mean, that the drafter knows and tells
    (as it is, or through `said`); without it the drafter says nothing.
    """
    rng = np.random.default_rng(seed)
    chance = np.asarray(rates, dtype=np.float64)
    luck = rng.random(len(chance))
    if spread is None:
        return Text(luck < chance, None)
    safe = np.clip(chance, 1e-3, 1 - 1e-3)
    chance = rng.beta(spread * safe, spread * (1 - safe))
    return Text(luck < chance, said(chance) if said else chance)


@dataclass(frozen=True)
class Machine:
    """What things cost here.

    shape     t(n) in seconds
    draft     seconds of a draft token, in plain passes
    catch_up  of a token the drafter has to read up on after it was not asked, in draft tokens
    growth    how much slower passes are after 1,000 more tokens of context
    noise     relative jitter of the times that are shown; one in a hundred is three times too long
    """

    shape: Shape
    draft: float
    catch_up: float = 0.25
    growth: float = 0.0
    noise: float = 0.05


@dataclass
class Run:
    """What came of it: a length per round, and the token it started at."""

    tokens: int = 0
    seconds: float = 0.0
    lengths: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds

    def mean_length(self, start: int, end: int) -> float:
        """Of the rounds that started at these tokens."""
        return float(np.mean([n for n, at in zip(self.lengths, self.starts, strict=True) if start <= at < end]))


def play(
    lengths: Lengths, machine: Machine, words: Text, *, tokens: int, answer: int | None = None, seed: int = 0
) -> Run:
    """Decode `tokens` tokens, in answers of `answer` tokens each (None: one answer)."""
    rng = np.random.default_rng(seed)
    run, plain = Run(), machine.shape(1)
    rest = Rest(lengths)
    answer = answer or tokens
    in_answer = 0
    missed = 0 if lengths.begin(PROMPT) else PROMPT

    def shown(seconds: float) -> float:
        late = 3.0 if rng.random() < 0.01 else 1.0
        return seconds * late * float(np.exp(machine.noise * rng.standard_normal()))

    while run.tokens < tokens:
        if in_answer >= answer:
            rest.end()
            in_answer = 0
            missed = 0 if lengths.begin(PROMPT) else PROMPT
        room = min(answer - in_answer, tokens - run.tokens) - 1
        limit = rest.limit(room)
        drafted, steps, confidences = 0, 0, list[float]()
        while drafted < limit:
            steps += 1
            if words.said is not None:
                confidence = float(words.said[run.tokens + drafted])
                if not lengths.pays(drafted + 1, confidence):
                    break
                confidences.append(confidence)
            drafted += 1
        accepted = 0
        while accepted < drafted and words.accepted[run.tokens + accepted]:
            accepted += 1
        slower = 1.0 + machine.growth * run.tokens / 1000.0
        draft_s = machine.draft * plain * slower * (steps + (machine.catch_up * missed if limit else 0.0))
        verify_s = machine.shape(drafted + 1) * slower
        rest.tell(
            RoundReport(
                drafted=drafted,
                tested=min(accepted + 1, drafted),
                accepted=accepted,
                refused=accepted < drafted,
                draft_s=shown(draft_s),
                verify_s=shown(verify_s),
                confidences=tuple(confidences),
            )
        )
        run.starts.append(run.tokens)
        run.lengths.append(drafted)
        run.tokens += accepted + 1
        run.seconds += draft_s + verify_s
        in_answer += accepted + 1
        missed = 0 if limit else missed + 1
    rest.end()
    return run


def fixed_speed(N: int, machine: Machine, words: Text, *, tokens: int) -> float:
    """Tokens per second of always drafting N."""
    at, seconds = 0, 0.0
    cost = machine.shape(N + 1) + N * machine.draft * machine.shape(1)
    rejected = np.flatnonzero(~words.accepted)
    following = (
        rejected[np.minimum(np.searchsorted(rejected, np.arange(tokens)), len(rejected) - 1)] if len(rejected) else None
    )
    while at < tokens:
        run = int(following[at]) - at if following is not None else N
        seconds += cost * (1.0 + machine.growth * at / 1000.0)
        at += min(N, max(run, 0)) + 1
    return at / seconds


def best_fixed(machine: Machine, words: Text, *, tokens: int, longest: int = 15) -> float:
    """The speed of the best N in hindsight, 0 included."""
    return max(fixed_speed(N, machine, words, tokens=tokens) for N in range(longest + 1))
