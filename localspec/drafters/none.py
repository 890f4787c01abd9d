"""No drafting: every round is a plain pass of the verifier. The baseline, and a legal answer to "what is fastest"."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.core.draft import EMPTY, Draft, Ids, Verdict
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Lender
from localspec.engine.base import Cancelled, Pass


@dataclass(frozen=True)
class Options:
    """Nothing to set."""


class NoDrafter:
    """Proposes nothing."""

    name = "none"

    def __init__(self, options: Options, lender: Lender) -> None:
        self.options = options

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        """Nothing to prepare."""

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        return EMPTY

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Nothing to learn."""

    def close(self) -> None:
        """Nothing to free."""
