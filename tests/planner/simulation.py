"""A machine with a simulated clock, a text with known acceptance, and the best that fixed lengths can do on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

Shape = Callable[[int], float]
Floats = np.ndarray


@dataclass(frozen=True)
class Round:
    """A report as the loop writes it."""

    drafted: int
    tested: int
    accepted: int
    draft_s: float
    verify_s: float
    context: int
    confidences: tuple[float, ...] = ()


class Lengths(Protocol):
    def limit(self, room: int) -> int: ...
    def pays(self, depth: int, confidence: float) -> bool: ...
    def observe(self, report: Round) -> None: ...


@dataclass(frozen=True)
class Fixed:
    N: int

    def limit(self, room: int) -> int:
        return min(self.N, room)

    def pays(self, depth: int, confidence: float) -> bool:
        return True

    def observe(self, report: Round) -> None:
        return None


def table(milliseconds: dict[int, float]) -> Shape:
    """t(n) on straight lines between measured points."""
    ns, times = list(milliseconds), [ms / 1e3 for ms in milliseconds.values()]
    return lambda n: float(np.interp(n, ns, times))


SHAPES: dict[str, Shape] = {
    "flat": lambda n: 0.02 * (1 + 0.01 * (n - 1)),
    "linear": lambda n: 0.02 * (1 + 0.8 * (n - 1)),
    "gentle": lambda n: 0.02 * (1 + 0.1 * (n - 1)),
    "stepped": lambda n: 0.02 * (1.0 if n <= 1 else 1.2 if n <= 4 else 1.6 if n <= 8 else 2.6),
    "Q4_1": table({1: 16.2, 2: 29.0, 4: 45.5, 6: 59.0, 8: 77.5, 12: 91.2, 16: 134.9}),
    "Q4_0": table({1: 11.5, 2: 19.8, 4: 23.5, 6: 33.7, 8: 39.9, 12: 55.8, 16: 64.2}),
    "F32": table({1: 35.7, 2: 47.7, 4: 57.6, 6: 60.1, 8: 68.1, 12: 77.0, 16: 97.1}),
}


@dataclass(frozen=True)
class Text:
    """Token by token: how likely a guess is accepted there, the luck that decides, what an honest drafter says of it."""

    chance: Floats
    luck: Floats
    speaks: bool

    def accepted(self, at: int) -> bool:
        return bool(self.luck[at] < self.chance[at])


def text(rates: Sequence[float] | Floats, *, spread: float | None, seed: int) -> Text:
    """A text with these mean rates; `spread` > 0: each token has its own chance, which the drafter knows and tells."""
    rng = np.random.default_rng(seed)
    mean = np.asarray(rates, dtype=float)
    luck = rng.random(len(mean))
    if spread is None:
        return Text(mean, luck, speaks=False)
    safe = np.clip(mean, 1e-3, 1 - 1e-3)
    return Text(rng.beta(spread * safe, spread * (1 - safe)), luck, speaks=True)


@dataclass(frozen=True)
class Machine:
    """Seconds of passes and drafts; `draft` is c, in plain passes; jitter and one-sided outliers are added."""

    shape: Shape
    draft: float
    noise: float = 0.05
    outliers: float = 0.01
    catch_up: float = 0.25  # cost of a token the drafter has to read up on, in draft tokens
    growth: float = 0.0  # how much slower everything is after 1,000 tokens
    seed: int = 0


@dataclass
class Run:
    tokens: int = 0
    seconds: float = 0.0
    lengths: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds


def play(lengths: Lengths, machine: Machine, words: Text, *, tokens: int, noisy: bool = True) -> Run:
    """Decode `tokens` tokens. Every choice of lengths meets the same luck at the same place of the text."""
    rng = np.random.default_rng(machine.seed)
    run, missed = Run(), 0
    plain = machine.shape(1)

    def jitter() -> float:
        if not noisy:
            return 1.0
        return float(np.exp(machine.noise * rng.standard_normal())) * (3.0 if rng.random() < machine.outliers else 1.0)

    while run.tokens < tokens:
        slower = 1.0 + machine.growth * run.tokens / 1000.0
        limit = lengths.limit(tokens - run.tokens - 1)
        drafted, steps, confidences = 0, 0, []
        while drafted < limit:
            steps += 1
            if words.speaks:
                confidence = float(words.chance[run.tokens + drafted])
                if not lengths.pays(drafted + 1, confidence):
                    break
                confidences.append(confidence)
            drafted += 1
        accepted = 0
        while accepted < drafted and words.accepted(run.tokens + accepted):
            accepted += 1
        draft_s = (steps + (missed * machine.catch_up if limit else 0.0)) * machine.draft * plain * slower * jitter()
        verify_s = machine.shape(drafted + 1) * slower * jitter()
        missed = 0 if limit else missed + 1
        tested = min(accepted + 1, drafted)
        lengths.observe(Round(drafted, tested, accepted, draft_s, verify_s, run.tokens, tuple(confidences)))
        run.starts.append(run.tokens)
        run.lengths.append(drafted)
        run.tokens += accepted + 1
        run.seconds += draft_s + verify_s
    return run


def best_fixed(machine: Machine, words: Text, *, tokens: int, longest: int = 15) -> tuple[int, float]:
    """The best N in hindsight and its speed, on the same text."""
    speeds = {N: play(Fixed(N), machine, words, tokens=tokens).speed for N in range(longest + 1)}
    best = max(speeds, key=speeds.__getitem__)
    return best, speeds[best]
