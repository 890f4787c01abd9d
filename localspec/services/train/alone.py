"""One process at a time in a folder that it writes to. Knows nothing of what is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localspec.catalog.store import exclusive
from localspec.errors import UsageError

LOCK = ".lock"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Make `folder` and keep others out of it. Raises `UsageError` when it is taken."""

    def taken() -> None:
        raise UsageError(f"another process is at work in {folder}", hint="Wait for it to end, or name another folder.")

    with exclusive(folder / LOCK, taken):
        yield
