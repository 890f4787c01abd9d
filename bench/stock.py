"""The acceptance rule of llama.cpp's own speculative decoders, as a rule of localspec: for comparison only.

The draft is the draft model's greedy choice; at every position the verifier samples a token of its own, and the draft
is kept while it happens to agree. Exact, but a draft that is likely without being certain is often refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np

from localspec.core.draft import ROOT, Draft, Verdict
from localspec.core.law import Law
from localspec.core.rule import LawOf, Rule
from localspec.services.settings import AnswerSettings


class Stock:
    """Implements `core.rule.Rule`."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def guess(self, law: Law, position: int) -> tuple[int, Law | None]:
        """The draft's most likely token, whatever the temperature."""
        at = int(np.argmax(law.weights))
        return (at if law.ids is None else int(law.ids[at])), None

    def guesses(self, law: Law, position: int, count: int) -> list[tuple[int, Law | None]]:
        """One: llama.cpp's chain."""
        return [self.guess(law, position)][:count]

    def accept(self, draft: Draft, law_of: LawOf, position: int) -> Verdict:
        """Sample from the verifier; go on while the draft says the same."""
        node, tested = ROOT, 0
        path: list[int] = []
        while True:
            token = law_of(node + 1).sample(self.rng)
            children = draft.children.get(node, ())
            tested += len(children)
            match = [child for child in children if draft.tokens[child] == token]
            if not match:
                return Verdict(tuple(path), token, "residual" if children else "bonus", tested)
            node = match[0]
            path.append(node)


@contextmanager
def instead() -> Iterator[None]:
    """Inside the block every answer of a runtime is accepted by this rule."""

    def rule(settings: AnswerSettings) -> Rule:
        return Stock(np.random.default_rng(settings.seed))

    with mock.patch("localspec.services.runtime.rule_of", rule):
        yield
