"""How services talk while they work: notes, warnings, progress. The command line prints them, tests collect them."""

from __future__ import annotations

from typing import Literal, Protocol

Unit = Literal["bytes", "tokens", "steps"]


class Report(Protocol):
    """Receives what a service has to say besides its result."""

    def note(self, text: str) -> None:
        """One plain line of information."""
        ...

    def warn(self, text: str) -> None:
        """One line about something that went wrong without stopping the work."""
        ...

    def progress(self, what: str, done: int, total: int | None, unit: Unit) -> None:
        """`done` of `total` (None: unknown); called often, `done == total` at the end."""
        ...


class Silent:
    """Says nothing."""

    def note(self, text: str) -> None:
        return None

    def warn(self, text: str) -> None:
        return None

    def progress(self, what: str, done: int, total: int | None, unit: Unit) -> None:
        return None


class Once:
    """Passes everything on, but the same note or warning only the first time."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._said: set[str] = set()

    def note(self, text: str) -> None:
        if self._is_new(text):
            self._report.note(text)

    def warn(self, text: str) -> None:
        if self._is_new(text):
            self._report.warn(text)

    def progress(self, what: str, done: int, total: int | None, unit: Unit) -> None:
        self._report.progress(what, done, total, unit)

    def _is_new(self, text: str) -> bool:
        if text in self._said:
            return False
        self._said.add(text)
        return True
