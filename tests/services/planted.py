"""The four classic errors of speculative decoding, planted in drafters and a rule, and honest ones beside them.

All drive the real rule, round and context; each reports or judges one thing wrongly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from localspec.core.draft import EMPTY, ROOT, Draft, Ids, Verdict
from localspec.core.law import Law
from localspec.core.rejection import Rejection
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget
from localspec.engine.base import Cancelled, Context, Pass, Row


class Chain:
    """Draws token by token from the draft's law and reports it: no error."""

    name = "chain"

    def __init__(self, context: Context) -> None:
        self._context = context

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        self.sampling, self.rule = sampling, rule

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        drafted: list[int] = []
        laws: list[Law | None] = []
        while len(drafted) < budget.limit:
            found = self.draw(self.logits([*tokens.tolist(), *drafted]), len(tokens) + len(drafted))
            if found is None:
                break
            drafted.append(found[0])
            laws.append(found[1])
        return Draft.chain(drafted, laws) if drafted else EMPTY

    def draw(self, logits: Row, position: int) -> tuple[int, Law | None] | None:
        """A token, and the law that is reported for it."""
        return self.rule.guess(self.law(logits), position)

    def logits(self, text: list[int]) -> Row:
        result = self._context.prefill(text)
        assert result is not None
        return np.array(result.logits(0))

    def law(self, logits: Row) -> Law:
        return self.sampling.law(logits, EMPTY.tokens)

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Nothing to learn."""

    def close(self) -> None:
        self._context.close()


class OtherTemperature(Chain):
    """Draws at one temperature and reports the law of another."""

    name = "other temperature"

    def draw(self, logits: Row, position: int) -> tuple[int, Law | None] | None:
        return self.rule.guess(self.law(logits / 1.5), position)[0], self.law(logits)


class TopPicks(Chain):
    """Takes the likeliest token and reports it as drawn."""

    name = "top picks as samples"

    def draw(self, logits: Row, position: int) -> tuple[int, Law | None] | None:
        return int(logits.argmax()), self.law(logits)


class Timid(Chain):
    """Drops a drawn token that it finds unlikely."""

    name = "unlikely draws dropped"

    def draw(self, logits: Row, position: int) -> tuple[int, Law | None] | None:
        token, law = self.rule.guess(self.law(logits), position)
        return (token, law) if self.law(logits).prob(token) >= 0.25 else None


class Fan(Chain):
    """Three siblings drawn without replacement, each reported with its law given its elders: no error."""

    name = "fan"

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        drawn = self.rule.guesses(self.law(self.logits(tokens.tolist())), len(tokens), 3)
        ids = np.array([token for token, _ in drawn], dtype=np.int32)
        return Draft(ids, np.full(len(ids), ROOT, dtype=np.int32), tuple(law for _, law in drawn))


class Forgetful(Rejection):
    """Judges every sibling against the verifier's own row, not against what its elders have left of it."""

    def _choose(self, draft: Draft, siblings: tuple[int, ...], row: Law) -> tuple[int | None, Law]:
        left = row
        for node in siblings:
            chosen, left = super()._choose(draft, (node,), row)
            if chosen is not None:
                return chosen, row
        return None, left


HONEST: list[Callable[[Context], Chain]] = [Chain, Fan]
LYING: list[Callable[[Context], Chain]] = [OtherTemperature, TopPicks, Timid]
