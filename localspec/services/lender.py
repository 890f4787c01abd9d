"""Lends drafters the second model of a pair, once it has been found to speak the verifier's tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from localspec.catalog.vocabularies import Comparison
from localspec.core.draft import Ids
from localspec.drafters.base import Drafter
from localspec.engine.base import Context, Guesser, Head, Vocab
from localspec.errors import DrafterError, PairError
from localspec.services.heads.heads import LoadedHead
from localspec.services.loading import Loaded
from localspec.services.notebook import Notebook
from localspec.services.report import Report


@dataclass(frozen=True)
class Second:
    """A second model that is there for the asking: how to open it, and what its vocabulary shares.

    head       the kind of head that it is, "" for a language model
    open_head  opens a head; True: also one that was trained on another quantisation
    """

    open: Callable[[], Loaded]
    comparison: Comparison
    head: str = ""
    open_head: Callable[[bool], LoadedHead] | None = None


class PairLender:
    """`drafters.base.Lender` over the models of one pair. What it lends stays its own, open for the next drafter."""

    def __init__(
        self,
        vocab: Vocab,
        second: Callable[[str], Second | None],
        build: Callable[[str, PairLender], Drafter],
        notebook: Notebook,
        report: Report,
    ) -> None:
        """`second` finds the model for a role, None when the pair has none; raises `PairError` when it does not fit.

        `build` makes a drafter of the registry with its default options.
        """
        self.vocab_size = vocab.size
        self.is_end = vocab.is_end
        self.warn = report.warn
        self.recall = notebook.read
        self.remember = notebook.add
        self._vocab = vocab
        self._second = second
        self._build = build
        self._found: dict[str, Second] = {}
        self._lent: dict[str, Loaded] = {}
        self._head: LoadedHead | None = None
        self.head_was_asked_for = False
        """To be set back by who wants to know."""

    @property
    def lent(self) -> list[Loaded | LoadedHead]:
        """The models that are open."""
        return [*self._lent.values(), *([self._head] if self._head else [])]

    def tokenize(self, text: str) -> list[int]:
        return self._vocab.tokenize(text, add_special=False, parse_special=False)

    def context(self, role: str) -> Context:
        if role not in self._lent:
            found = self._find(role)
            if found.head:
                raise PairError(
                    f"the {role} of this pair is a head of the kind {found.head}, not a language model",
                    hint=f"Use it with --drafter {found.head}.",
                )
            self._lent[role] = found.open()
        return self._lent[role].context

    def head(self, kind: str, *, force: bool = False) -> Head:
        return cast(Head, self._opened(kind, force))

    def guesser(self, kind: str, *, force: bool = False) -> Guesser:
        return cast(Guesser, self._opened(kind, force))

    def _opened(self, kind: str, force: bool) -> Head | Guesser:
        self.head_was_asked_for = True
        found = self._find("draft")
        if found.head != kind or found.open_head is None:
            what = f"a head of the kind {found.head}" if found.head else "a language model"
            raise PairError(
                f"the draft of this pair is {what}, not a head of the kind {kind}",
                hint=f"Use it with --drafter {found.head or 'model'}, or name a head with --draft REF.",
            )
        if self._head is None:
            self._head = found.open_head(force)
        return self._head.context

    def listen(self, on: bool) -> None:
        """Whether the verifier keeps its hidden rows for the head; without a head there is nothing to keep."""
        if self._head:
            self._head.context.listen(on)

    def drafter(self, name: str) -> Drafter:
        return self._build(name, self)

    def known(self, role: str) -> int:
        return self._find(role).comparison.known

    def blocked(self, role: str) -> Ids:
        return np.array(self._find(role).comparison.blocked, dtype=np.int32)

    def _find(self, role: str) -> Second:
        if role not in self._found:
            second = self._second(role)
            if second is None:
                raise DrafterError(f"this pair has no {role} model", hint=f"Name one with --{role} REF.")
            self._found[role] = second
        return self._found[role]

    def close(self) -> None:
        for loaded in self.lent:
            loaded.close()
        self._lent, self._head = {}, None
