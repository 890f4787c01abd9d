"""How well one model speaks for another: both read the same text token by token, and their laws are compared.

What comes out is what a drafter of that kind would reach: agreement at temperature 0, alpha at temperature 1, and the
cost of a drafted token beside that of a pass. Knows contexts and prompts; not where the models came from.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from localspec.core import theory
from localspec.core.draft import EMPTY
from localspec.core.sampling import Sampling
from localspec.engine.base import Context, Row

LENGTHS = (1, 2, 3, 4, 5, 8)
"""Draft lengths among which the best is looked for."""
FREE = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
_NOTHING = np.empty(0, dtype=np.int32)


@dataclass(frozen=True)
class Share:
    """A mean over tokens, with what chance alone would move it."""

    value: float
    tokens: int

    @property
    def error(self) -> float:
        """Standard error of a share of that many tokens."""
        return math.sqrt(max(self.value * (1.0 - self.value), 0.0) / self.tokens)


@dataclass(frozen=True)
class Likeness:
    """agreement  share of tokens of greedy text at which the favourite of both models is the same
    alpha      mean over sampled text (temperature 1, no filters) of the sum of min(p, q)
    cost       seconds for a token of the draft / for a plain pass of the verifier, medians
    curve      (n, t(n) / t(1)) of the verifier
    """

    agreement: Share
    alpha: Share
    cost: float
    curve: tuple[tuple[int, float], ...]

    def as_dict(self) -> dict[str, Any]:
        """As `models derive --json` prints it."""
        return {
            "agreement": self.agreement.value,
            "agreement_tokens": self.agreement.tokens,
            "alpha": self.alpha.value,
            "alpha_tokens": self.alpha.tokens,
            "cost": self.cost,
            "cost_curve": [{"n": n, "ratio": ratio} for n, ratio in self.curve],
            "greedy": self._expected(self.agreement.value),
            "sampled": self._expected(self.alpha.value),
            "worth_it": self.is_worth_it,
        }

    @property
    def is_worth_it(self) -> bool:
        """True when drafting with it is expected to be faster than plain decoding, greedy or sampled."""
        return max(self.best(share.value)[1] for share in (self.agreement, self.alpha)) >= theory.WORTH

    def _expected(self, acceptance: float) -> dict[str, float]:
        N, speedup = self.best(acceptance)
        return {"best_N": N, "expected_speedup": speedup}

    def best(self, acceptance: float) -> tuple[int, float]:
        """The N and the speed-up to expect if each drafted token is accepted with that probability; N = 0: plain."""
        curve = dict(self.curve)
        found = {0: 1.0}
        for N in LENGTHS:
            if N + 1 in curve:
                found[N] = 1.0 / theory.time_per_token(acceptance, N, self.cost, verify=curve[N + 1])
        N = max(found, key=lambda length: (found[length], -length))
        return N, found[N]


@dataclass
class _Tally:
    agreed: int = 0
    greedy: int = 0
    overlap: float = 0.0
    sampled: int = 0

    @property
    def tokens(self) -> int:
        return self.greedy + self.sampled


def compare(
    verifier: Context,
    draft: Context,
    prompts: Sequence[Sequence[int]],
    *,
    tokens: int,
    is_end: Callable[[int], bool],
    rng: np.random.Generator,
    told: Callable[[int], None],
) -> tuple[Share, Share, float]:
    """Agreement, alpha and cost over about `tokens` tokens of greedy and as many of sampled text of the verifier.

    A text ends at its end token or at its share of the tokens; at least one token of each kind is compared.
    `told` hears how many tokens have been compared.
    """
    tally = _Tally()
    seconds: dict[Context, list[float]] = {verifier: [], draft: []}
    each = max(1, -(-tokens // len(prompts)))
    for prompt in prompts:
        for greedy in (True, False):
            room = verifier.capacity - len(prompt)
            for context in (verifier, draft):
                context.prefill(prompt[:-1], logits=False)
            pending = prompt[-1]
            for _ in range(min(each, room)):
                q, p = (_step(context, pending, seconds[context]) for context in (verifier, draft))
                pending = _count(tally, q, p, greedy=greedy, rng=rng)
                told(tally.tokens)
                if is_end(pending):
                    break
    cost = statistics.median(seconds[draft]) / statistics.median(seconds[verifier])
    return Share(tally.agreed / tally.greedy, tally.greedy), Share(tally.overlap / tally.sampled, tally.sampled), cost


def _step(context: Context, pending: int, seconds: list[float]) -> Row:
    """The row behind `pending`, which is committed."""
    started = time.perf_counter()
    row = context.evaluate(pending, EMPTY).logits(0)
    seconds.append(time.perf_counter() - started)
    context.commit(())
    return row


def _count(tally: _Tally, q: Row, p: Row, *, greedy: bool, rng: np.random.Generator) -> int:
    """Book one token; returns the one that the verifier says."""
    if greedy:
        said = int(q.argmax())
        tally.agreed += said == int(p.argmax())
        tally.greedy += 1
        return said
    laws = [FREE.law(row, _NOTHING) for row in (q, p)]
    tally.overlap += theory.overlap(*(law.dense(len(row)) for law, row in zip(laws, (q, p), strict=True)))
    tally.sampled += 1
    return laws[0].sample(rng)
