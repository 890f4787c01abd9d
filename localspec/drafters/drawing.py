"""From rows of a drafter's own law to drafts: what a draft model and a head that runs on its own output have in common.

Each token is drawn from the row's law under the verifier's sampling settings (or a temperature of the drafter's own),
by the rule of the answer; a tree is grown with one pass per depth. Knows nothing about what computes the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from localspec.core.confidence import confidence
from localspec.core.draft import EMPTY, Draft, Ids, Verdict
from localspec.core.growth import Grown, Sibling, dynamic, fixed
from localspec.core.law import Law
from localspec.core.picks import heaviest, likeliest
from localspec.core.ranks import Ranks, plan
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.core.shapes import Shape
from localspec.drafters.base import Budget, Lender
from localspec.engine.base import Pass
from localspec.errors import UsageError

Logits = npt.NDArray[np.float32]
"""(V,) over the verifier's ids; -inf for what must not be proposed."""
Row = tuple[Logits, Ids]
"""What follows a node: its logits, and the path that leads there."""
Siblings = Literal["drawn", "top"]


class Grower(Protocol):
    """Evaluates layers of a tree below the pending token, as `core.growth.Source` wants them, into rows of logits."""

    @property
    def nodes(self) -> int:
        """Most nodes that all layers together may hold."""
        ...

    @property
    def leaves(self) -> int:
        """Most paths that they may hold."""
        ...

    def grow(self, tokens: Ids, parents: Ids) -> Sequence[Logits]:
        """One pass over new nodes; `parents` count through all nodes so far, -1 is the pending token."""
        ...


def check_options(temperature: float, siblings: str) -> None:
    """Raises `UsageError` for what `Drawing` cannot take from a user."""
    if temperature != -1.0 and not 0.0 <= temperature < math.inf:
        raise UsageError(f"option temperature is {temperature}", hint="Choose 0 or more, or -1 for the verifier's.")
    if siblings not in get_args(Siblings):
        raise UsageError(f"option siblings is {siblings!r}", hint="Choose drawn or top.")


class Shared:
    """Rows of a second model over the ids that mean the same to the verifier: the others can never be proposed."""

    def __init__(self, lender: Lender) -> None:
        self._known = lender.known("draft")
        self._blocked = lender.blocked("draft")

    def __call__(self, logits: Logits) -> Logits:
        if len(logits) > self._known:
            logits = logits[: self._known]
        if len(self._blocked):
            logits = logits.copy()
            logits[self._blocked] = -np.inf
        return logits


class Growing:
    """`Grower` over what grows passes: a draft's context, a head."""

    def __init__(self, grow: Callable[[Ids, Ids], Pass], shared: Shared, *, nodes: int, leaves: int) -> None:
        self._grow = grow
        self._shared = shared
        self.nodes = nodes
        self.leaves = leaves

    def grow(self, tokens: Ids, parents: Ids) -> Sequence[Logits]:
        """See `Grower.grow`; rows live until the next call."""
        result = self._grow(tokens, parents)
        return [self._shared(result.logits(row)) for row in range(len(tokens))]


