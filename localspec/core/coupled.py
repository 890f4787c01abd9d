"""Drafter-invariant acceptance (cf. Daliri, Musco, Suresh 2024): the token at a position wins a race that a draft
cannot influence.

Id i arrives at time E_i / q_i, E_i exponential noise that is a function of (seed, position, i); the first to arrive
follows the law q. The drafter runs the same race over its own law and so guesses the winner. Same seed, same text,
whatever the drafter. Knows nothing about models or how drafts were made.
"""

from __future__ import annotations

from localspec.core.draft import ROOT, Draft, Verdict
from localspec.core.law import Law
from localspec.core.noise import Noise
from localspec.core.race import places
from localspec.core.rule import LawOf


class Coupled:
    """The rule of `core.rule` without a generator: everything follows from the seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def winner(self, law: Law, position: int) -> int:
        """The token at `position` when it follows `law`."""
        return places(law, Noise.at(self.seed, position), 1)[0]

    def guess(self, law: Law, position: int) -> tuple[int, Law | None]:
        """The winner of the drafter's race; deterministic given the seed."""
        return self.winner(law, position), None

    def guesses(self, law: Law, position: int, count: int) -> list[tuple[int, Law | None]]:
        """The first places of the drafter's race."""
        return [(token, None) for token in places(law, Noise.at(self.seed, position), count)]

    def accept(self, draft: Draft, law_of: LawOf, position: int) -> Verdict:
        """Walk down from the pending token while a child holds the winner."""
        node, tested = ROOT, 0
        path: list[int] = []
        while True:
            children = draft.children.get(node, ())
            winner = self.winner(law_of(node + 1), position + len(path))
            tokens = [int(draft.tokens[child]) for child in children]
            if winner not in tokens:
                return Verdict(tuple(path), winner, "residual" if children else "bonus", tested + len(children))
            place = tokens.index(winner)
            tested += place + 1
            node = children[place]
            path.append(node)
