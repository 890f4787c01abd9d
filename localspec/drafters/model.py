"""A second, smaller model drafts token by token (Leviathan et al. 2023, Chen et al. 2023).

Wins where a pass of the verifier costs about as much for several tokens as for one and the draft costs a tenth of it.
Loses where the verifier is compute-bound (quantised weights on a CPU) or the draft is too large or of another family.
Each token is drawn from the draft's own law, under the verifier's sampling settings unless told otherwise. A tree is
grown with one pass of the draft per depth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localspec.core.draft import EMPTY, Draft, Ids, Verdict
from localspec.core.growth import Grown
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Lender
from localspec.drafters.drawing import Drawing, Growing, Logits, Shared, Siblings, check_options
from localspec.engine.base import Cancelled, Pass


@dataclass(frozen=True)
class Options:
    """What a user can set with -o.

    temperature  temperature of the draft's law, -1: the verifier's; another one costs acceptance, never exactness
    siblings  how a tree gets its tokens above temperature 0: drawn, or top (the likeliest, as EAGLE-2 takes them)
    """

    temperature: float = -1.0
    siblings: Siblings = "drawn"

    def __post_init__(self) -> None:
        check_options(self.temperature, self.siblings)


class DraftModel:
    """The drafter; holds the draft's context, which is brought in line with whatever text comes."""

    name = "model"

    def __init__(self, options: Options, lender: Lender) -> None:
        """Opens the pair's draft. Raises `DrafterError` or `PairError` when there is none that fits."""
        self.options = options
        self._context = lender.context("draft")
        self._shared = Shared(lender)
        self._reads_all = self._context.vocab_size >= lender.vocab_size
        self._drawing = Drawing(is_end=lender.is_end, temperature=options.temperature, siblings=options.siblings)
        self._grown: Grown | None = None

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        """Read the prompt ahead."""
        self._drawing.begin(sampling, rule)
        self._context.prefill(self._readable(tokens[:-1]), logits=False, cancelled=cancelled)

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        """A chain or a tree below the last of `tokens`."""
        result = self._context.prefill(self._readable(tokens), cancelled=budget.cancelled)
        if result is None:
            return EMPTY
        logits = self._shared(result.logits(0))
        if budget.tree is None or self._context.leaves == 1:
            return self._drawing.chain(tokens, logits, self._step, budget)
        context = self._context
        nodes = min(context.draft_room, context.capacity - context.length)
        grower = Growing(context.grow, self._shared, nodes=nodes, leaves=context.leaves)
        self._grown = self._drawing.tree(tokens, logits, grower, budget)
        return self._grown.draft

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Keep the accepted path of a tree in the cache, and count which siblings were taken."""
        grown, self._grown = self._grown, None
        if grown is not None and verdict is not None:
            self._drawing.learn(grown.draft, verdict)
            path = grown.evaluated(verdict.path)
            if path:
                self._context.commit(path)

    def close(self) -> None:
        """Nothing to free: the context is lent."""

    def _step(self, token: int) -> Logits:
        result = self._context.evaluate(token, EMPTY)
        self._context.commit(())
        return self._shared(result.logits(0))

    def _readable(self, tokens: Ids) -> Ids:
        """The text with ids that the draft does not have, as larger verifiers do, replaced by its last one."""
        return tokens if self._reads_all else np.minimum(tokens, self._context.vocab_size - 1)
