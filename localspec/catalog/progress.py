"""How fetching tells what it is doing. The services' `Report` has this shape; the catalog does not know who listens."""

from __future__ import annotations

from typing import Literal, Protocol


class Progress(Protocol):
    """Receives notes, warnings and bytes."""

    def note(self, text: str) -> None:
        """One plain line of information."""
        ...

    def warn(self, text: str) -> None:
        """One line about something that went wrong without stopping the work."""
        ...

    def progress(self, what: str, done: int, total: int | None, unit: Literal["bytes"]) -> None:
        """`done` of `total` bytes (None: unknown)."""
        ...
