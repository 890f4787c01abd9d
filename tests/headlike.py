"""Stand-ins for heads where no verifier's hidden rows are: a language model in a head's clothes, and a real head whose
verifier is brought in line first, as the loop does it before a drafter is asked.
"""

from __future__ import annotations

from localspec.core.draft import EMPTY, Ids
from localspec.engine.base import Cancelled, Context, Head, Pass
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.eagle3 import Eagle3Head
from localspec.engine.model import LlamaModel


class ModelHead:
    """`engine.base.Head` over a context of its own. Like a head it has nothing to say about a text of one token."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.vocab_size = context.vocab_size
        self.leaves = context.leaves

    @property
    def nodes(self) -> int:
        return min(self._context.draft_room, self._context.capacity - self._context.length)

    def follow(self, tokens: Ids, *, logits: bool = True, cancelled: Cancelled | None = None) -> Pass | None:
        return self._context.prefill(tokens, logits=logits, cancelled=cancelled) if len(tokens) > 1 else None

    def step(self, token: int) -> Pass:
        result = self._context.evaluate(token, EMPTY)
        self._context.commit(())
        return result

    def grow(self, tokens: Ids, parents: Ids) -> Pass:
        return self._context.grow(tokens, parents)

    def close(self) -> None:
        self._context.close()


class AlignedHead:
    """A head of a verifier that nobody else uses."""

    def __init__(self, model: LlamaModel, verifier_model: LlamaModel, settings: ContextSettings) -> None:
        self._verifier = LlamaContext(verifier_model, settings)
        self._head = Eagle3Head(model, self._verifier, settings)
        self.vocab_size = self._head.vocab_size
        self.leaves = self._head.leaves
        self.step, self.grow = self._head.step, self._head.grow

    @property
    def nodes(self) -> int:
        return self._head.nodes

    def follow(self, tokens: Ids, *, logits: bool = True, cancelled: Cancelled | None = None) -> Pass | None:
        self._verifier.prefill(tokens[:-1], logits=False)
        return self._head.follow(tokens, logits=logits, cancelled=cancelled)

    def close(self) -> None:
        self._head.close()
        self._verifier.close()


def seen(head: ModelHead | AlignedHead) -> Head:
    """They are what drafters expect."""
    return head
