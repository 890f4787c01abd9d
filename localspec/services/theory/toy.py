"""Toy verifiers and drafts for the exercises: eight tokens, a law that depends on the last two, drafts of any quality.

The draft's logits are the verifier's mixed with another seed's; `blur` is the share of the other. Everything above the
rows is the real thing: the sampling law, the drafter `model`, the acceptance rule, the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from localspec.core import theory
from localspec.core.draft import Ids
from localspec.core.law import Law
from localspec.core.sampling import Sampling
from localspec.drafters.base import Drafter
from localspec.drafters.registry import entry
from localspec.engine.base import Context, Guesser, Head
from localspec.engine.toy import ToyContext, ToyModel
from localspec.errors import DrafterError

SIZE = 8
ROOM = 64  # most nodes and most leaves of a draft
WHOLE = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
"""The model's own law: no filter hides an error."""
PROMPT = (3, 1, 4)
NOBODY: Ids = np.empty(0, dtype=np.int32)


@dataclass(frozen=True)
class Quality:
    """A draft by name and distance from its verifier."""

    name: str
    blur: float


QUALITIES = (Quality("good", 0.1), Quality("fair", 0.4), Quality("poor", 0.8))


class ToyPair:
    """A verifier and a draft that is `blur` away from it."""

    def __init__(self, blur: float, *, seed: int) -> None:
        self.verifier_model = ToyModel(SIZE, seed=seed, end_bias=0.0)
        self.draft_model = ToyModel(SIZE, seed=seed, end_bias=0.0, blur=blur)

    def verifier(self) -> Context:
        return ToyContext(self.verifier_model, draft_room=ROOM, leaves=ROOM)

    def drafter(self) -> Drafter:
        """The drafter `model` on the toy draft."""
        return ToyLender(self.draft_model).drafter("model")

    def alpha(self) -> float:
        """The expected sum of min(p, q) in a long text of the verifier."""
        q, p = table(self.verifier_model), table(self.draft_model)
        return float((theory.long_run(q) * np.minimum(q, p).sum(axis=-1)).sum())


class ToyLender:
    """`drafters.base.Lender` of a toy draft."""

    vocab_size = SIZE

    def __init__(self, model: ToyModel) -> None:
        self._model = model

    def is_end(self, token: int) -> bool:
        """The exercises never end a text."""
        return False

    def tokenize(self, text: str) -> list[int]:
        return self._model.vocab.tokenize(text, add_special=False, parse_special=False)

    def warn(self, text: str) -> None:
        """The exercises open nothing that could be missing."""

    def recall(self, drafter: str) -> Ids:
        return NOBODY

    def remember(self, drafter: str, text: Ids) -> None:
        """The exercises keep nothing."""

    def context(self, role: str) -> Context:
        return ToyContext(self._model, draft_room=ROOM, leaves=ROOM)

    def head(self, kind: str, *, force: bool = False) -> Head:
        raise DrafterError("the exercises have no hidden states for a head")

    def guesser(self, kind: str, *, force: bool = False) -> Guesser:
        raise DrafterError("the exercises have no hidden states for a head")

    def drafter(self, name: str) -> Drafter:
        found = entry(name)
        return found.drafter_class(found.parse({}), self)

    def known(self, role: str) -> int:
        return SIZE

    def blocked(self, role: str) -> Ids:
        return NOBODY


def table(model: ToyModel) -> npt.NDArray[np.float64]:
    """(V, V, V) probabilities of the next token given the last two."""
    law = laws(model)
    return np.array([[law((before, last)).dense(SIZE) for last in range(SIZE)] for before in range(SIZE)])


def laws(model: ToyModel) -> Callable[[tuple[int, int]], Law]:
    """The law after two tokens; each is computed once."""

    @cache
    def law(last_two: tuple[int, int]) -> Law:
        return WHOLE.law(model.row(*last_two), NOBODY)

    return law
