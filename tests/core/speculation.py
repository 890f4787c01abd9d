"""One speculative round over table models, as a function of its randomness, and the exact law of what it emits.

Also the ways to make siblings that are in use; each says truthfully how a token was drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.core.draft import ROOT, Draft, Verdict
from localspec.core.law import Law
from localspec.core.rejection import Rejection
from tests.core.branches import outcomes
from tests.core.models import Model, Path, sequence_law

Siblings = Callable[[Rejection, Law, int], list[tuple[int, Law | None]]]
"""A way to make `count` siblings from a drafter's law."""


def ranking(law: Law, count: int) -> list[int]:
    """The `count` likeliest ids that are possible at all."""
    row = law.dense(len(law.weights))
    return [int(token) for token in np.argsort(-row, kind="stable")[:count] if row[token] > 0.0]


def top(rule: Rejection, law: Law, count: int) -> list[tuple[int, Law | None]]:
    return [(token, None) for token in ranking(law, count)]


def independent(rule: Rejection, law: Law, count: int) -> list[tuple[int, Law | None]]:
    return [rule.guess(law, 0) for _ in range(count)]


def without_replacement(rule: Rejection, law: Law, count: int) -> list[tuple[int, Law | None]]:
    return rule.guesses(law, 0, count)


def top_then_drawn(rule: Rejection, law: Law, count: int) -> list[tuple[int, Law | None]]:
    first = ranking(law, 1)[0]
    rest = law.without(first)
    return [(first, None), *(rule.guesses(rest, 0, count - 1) if rest is not None else [])]


def drawn_then_top(rule: Rejection, law: Law, count: int) -> list[tuple[int, Law | None]]:
    return [rule.guess(law, 0), *top(rule, law, count - 1)]


WAYS = [top, independent, without_replacement, top_then_drawn, drawn_then_top]


class GrowingDraft:
    """A draft that draws the children of a node when it is asked for them.

    What lies below a rejected node has no influence on a verdict, so the law of the verdict is that of a tree drawn
    beforehand; but the enumeration does not multiply over nodes that nobody visits.
    """

    def __init__(self, model: Model, widths: Sequence[int], draw: Callable[[Law, int], list[tuple[int, Law | None]]]):
        self.model, self.widths, self.draw = model, widths, draw
        self.children = self
        self.tokens: list[int] = []
        self.texts: list[Path] = []
        self.laws: list[Law | None] = []
        self.parents: list[int] = []

    def get(self, node: int, default: tuple[int, ...]) -> tuple[int, ...]:
        text = () if node == ROOT else self.texts[node]
        if len(text) == len(self.widths):
            return default
        first = len(self.tokens)
        for token, law in self.draw(self.model(text), self.widths[len(text)]):
            self.tokens.append(token)
            self.texts.append((*text, token))
            self.laws.append(law)
            self.parents.append(node)
        return tuple(range(first, len(self.tokens)))

    def law(self, node: int) -> Law | None:
        return self.laws[node]

    path = Draft.path


def planted(rule: Rejection, model: Model, widths: Sequence[int], siblings: Siblings) -> Draft:
    """The whole tree, drawn before anything is judged."""
    tokens: list[int] = []
    parents: list[int] = []
    laws: list[Law | None] = []
    level: list[tuple[int, Path]] = [(ROOT, ())]
    for width in widths:
        below = []
        for parent, path in level:
            for token, law in siblings(rule, model(path), width):
                below.append((len(tokens), (*path, token)))
                tokens.append(token)
                parents.append(parent)
                laws.append(law)
        level = below
    return Draft(np.array(tokens, dtype=np.int32), np.array(parents, dtype=np.int32), tuple(laws))


def play(rule: Rejection, draft: Draft, verifier: Model) -> tuple[Path, Verdict]:
    """The emitted tokens and the verdict."""

    def law_of(row: int) -> Law:
        return verifier(tuple(int(draft.tokens[node]) for node in draft.path(row - 1)))

    verdict = rule.accept(draft, law_of, 0)
    return (*(int(draft.tokens[node]) for node in verdict.path), verdict.next_token), verdict


def emitted_law(
    verifier: Model,
    drafter: Model,
    *,
    size: int,
    widths: Sequence[int],
    siblings: Siblings,
    rule: Callable[[Any], Rejection] = Rejection,
    growing: bool = True,
) -> npt.NDArray[np.float64]:
    """The exact law of the len(widths) + 1 tokens that follow: one round, then plain decoding."""

    def one_round(rng: Any) -> Path:
        judge = rule(rng)
        if growing:
            draft: Any = GrowingDraft(drafter, widths, lambda law, count: siblings(judge, law, count))
        else:
            draft = planted(judge, drafter, widths, siblings)
        return play(judge, draft, verifier)[0]

    length = len(widths) + 1
    law = np.zeros((size,) * length)
    for tokens, prob in outcomes(one_round).items():
        law[tokens] += prob * sequence_law(verifier, size=size, length=length - len(tokens), start=tokens)
    return law


def error(
    verifier: Model, drafter: Model, *, size: int, widths: Sequence[int], siblings: Siblings, **how: Any
) -> float:
    """Total-variation distance between what speculation emits and what the verifier alone would."""
    law = emitted_law(verifier, drafter, size=size, widths=widths, siblings=siblings, **how)
    return 0.5 * float(np.abs(law - sequence_law(verifier, size=size, length=len(widths) + 1)).sum())
