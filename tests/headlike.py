"""Stand-ins for heads where no verifier's hidden rows are: a language model in a head's clothes, and a real head whose
verifier is brought in line first, as the loop does it before a drafter is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from localspec.catalog.modelfile import read_model
from localspec.core.draft import EMPTY, Ids
from localspec.engine.base import Cancelled, Context, Head, Pass, Row
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.eagle3 import Eagle3Head
from localspec.engine.model import LlamaModel
from localspec.services.heads import ggmlheads
from localspec.services.loading import Loaded
from tests.services import tiny
from tests.services.toy_pair import Collected


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


class ModelGuesser:
    """`engine.base.Guesser` over a head: it guesses three places by going on with its own first guesses."""

    heads = 3
    ids: Ids | None = None
    tree: tuple[tuple[int, ...], ...] = ()

    def __init__(self, head: Head) -> None:
        self._head = head

    def guess(self, tokens: Ids) -> list[Row] | None:
        result = self._head.follow(tokens)
        if result is None:
            return None
        rows = [result.logits(0).copy()]
        while len(rows) < self.heads:
            rows.append(self._head.step(int(rows[-1].argmax())).logits(0).copy())
        return rows

    def close(self) -> None:
        self._head.close()


class Aligned:
    """A head of a verifier that nobody else uses; the verifier is brought in line before the head is asked."""

    def __init__(self, opened: Callable[[LlamaContext], Any], verifier: LlamaModel, settings: ContextSettings) -> None:
        """`opened` makes the head that follows a context."""
        self._verifier = LlamaContext(verifier, settings)
        self._head = opened(self._verifier)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._head, name)

    def follow(self, tokens: Ids, **keys: Any) -> Any:
        self._verifier.prefill(tokens[:-1], logits=False)
        return self._head.follow(tokens, **keys)

    def guess(self, tokens: Ids) -> Any:
        self._verifier.prefill(tokens[:-1], logits=False)
        return self._head.guess(tokens)

    def close(self) -> None:
        self._head.close()
        self._verifier.close()


def aligned(kind: str, models: Mapping[str, LlamaModel], settings: ContextSettings) -> Any:
    """A tiny head of this kind for the model "verifier"; an EAGLE-3 head is the model of that name."""
    if kind == "eagle3":
        return Aligned(lambda context: Eagle3Head(models["eagle3"], context, settings), models["verifier"], settings)
    file, model = read_model(tiny.model(kind)), models["verifier"]

    def opened(context: LlamaContext) -> Any:
        loaded = Loaded(read_model(tiny.model("verifier")), model, context, 0)
        report = Collected()
        return ggmlheads.open_head(file, loaded, settings, on_gpu=False, force=False, report=report)[0]

    return Aligned(opened, model, settings)


def seen(head: ModelHead) -> Head:
    """They are what drafters expect."""
    return head
