"""`theory rollback`: what a cache holds before, during and after a round, on three scripted cases.

The drafts are written down so that the rejection comes where the case wants it; passes, rule and commit are the real
ones, on the toy model. Knows nothing about tables or terminals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from localspec.core.draft import Draft
from localspec.core.rejection import Rejection
from localspec.core.sampling import Sampling
from localspec.engine.base import Context
from localspec.loop.round import RowLaws
from localspec.services.theory.toy import SIZE, ToyPair

GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True)
class Case:
    """A text of `prefix` tokens and a draft that the verifier agrees with but at `wrong_at`, 1 = first; None: all."""

    name: str
    prefix: int
    drafted: int
    wrong_at: int | None


TOGETHER = (
    Case("two sequences: A, all accepted", prefix=6, drafted=4, wrong_at=None),
    Case("two sequences: B, rejected at 2", prefix=8, drafted=4, wrong_at=2),
)
ALONE = Case("prefix 10, draft 5, rejected at 3", prefix=10, drafted=5, wrong_at=3)


@dataclass(frozen=True)
class Rolled:
    """What happened. Lengths in tokens: the cache holds the text but its last, pending token.

    cache     before, during and after the round
    text      before and after
    accepted  draft tokens that stayed
    lost      committed tokens that the cache does not hold as they stand in the text
    same_row  the next law is the one that a fresh cache gives
    """

    case: Case
    cache: tuple[int, int, int]
    text: tuple[int, int]
    drafted: tuple[int, ...]
    emitted: tuple[int, ...]
    accepted: int
    lost: int
    same_row: bool

    @property
    def passed(self) -> bool:
        expected = self.case.drafted if self.case.wrong_at is None else self.case.wrong_at - 1
        return (
            self.accepted == expected
            and len(self.emitted) == expected + 1
            and self.cache[2] == self.cache[0] + 1 + expected
            and self.lost == 0
            and self.same_row
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "case": self.case.name,
            "prefix": self.case.prefix,
            "drafted": list(self.drafted),
            "emitted": list(self.emitted),
            "accepted": self.accepted,
            "text_before": self.text[0],
            "text_after": self.text[1],
            "cache_before": self.cache[0],
            "cache_during": self.cache[1],
            "cache_after": self.cache[2],
            "lost": self.lost,
            "same_row": self.same_row,
            "passed": self.passed,
        }


@dataclass(frozen=True)
class Rollback:
    """All cases."""

    seed: int
    rows: tuple[Rolled, ...]

    @property
    def passed(self) -> bool:
        return all(row.passed for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema": "localspec.theory.rollback/1",
            "seed": self.seed,
            "rows": [row.as_dict() for row in self.rows],
            "passed": self.passed,
        }


class Sequence:
    """One text with its cache, in the middle of a round between `evaluate` and `settle`."""

    def __init__(self, pair: ToyPair, case: Case, seed: int) -> None:
        self.pair = pair
        self.case = case
        self.context = pair.verifier()
        self.text: list[int] = np.random.default_rng([seed, case.prefix]).integers(SIZE, size=case.prefix).tolist()
        self.context.prefill(self.text[:-1], logits=False)
        self.draft = Draft.chain(scripted(self.text, pair.verifier(), case))
        self.before = self.context.length
        self.emitted: tuple[int, ...] = ()
        self.accepted = 0

    def evaluate(self) -> None:
        """The pass over the pending token and the draft."""
        self.result = self.context.evaluate(self.text[-1], self.draft)

    def settle(self) -> None:
        """Judge the draft, keep what was accepted."""
        tokens = np.array(self.text, dtype=np.int32)
        rule = Rejection(np.random.default_rng(0))
        verdict = rule.accept(self.draft, RowLaws(tokens, self.draft, self.result, GREEDY), len(tokens))
        self.context.commit(verdict.path)
        self.accepted = len(verdict.path)
        self.emitted = (*self.draft.tokens[list(verdict.path)].tolist(), verdict.next_token)
        self.text += self.emitted

    def rolled(self) -> Rolled:
        """Compare the cache with the text, and its next row with a fresh cache's."""
        held, expected = self.context.tokens.tolist(), self.text[:-1]
        lost = sum(at >= len(held) or held[at] != token for at, token in enumerate(expected))
        next_row, fresh_row = (context.prefill(self.text) for context in (self.context, self.pair.verifier()))
        assert next_row is not None
        assert fresh_row is not None
        return Rolled(
            self.case,
            cache=(self.before, self.before + 1 + len(self.draft), len(held)),
            text=(self.case.prefix, len(self.text)),
            drafted=tuple(self.draft.tokens.tolist()),
            emitted=self.emitted,
            accepted=self.accepted,
            lost=lost + max(0, len(held) - len(expected)),
            same_row=bool(np.array_equal(next_row.logits(0), fresh_row.logits(0))),
        )


def scripted(text: list[int], context: Context, case: Case) -> list[int]:
    """The verifier's own greedy continuation, but for the token at `wrong_at`."""
    continuation: list[int] = []
    for place in range(1, case.drafted + 1):
        result = context.prefill([*text, *continuation])
        assert result is not None
        best = int(result.logits(0).argmax())
        continuation.append((best + 1) % SIZE if place == case.wrong_at else best)
    return continuation


def rollback(*, seed: int) -> Rollback:
    """Play the cases; the two sequences are in the middle of their rounds at the same time."""
    pair = ToyPair(0.0, seed=seed)
    together = [Sequence(pair, case, seed) for case in TOGETHER]
    alone = Sequence(pair, ALONE, seed)
    for group in (together, [alone]):
        for sequence in group:
            sequence.evaluate()
        for sequence in group:
            sequence.settle()
    return Rollback(seed, tuple(sequence.rolled() for sequence in (*together, alone)))
