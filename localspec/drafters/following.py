"""What drafters do with a head that follows the verifier's text and runs on its own output: chains and trees from it.

The head reads the verifier's hidden rows by itself, so all that is left here is to draw. Knows no kind of head.
"""

from __future__ import annotations

from dataclasses import dataclass

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

    force  use a head that was trained on another quantisation of the same weights
    temperature  temperature of the head's law, -1: the verifier's; another one costs acceptance, never exactness
    siblings  how a tree gets its tokens above temperature 0: drawn, or top (the likeliest, as EAGLE-2 takes them)
    """

    force: bool = False
    temperature: float = -1.0
    siblings: Siblings = "drawn"

    def __post_init__(self) -> None:
        check_options(self.temperature, self.siblings)


class FollowingHead:
    """A drafter over one head of the pair, the pair's draft file; `name` is the kind of head."""

    name = "head"

    def __init__(self, options: Options, lender: Lender) -> None:
        """Opens the head. Raises `DrafterError` or `PairError` when the pair has none of this kind that fits."""
        self.options = options
        self._head = lender.head(self.name, force=options.force)
        self._shared = Shared(lender)
        self._drawing = Drawing(is_end=lender.is_end, temperature=options.temperature, siblings=options.siblings)
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
        grower = Growing(self._head.grow, self._shared, nodes=self._head.nodes, leaves=self._head.leaves)
        self._grown = self._drawing.tree(tokens, logits, grower, budget)
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
