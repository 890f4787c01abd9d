"""A second, smaller model drafts token by token (Leviathan et al. 2023, Chen et al. 2023).

Wins where a pass of the verifier costs about as much for several tokens as for one and the draft costs a tenth of it.
Loses where the verifier is compute-bound (quantised weights on a CPU) or the draft is too large or of another family.
Each token is drawn from the draft's own law, under the verifier's sampling settings unless told otherwise. A tree is
grown with one pass of the draft per depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

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
from localspec.engine.base import Cancelled, Context, Pass
from localspec.errors import UsageError

Logits = npt.NDArray[np.float32]
Row = tuple[Logits, Ids]
"""What follows a node: its logits, and the path that leads there."""
Siblings = Literal["drawn", "top"]


@dataclass(frozen=True)
class Options:
    """What a user can set with -o.

    temperature  temperature of the draft's law, -1: the verifier's; another one costs acceptance, never exactness
    siblings  how a tree gets its tokens above temperature 0: drawn, or top (the likeliest, as EAGLE-2 takes them)
    """

    temperature: float = -1.0
    siblings: Siblings = "drawn"

    def __post_init__(self) -> None:
        if self.temperature != -1.0 and not 0.0 <= self.temperature < math.inf:
            raise UsageError(
                f"option temperature is {self.temperature}", hint="Choose 0 or more, or -1 for the verifier's."
            )
        if self.siblings not in get_args(Siblings):
            raise UsageError(f"option siblings is {self.siblings!r}", hint="Choose drawn or top.")


class DraftModel:
    """The drafter; holds the draft's context, which is brought in line with whatever text comes."""

    name = "model"

    def __init__(self, options: Options, lender: Lender) -> None:
        """Opens the pair's draft. Raises `DrafterError` or `PairError` when there is none that fits."""
        self.options = options
        self._is_end = lender.is_end
        self._context = lender.context("draft")
        self._known = lender.known("draft")
        self._reads_all = self._context.vocab_size >= lender.vocab_size
        self._blocked = lender.blocked("draft")
        self._sampling = Sampling()
        self._rule: Rule | None = None
        self._ranks = Ranks()
        self._grown: Grown | None = None

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        """Read the prompt ahead."""
        own = self.options.temperature
        self._sampling = sampling if own < 0 else replace(sampling, temperature=own)
        self._rule = rule
        self._context.prefill(self._readable(tokens[:-1]), logits=False, cancelled=cancelled)

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        """A chain or a tree below the last of `tokens`."""
        result = self._context.prefill(self._readable(tokens), cancelled=budget.cancelled)
        if result is None:
            return EMPTY
        if budget.tree is None or self._context.leaves == 1:
            return self._chain(tokens, result, budget)
        self._grown = self._tree(tokens, result, budget)
        return self._grown.draft

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Keep the accepted path of a tree in the cache, and count which siblings were taken."""
        grown, self._grown = self._grown, None
        if grown is not None and verdict is not None:
            self._ranks.learn(grown.draft, verdict)
            path = grown.evaluated(verdict.path)
            if path:
                self._context.commit(path)

    def _chain(self, tokens: Ids, result: Pass, budget: Budget) -> Draft:
        """One draw after the other, as long as one more pays: asked of each row before a token is drawn from it."""
        drafted: list[int] = []
        laws: list[Law | None] = []
        while True:
            logits = self._shared(result.logits(0))
            law = self._sampling.law(logits, self._recent(tokens, drafted))
            if budget.asks and not budget.pays(len(drafted) + 1, self._confidence(logits, law)):
                break
            token, reported = self._drawn_by.guess(law, len(tokens) + len(drafted))
            drafted.append(token)
            laws.append(reported)
            if len(drafted) >= budget.limit or self._is_end(token):
                break
            result = self._context.evaluate(token, EMPTY)
            self._context.commit(())
        return Draft.chain(drafted, laws) if drafted else EMPTY

    def _tree(self, tokens: Ids, result: Pass, budget: Budget) -> Grown:
        """The shape that was asked for, or as far as the rows (picks) or the rates so far (draws) say it pays."""
        root = (result.logits(0), tokens[:0])
        source = Layers(self._context, lambda row, count, depth: self._siblings(tokens, row, count, depth))
        if isinstance(budget.tree, Shape):
            return fixed(budget.tree, source, root, is_end=self._is_end)
        assert budget.tree is not None
        if self._picks:
            return dynamic(budget.tree, source, root, widen=budget.widen, choose=budget.choose, is_end=self._is_end)
        shape = plan(self._ranks, budget.tree, widen=budget.widen, choose=budget.choose)
        return fixed(shape, source, root, is_end=self._is_end)

    @property
    def _picks(self) -> bool:
        """True when a tree's tokens are picked and not drawn, so that they may be chosen by what they are."""
        return self._sampling.greedy or self.options.siblings == "top"

    def _confidence(self, logits: Logits, law: Law) -> float:
        return confidence(logits) if self._sampling.greedy else law.top

    @property
    def _drawn_by(self) -> Rule:
        assert self._rule is not None, "propose before begin"
        return self._rule

    def _siblings(self, tokens: Ids, row: Row, count: int, depth: int) -> list[Sibling]:
        logits, path = self._shared(row[0]), row[1]
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

    def close(self) -> None:
        """Nothing to free: the context is lent."""

    def _readable(self, tokens: Ids) -> Ids:
        """The text with ids that the draft does not have, as larger verifiers do, replaced by its last one."""
        return tokens if self._reads_all else np.minimum(tokens, self._context.vocab_size - 1)

    def _shared(self, logits: Logits) -> Logits:
        """Only the ids that mean the same to the verifier: the others can never be proposed."""
        logits = logits[: self._known]
        if len(self._blocked):
            logits = logits.copy()
            logits[self._blocked] = -np.inf
        return logits

    def _recent(self, tokens: Ids, drafted: Sequence[int] | Ids) -> Ids:
        """Tokens before the next one; only penalties read them."""
        if not len(drafted) or not self._sampling.penalises:
            return tokens
        return np.concatenate([tokens, np.asarray(drafted, dtype=np.int32)])


class Layers:
    """`core.growth.Source` over the draft's context."""

    def __init__(self, context: Context, siblings: Callable[[Row, int, int], list[Sibling]]) -> None:
        self._context = context
        self.siblings = siblings
        self.nodes = min(context.draft_room, context.capacity - context.length)
        self.leaves = context.leaves

    def layer(self, tokens: Ids, parents: Ids, path: Callable[[int], Ids]) -> list[Row]:
        result = self._context.grow(tokens, parents)
        return [(result.logits(node), path(node)) for node in range(len(tokens))]
