"""Every registered drafter over a toy pair, as chains and as trees, and answers made with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from localspec.core.draft import Ids
from localspec.core.growth import Growth
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.core.shapes import Shape
from localspec.drafters.base import Budget, Drafter
from localspec.drafters.registry import REGISTRY
from localspec.engine.base import Context, Guesser, Head, Vocab
from localspec.engine.toy import ToyContext, ToyModel
from localspec.loop.answer import Answer
from localspec.loop.control import FixedLength, RoundReport
from localspec.loop.generation import Generation, Limits
from localspec.loop.proposer import Proposer
from tests.headlike import ModelGuesser, ModelHead

NAMES = list(REGISTRY)
Tree = Shape | Growth | None
TREES: dict[str, Tree] = {"chain": None, "2,2,1": Shape.parse("2,2,1"), "grown": Growth(nodes=6, depth=3, width=3)}
TOY_PROMPT = [3, 1, 4, 1, 5, 3, 1, 4, 2]


class Lender:
    """Lends one context for the role "draft", however often it is asked for; some of its ids may be blocked.

    Whoever wants a head gets what `head` makes, or else that context as one.
    """

    def __init__(
        self,
        vocab: Vocab,
        make: Callable[[], Context],
        *,
        known: int | None = None,
        blocked: Sequence[int] = (),
        head: Callable[[str], Any] | None = None,
    ) -> None:
        self._make = make
        self._made: Context | None = None
        self._make_head = head
        self._heads: dict[str, Any] = {}
        self._known = known
        self._blocked = np.array(blocked, dtype=np.int32)
        self.vocab_size = vocab.size
        self.is_end = vocab.is_end
        self._vocab = vocab
        self.remembered: list[Ids] = []
        self.warnings: list[str] = []

    def tokenize(self, text: str) -> list[int]:
        return self._vocab.tokenize(text, add_special=False, parse_special=False)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def recall(self, drafter: str) -> Ids:
        return np.concatenate([np.append(text, np.int32(-1)) for text in self.remembered] or [self._blocked[:0]])

    def remember(self, drafter: str, text: Ids) -> None:
        self.remembered.append(text)

    def context(self, role: str) -> Context:
        assert role == "draft"
        self._made = self._made or self._make()
        return self._made

    def head(self, kind: str, *, force: bool = False) -> Head:
        made: Head = self._opened(kind, lambda: ModelHead(self.context("draft")))
        return made

    def guesser(self, kind: str, *, force: bool = False) -> Guesser:
        made: Guesser = self._opened(kind, lambda: ModelGuesser(ModelHead(self.context("draft"))))
        return made

    def _opened(self, kind: str, stand_in: Callable[[], Any]) -> Any:
        if kind not in self._heads:
            self._heads[kind] = self._make_head(kind) if self._make_head else stand_in()
        return self._heads[kind]

    def known(self, role: str) -> int:
        return self._known or self.vocab_size

    def blocked(self, role: str) -> Ids:
        return self._blocked

    def drafter(self, name: str) -> Drafter:
        return built(name, self)

    def close(self) -> None:
        for head in self._heads.values():
            head.close()
        if self._made:
            self._made.close()


def built(name: str, lender: Lender, options: Mapping[str, str] | None = None) -> Drafter:
    """A drafter as the runtime builds it."""
    entry = REGISTRY[name]
    return entry.drafter_class(entry.parse(options or {}), lender)


def toy(*, size: int = 27, blur: float = 0.0, end_bias: float = -8.0) -> ToyModel:
    """A toy model; those of one size differ by their blur only."""
    return ToyModel(size, seed=1, blur=blur, end_bias=end_bias)


def toy_lender(model: ToyModel, *, blur: float = 0.3) -> Lender:
    """A lender for a verifier: its draft is the same model, blurred."""
    draft = toy(size=model.size, blur=blur, end_bias=model.end_bias)
    return Lender(model.vocab, lambda: ToyContext(draft, capacity=2048))


def budget(
    limit: int = 8, *, leaves: int = 16, tree: Tree = None, pays: Callable[[int, float], bool] | None = None
) -> Budget:
    """What a round allows; everything pays unless told otherwise."""
    fitting = tree.within(nodes=limit, leaves=leaves) if tree and leaves > 1 else None
    return Budget(limit, pays or (lambda depth, confidence: True), leaves=leaves, tree=fitting)


class Recording(FixedLength):
    """Always the same length; keeps the reports."""

    def __init__(self, N: int) -> None:
        super().__init__(N)
        object.__setattr__(self, "reports", [])
        self.reports: list[RoundReport]

    def observe(self, report: RoundReport) -> None:
        self.reports.append(report)


@dataclass
class Pair:
    """A verifier, its vocabulary and a drafter, for one answer after the other."""

    verifier: Context
    vocab: Vocab
    drafter: Drafter | None
    tree: Tree = None
    warnings: list[str] = field(default_factory=list)
    reports: list[RoundReport] = field(default_factory=list)

    def answer(
        self,
        prompt: Sequence[int],
        *,
        sampling: Sampling,
        rule: Rule,
        count: int,
        N: int = 4,
        ends: bool = False,
    ) -> Answer:
        """`count` tokens, end tokens or not, unless `ends`."""
        controller = Recording(N if self.tree is None else 8)
        proposer = (
            Proposer(self.drafter, controller, vocab=self.vocab, warn=self.warnings.append, tree=self.tree)
            if self.drafter
            else None
        )
        generation = Generation(
            prompt,
            verifier=self.verifier,
            vocab=self.vocab,
            sampling=sampling,
            rule=rule,
            limits=Limits(count, ignore_end=not ends),
            proposer=proposer,
            controller=controller,
        )
        for _piece in generation:
            pass
        assert generation.answer is not None
        assert self.warnings == [], "a drafter failed"
        self.reports = controller.reports
        return generation.answer
