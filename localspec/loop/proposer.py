"""Keeps a drafter from doing harm: its failure costs time, never output, and is told once.

Also gives it the budget of the round and takes note of the confidences it reports. Knows no concrete drafter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from localspec.core.draft import EMPTY, ROOT, Draft, Ids, Verdict
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Drafter
from localspec.engine.base import Cancelled, Pass, Vocab
from localspec.errors import DrafterError
from localspec.loop.control import Controller

logger = logging.getLogger(__name__)
Warn = Callable[[str], None]


class Proposer:
    """Asks a drafter for drafts until it fails."""

    def __init__(self, drafter: Drafter, controller: Controller, *, vocab: Vocab, warn: Warn) -> None:
        self._drafter: Drafter | None = drafter
        self._controller = controller
        self._vocab = vocab
        self._warn = warn
        self._cancelled: Cancelled = lambda: False
        self.confidences: list[float] = []

    @property
    def name(self) -> str:
        """The drafter in use, "none" once it has failed."""
        return self._drafter.name if self._drafter else "none"

    @property
    def is_alive(self) -> bool:
        return self._drafter is not None

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        """A new answer to `tokens` starts."""
        self._cancelled = cancelled
        if self._drafter:
            try:
                self._drafter.begin(tokens, sampling=sampling, rule=rule, cancelled=cancelled)
            except Exception as error:
                self._switch_off(error)

    def propose(self, tokens: Ids, limit: int) -> Draft:
        """At most `limit` nodes below the last of `tokens`; nothing below an end token; EMPTY when the drafter fails."""
        self.confidences = []
        if not self._drafter or limit <= 0:
            return EMPTY
        try:
            draft = self._drafter.propose(tokens, Budget(limit, self._pays, self._cancelled))
            return self._checked(draft, limit)
        except Exception as error:
            self._switch_off(error)
            return EMPTY

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Tell the drafter what became of its draft."""
        if self._drafter:
            try:
                self._drafter.observe(result, verdict)
            except Exception as error:
                self._switch_off(error)

    def _pays(self, depth: int, confidence: float) -> bool:
        pays = self._controller.pays(depth, confidence)
        if pays:
            self.confidences.append(confidence)
        return pays

    def _checked(self, draft: Draft, limit: int) -> Draft:
        if not len(draft):
            return EMPTY
        count, laws = len(draft), draft.laws
        if count > limit:
            raise DrafterError(f"{count} tokens were proposed where {limit} were asked for")
        if len(draft.parents) != count or (laws is not None and len(laws) != count):
            raise DrafterError(f"a draft of {count} tokens does not give one parent and one law for each")
        if not draft.is_chain and ((draft.parents < ROOT) | (draft.parents >= np.arange(count))).any():
            raise DrafterError("a draft names a parent that does not stand before its child")
        low, high = int(np.min(draft.tokens)), int(np.max(draft.tokens))
        if low < 0 or high >= self._vocab.size:
            raise DrafterError(f"token {high if low >= 0 else low} is outside the vocabulary of {self._vocab.size}")
        return draft.ending_at(self._vocab.is_end)

    def _switch_off(self, error: Exception) -> None:
        drafter, self._drafter = self._drafter, None
        logger.debug("drafter failed", exc_info=error)
        if drafter:
            self._warn(f"Drafter {drafter.name} failed and is switched off; plain decoding goes on: {error}")
