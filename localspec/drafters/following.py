"""What drafters do with a head that follows the verifier's text and runs on its own output: chains and trees from it.

The head reads the verifier's hidden rows by itself, so all that is left here is to draw. Knows no kind of head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from localspec.core.draft import EMPTY, Draft, Ids, Verdict
from localspec.core.growth import Grown
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Lender
from localspec.drafters.drawing import Drawing, Logits, Siblings
from localspec.engine.base import Cancelled, Head, Pass


class FollowingHead:
    """A drafter over one head of the pair; `name` is the kind of head."""

    name = "head"

    def __init__(self, lender: Lender, *, force: bool, temperature: float, siblings: Siblings) -> None:
        """Opens the head. Raises `DrafterError` or `PairError` when the pair has none of this kind that fits."""
        self._head = lender.head(self.name, force=force)
        self._known = lender.known("draft")
        self._blocked = lender.blocked("draft")
        self._drawing = Drawing(is_end=lender.is_end, temperature=temperature, siblings=siblings)
        self._grown: Grown | None = None

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        """Read the prompt ahead."""
        self._drawing.begin(sampling, rule)
        self._head.follow(tokens, logits=False, cancelled=cancelled)

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        """A chain or a tree below the last of `tokens`; empty where the verifier's rows are missing."""
        result = self._head.follow(tokens, cancelled=budget.cancelled)
        if result is None:
            return EMPTY
        logits = self._shared(result.logits(0))
        if budget.tree is None or self._head.leaves == 1:
            return self._drawing.chain(tokens, logits, self._step, budget)
        self._grown = self._drawing.tree(tokens, logits, Growing(self._head, self._shared_rows), budget)
        return self._grown.draft

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Count which siblings were taken. The accepted tokens are read again, with the verifier's own rows."""
        grown, self._grown = self._grown, None
        if grown is not None and verdict is not None:
            self._drawing.learn(grown.draft, verdict)

    def close(self) -> None:
        """Nothing to free: the head is lent."""

    def _step(self, token: int) -> Logits:
        return self._shared(self._head.step(token).logits(0))

    def _shared_rows(self, result: Pass) -> list[Logits]:
        return [self._shared(result.logits(row)) for row in range(result.rows)]

    def _shared(self, logits: Logits) -> Logits:
        """Only the ids that mean the same to the verifier: the others can never be proposed."""
        logits = logits[: self._known]
        if len(self._blocked):
            logits = logits.copy()
            logits[self._blocked] = -np.inf
        return logits


class Growing:
    """`drawing.Grower` over a head."""

    def __init__(self, head: Head, rows: Callable[[Pass], list[Logits]]) -> None:
        self._head = head
        self._rows = rows
        self.nodes = head.nodes
        self.leaves = head.leaves

    def grow(self, tokens: Ids, parents: Ids) -> Sequence[Logits]:
        """See `drawing.Grower.grow`; rows live until the next call."""
        return self._rows(self._head.grow(tokens, parents))
