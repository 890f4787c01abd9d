"""Lends drafters the models of a pair through contexts that remember rows; see `lender` for the models themselves.

What is drafted here is nobody's text: nothing of it is remembered for later runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from localspec.core.draft import Ids
from localspec.drafters.base import Drafter, Lender
from localspec.drafters.registry import entry
from localspec.engine.base import Context, Guesser, Head
from localspec.services.audit.rows import Recorded, RecordedGuesser, RecordedHead


class RecordingLender:
    """`drafters.base.Lender` of the same models, seen through contexts that remember rows."""

    def __init__(self, lender: Lender, verifier: Context) -> None:
        self._lender = lender
        self._verifier = verifier
        self.vocab_size = lender.vocab_size
        self.is_end = lender.is_end
        self.tokenize = lender.tokenize
        self.recall = lender.recall
        self.warn = lender.warn
        self.lent: dict[str, Recorded | RecordedHead | RecordedGuesser] = {}
        self._contexts: dict[str, Recorded] = {}

    def remember(self, drafter: str, text: Ids) -> None:
        """What is sampled here is nobody's text."""

    def context(self, role: str) -> Context:
        if role not in self._contexts:
            self.lent[role] = self._contexts[role] = Recorded(self._lender.context(role))
        return self._contexts[role]

    def head(self, kind: str, *, force: bool = False) -> Head:
        head = RecordedHead(self._lender.head(kind, force=force), self._verifier)
        self.lent[kind] = head
        return head

    def guesser(self, kind: str, *, force: bool = False) -> Guesser:
        head = RecordedGuesser(self._lender.guesser(kind, force=force), self._verifier)
        self.lent[kind] = head
        return head

    def drafter(self, name: str, options: Mapping[str, str] | None = None) -> Drafter:
        found = entry(name)
        return found.drafter_class(found.parse(options or {}), self)

    def known(self, role: str) -> int:
        return self._lender.known(role)

    def blocked(self, role: str) -> Ids:
        return self._lender.blocked(role)
