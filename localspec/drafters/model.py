"""A second, smaller model drafts token by token (Leviathan et al. 2023, Chen et al. 2023).

Wins where a pass of the verifier costs about as much for several tokens as for one and the draft costs a tenth of it.
Loses where the verifier is compute-bound (quantised weights on a CPU) or the draft is too large or of another family.
Each token is drawn from the draft's own law, under the verifier's sampling settings unless told otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from localspec.core.confidence import confidence
from localspec.core.draft import EMPTY, Draft, Ids, Verdict
from localspec.core.law import Law
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Lender
from localspec.engine.base import Cancelled, Pass
from localspec.errors import UsageError

Logits = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Options:
    """What a user can set with -o.

    temperature  temperature of the draft's law, -1: the verifier's; another one costs acceptance, never exactness
    """

    temperature: float = -1.0

    def __post_init__(self) -> None:
        if self.temperature != -1.0 and not 0.0 <= self.temperature < math.inf:
            raise UsageError(
                f"option temperature is {self.temperature}", hint="Choose 0 or more, or -1 for the verifier's."
            )


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

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        """Read the prompt ahead."""
        own = self.options.temperature
        self._sampling = sampling if own < 0 else replace(sampling, temperature=own)
        self._rule = rule
        self._context.prefill(self._readable(tokens[:-1]), logits=False, cancelled=cancelled)

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        """A chain of draws, as long as one more pays: asked of each row before a token is drawn from it."""
        assert self._rule is not None, "propose before begin"
        result = self._context.prefill(self._readable(tokens), cancelled=budget.cancelled)
        drafted: list[int] = []
        laws: list[Law | None] = []
        while result is not None:
            logits = self._shared(result.logits(0))
            law = self._sampling.law(logits, self._recent(tokens, drafted))
            if not budget.pays(len(drafted) + 1, confidence(logits) if self._sampling.greedy else law.top):
                break
            token, reported = self._rule.guess(law, len(tokens) + len(drafted))
            drafted.append(token)
            laws.append(reported)
            if len(drafted) >= budget.limit or self._is_end(token):
                break
            result = self._context.evaluate(token, EMPTY)
            self._context.commit(())
        return Draft.chain(drafted, laws) if drafted else EMPTY

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Nothing to do: the next text says which tokens stayed."""

    def close(self) -> None:
        self._context.close()

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

    def _recent(self, tokens: Ids, drafted: list[int]) -> Ids:
        """Tokens before the next one; only penalties read them."""
        if not drafted or not self._sampling.penalises:
            return tokens
        return np.concatenate([tokens, np.array(drafted, dtype=np.int32)])
