"""Drafters that say what a test tells them to, and lenders that hand out what a test has made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from localspec.core.draft import EMPTY, Draft, Ids, Verdict
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Drafter
from localspec.drafters.registry import REGISTRY
from localspec.engine.base import Cancelled, Context, Guesser, Head, Pass, Vocab
from localspec.errors import DrafterError
from tests.headlike import ModelGuesser, ModelHead

Propose = Callable[[Ids, int], Draft]
"""(committed text, limit) -> draft."""


class Scripted:
    """Asks `propose` for each draft and keeps what it saw."""

    name = "scripted"

    def __init__(self, propose: Propose) -> None:
        self._propose = propose
        self.calls = 0
        self.limits: list[int] = []
        self.verdicts: list[Verdict | None] = []

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        self.calls = 0

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        self.calls += 1
        self.limits.append(budget.limit)
        return self._propose(tokens, budget.limit)

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        self.verdicts.append(verdict)

    def close(self) -> None:
        return None


class Failing(Scripted):
    """Works like `Scripted` until the call number `at` of the method `stage`, which raises `error`."""

    name = "failing"

    def __init__(self, propose: Propose, *, stage: str, at: int, error: BaseException) -> None:
        super().__init__(propose)
        self._stage, self._left, self._error = stage, at, error

    def _step(self, stage: str) -> None:
        if stage == self._stage:
            self._left -= 1
            if self._left == 0:
                raise self._error

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        self._step("begin")
        super().begin(tokens, sampling=sampling, rule=rule, cancelled=cancelled)

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        self._step("propose")
        return super().propose(tokens, budget)

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        self._step("observe")
        super().observe(result, verdict)


def following(text: Sequence[int]) -> Propose:
    """Foretells `text` (an answer known beforehand, prompt included), wherever the committed tokens stand in it."""

    def propose(tokens: Ids, limit: int) -> Draft:
        return Draft.chain(list(text[len(tokens) : len(tokens) + limit]))

    return propose


def random_drafts(vocab_size: int, *, seed: int, trees: bool = False, leaves: int = 4) -> Propose:
    """Any tokens, any length up to the limit, any shape: mostly wrong, which is what rollback is for."""
    rng = np.random.default_rng(seed)

    def propose(tokens: Ids, limit: int) -> Draft:
        count = int(rng.integers(0, limit + 1))
        ids = rng.integers(1, vocab_size, count).astype(np.int32)
        if not trees:
            return Draft.chain(ids)
        parents = np.array([int(rng.integers(-1, node)) if node else -1 for node in range(count)], dtype=np.int32)
        draft = Draft(ids, parents)
        return draft if count - len(set(parents.tolist()) - {-1}) <= leaves else EMPTY

    return propose


class Lending:
    """A lender for one role, "draft", that makes a new context each time."""

    def __init__(self, vocab: Vocab, make: Callable[[], Context] | None = None, *, known: int | None = None) -> None:
        self._vocab, self._make, self._known = vocab, make, known
        self.vocab_size = vocab.size
        self.lent: list[Context] = []

    def is_end(self, token: int) -> bool:
        return self._vocab.is_end(token)

    def tokenize(self, text: str) -> list[int]:
        return self._vocab.tokenize(text, add_special=False, parse_special=False)

    def warn(self, text: str) -> None:
        raise AssertionError(text)

    def recall(self, drafter: str) -> Ids:
        raise AssertionError("nobody asked for memory")

    def remember(self, drafter: str, text: Ids) -> None:
        raise AssertionError("nobody asked for memory")

    def context(self, role: str) -> Context:
        if role != "draft" or self._make is None:
            raise DrafterError(f"there is no model for {role}")
        self.lent.append(self._make())
        return self.lent[-1]

    def head(self, kind: str, *, force: bool = False) -> Head:
        return ModelHead(self.context("draft"))

    def guesser(self, kind: str, *, force: bool = False) -> Guesser:
        return ModelGuesser(self.head(kind))

    def drafter(self, name: str) -> Drafter:
        entry = REGISTRY[name]
        return entry.drafter_class(entry.parse({}), self)

    def known(self, role: str) -> int:
        return self._known or self.vocab_size

    def blocked(self, role: str) -> Ids:
        return np.empty(0, dtype=np.int32)
