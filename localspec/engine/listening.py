"""The captures of one context: what they need switched on, how a text is cut into pieces for them, who gets which rows.

Joins `features`, which knows no llama.cpp, and `hidden`, which knows no text.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.engine.features import Capture
from localspec.engine.hidden import HiddenRows


class Listening:
    """Who listens to one native context; nobody costs nothing."""

    def __init__(self, hidden: HiddenRows, *, batch: int, outputs: int) -> None:
        """`batch` tokens and `outputs` output rows at most per evaluation."""
        self._hidden = hidden
        self._batch = batch
        self._outputs = outputs
        self.captures: list[Capture] = []

    @property
    def all_rows(self) -> bool:
        """True while every token of a batch must be an output."""
        return self._hidden.last_rows

    def add(self, capture: Capture) -> None:
        self.captures.append(capture)
        self.refresh()

    def remove(self, capture: Capture) -> None:
        """Once is enough."""
        capture.on = False
        if capture in self.captures:
            self.captures.remove(capture)
        self.refresh()

    def refresh(self) -> None:
        """Switch on what the captures that are on ask for, and nothing else."""
        self._hidden.listen({layer for capture in self._on() for layer in capture.spec.layers})
        self.before_round()

    def _on(self) -> list[Capture]:
        return [capture for capture in self.captures if capture.on]

    def missing_from(self, held: int, total: int) -> int:
        """As `Capture.missing_from`, for all of them."""
        return min((capture.missing_from(held, total) for capture in self._on()), default=held)

    def before_round(self) -> None:
        """All rows of a round are outputs anyway: the final ones, if anybody wants them, cost nothing more."""
        self._hidden.listen_to_final(any(capture.spec.final for capture in self._on()))

    def before_piece(self, length: int, total: int) -> int:
        """How far the next piece of a text of `total` tokens goes, of which `length` are in the cache.

        Final rows need an output row for each token, so they come in pieces of as many as there are.
        """
        finals = [capture.wanted_from(total) for capture in self._on() if capture.spec.final]
        first = min(finals, default=total)
        self._hidden.listen_to_final(bool(finals) and length >= first)
        if length < first:
            return min(first, length + self._batch)
        return min(total, length + (self._outputs if finals else self._batch))

    def keep(self, position: int, rows: slice | Sequence[int]) -> None:
        """Hand out rows of the last evaluation, those of the committed positions from `position` on."""
        for capture in self._on():
            if not capture.spec.final or self._hidden.last_rows:
                capture.add(position, self._hidden.read(capture.spec, rows))

    def truncate(self, length: int) -> None:
        """The text has been cut to `length` tokens."""
        for capture in self.captures:
            capture.truncate(length)