class Drawing:
    """How one drafter turns its rows into tokens; remembers how often siblings of each rank were taken."""

    def __init__(
        self, *, is_end: Callable[[int], bool], temperature: float = -1.0, siblings: Siblings = "drawn"
    ) -> None:
        """`temperature` of the drafter's law, -1: the verifier's. `siblings` of a tree above temperature 0: drawn, or
        top (the likeliest, as EAGLE-2 takes them).
        """
        self._is_end = is_end
        self._own_temperature = temperature
        self._siblings_are = siblings
        self._sampling = Sampling()
        self._rule: Rule | None = None
        self._ranks = Ranks()

    def begin(self, sampling: Sampling, rule: Rule) -> None:
        """A new answer, with the verifier's sampling and the rule to draw with."""
        own = self._own_temperature
        self._sampling = sampling if own < 0 else replace(sampling, temperature=own)
        self._rule = rule

    def chain(self, tokens: Ids, logits: Logits, step: Callable[[int], Logits], budget: Budget) -> Draft:
        """One draw after the other, as long as one more pays: asked of each row before a token is drawn from it.

        `logits` follow `tokens`; `step(token)` evaluates the drawn token and returns the row behind it.
        """
        drafted: list[int] = []
        laws: list[Law | None] = []
        while True:
            law = self._sampling.law(logits, self._recent(tokens, drafted))
            if budget.asks and not budget.pays(len(drafted) + 1, self._confidence(logits, law)):
                break
            token, reported = self._drawn_by.guess(law, len(tokens) + len(drafted))
            drafted.append(token)
            laws.append(reported)
            if len(drafted) >= budget.limit or self._is_end(token):
                break
            logits = step(token)
        return Draft.chain(drafted, laws) if drafted else EMPTY

    def tree(self, tokens: Ids, logits: Logits, grower: Grower, budget: Budget) -> Grown:
        """The shape that was asked for, or as far as the rows (picks) or the rates so far (draws) say it pays."""
        root = (logits, tokens[:0])
        source = _Layers(grower, lambda row, count, depth: self._siblings(tokens, row, count, depth))
        if isinstance(budget.tree, Shape):
            return fixed(budget.tree, source, root, is_end=self._is_end)
        assert budget.tree is not None
        if self._picks:
            return dynamic(budget.tree, source, root, widen=budget.widen, choose=budget.choose, is_end=self._is_end)
        shape = plan(self._ranks, budget.tree, widen=budget.widen, choose=budget.choose)
        return fixed(shape, source, root, is_end=self._is_end)

    def learn(self, draft: Draft, verdict: Verdict) -> None:
        """Count which siblings of a tree were taken."""
        self._ranks.learn(draft, verdict)

    @property
    def _picks(self) -> bool:
        """True when a tree's tokens are picked and not drawn, so that they may be chosen by what they are."""
        return self._sampling.greedy or self._siblings_are == "top"

    def _confidence(self, logits: Logits, law: Law) -> float:
        return confidence(logits) if self._sampling.greedy else law.top

    @property
    def _drawn_by(self) -> Rule:
        assert self._rule is not None, "propose before begin"
        return self._rule

    def _siblings(self, tokens: Ids, row: Row, count: int, depth: int) -> list[Sibling]:
        logits, path = row
        if self._sampling.greedy and not self._sampling.penalises and not self._sampling.logit_bias:
            return [Sibling(token, None, prob) for token, prob in likeliest(logits, count)]
        law = self._pickable.law(logits, self._recent(tokens, path))
        if self._picks:
            return [Sibling(token, None, prob) for token, prob in heaviest(law, count)]
        drawn = self._drawn_by.guesses(law, len(tokens) + depth - 1, count)
        chances = self._ranks.chances(len(drawn))
        return [Sibling(token, law, chance) for (token, law), chance in zip(drawn, chances, strict=True)]

    @property
    def _pickable(self) -> Sampling:
        """The law that siblings come from: a greedy one has no second place, so there temperature 1 ranks them."""
        return replace(self._sampling, temperature=1.0) if self._sampling.greedy else self._sampling

    def _recent(self, tokens: Ids, drafted: Sequence[int] | Ids) -> Ids:
        """Tokens before the next one; only penalties read them."""
        if not len(drafted) or not self._sampling.penalises:
            return tokens
        return np.concatenate([tokens, np.asarray(drafted, dtype=np.int32)])


class _Layers:
    """`core.growth.Source` over a grower: its rows come with the paths that lead to them."""

    def __init__(self, grower: Grower, siblings: Callable[[Row, int, int], list[Sibling]]) -> None:
        self._grower = grower
        self.siblings = siblings
        self.nodes = grower.nodes
        self.leaves = grower.leaves

    def layer(self, tokens: Ids, parents: Ids, path: Callable[[int], Ids]) -> list[Row]:
        return [(logits, path(node)) for node, logits in enumerate(self._grower.grow(tokens, parents))]
