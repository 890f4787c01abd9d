"""Lends drafters the second model of a pair, once it has been found to speak the verifier's tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from localspec.catalog.vocabularies import Comparison
from localspec.core.draft import Ids
from localspec.engine.base import Context, Vocab
from localspec.errors import DrafterError
from localspec.services.loading import Loaded


@dataclass(frozen=True)
class Second:
    """A second model that is there for the asking: how to open it, and what its vocabulary shares."""

    open: Callable[[], Loaded]
    comparison: Comparison


class PairLender:
    """`drafters.base.Lender` over the models of one pair; remembers what it lent."""

    def __init__(self, vocab: Vocab, second: Callable[[str], Second | None]) -> None:
        """`second` finds the model for a role, None when the pair has none; raises `PairError` when it does not fit."""
        self.vocab_size = vocab.size
        self.is_end = vocab.is_end
        self._second = second
        self._found: dict[str, Second] = {}
        self.lent: list[Loaded] = []

    def context(self, role: str) -> Context:
        loaded = self._find(role).open()
        self.lent.append(loaded)
        return loaded.context

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
        self.lent = []
