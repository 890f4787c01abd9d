"""One process at a time in a folder that it writes to. Knows nothing of what is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localspec.errors import UsageError

LOCK = ".lock"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Make `folder` and keep others out of it; who is killed lets go of it. Raises `UsageError` when it is taken."""
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UsageError(
            f"another process is at work in {folder}", hint="Wait for it to end, or name another folder."
        ) from None
    except NotImplementedError:  # some network file systems have no locks
        yield
        return
    try:
        yield
    finally:
        lock.release()
