"""Acceptance by rejection sampling (Leviathan et al. 2023, Chen et al. 2023), for chains and for trees.

Siblings are tried in order, each against what the rejections before it have left of the verifier's law. The best
possible acceptance for one draw, sum of min(p, q). Knows nothing about models, positions or how drafts were made.
"""

from __future__ import annotations

import numpy as np

from localspec.core.draft import ROOT, Draft, Verdict
from localspec.core.law import Law
from localspec.core.rule import LawOf


class Rejection:
    """The rule of `core.rule` that draws from one generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def guess(self, law: Law, position: int) -> tuple[int, Law | None]:
        """A draw from the drafter's law, reported with that law; certainty is a deterministic pick."""
        return law.sample(self.rng), None if law.is_certain else law

    def guesses(self, law: Law, position: int, count: int) -> list[tuple[int, Law | None]]:
        """Draws without replacement, each reported with its law given its elder siblings; fewer when none are left."""
        drawn: list[tuple[int, Law | None]] = []
        left: Law | None = law
        while left is not None and len(drawn) < count:
            token, reported = self.guess(left, position)
            drawn.append((token, reported))
            left = left.without(token)
        return drawn

    def accept(self, draft: Draft, law_of: LawOf, position: int) -> Verdict:
        """Walk down from the pending token while a child is accepted."""
        node, tested = ROOT, 0
        path: list[int] = []
        while True:
            children = draft.children.get(node, ())
            chosen, row = self._choose(draft, children, law_of(node + 1))
            if chosen is None:
                next_token = row.sample(self.rng)
                return Verdict(tuple(path), next_token, "residual" if children else "bonus", tested + len(children))
            tested += children.index(chosen) + 1
            path.append(chosen)
            node = chosen

    def _choose(self, draft: Draft, siblings: tuple[int, ...], row: Law) -> tuple[int | None, Law]:
        """The accepted one of `siblings`, None when all are rejected; and what is left of the verifier's `row`."""
        for node in siblings:
            token, law = int(draft.tokens[node]), draft.law(node)
            draft_prob = 1.0 if law is None else law.prob(token)
            # No division: a token that the verifier excludes has probability 0 and never passes.
            if self.rng.random() * draft_prob < row.prob(token):
                return node, row
            row = row.residual(law) if law is not None else row.without(token) or row
        return None, row
