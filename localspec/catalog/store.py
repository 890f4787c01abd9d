"""Folders, locks and room on the disk: where fetched files lie and how they get there whole.

Knows the file system, not where files come from. The environment is read on every call, never at import.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from localspec.catalog.progress import Progress
from localspec.errors import DownloadError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def cache_folder() -> Path:
    """Everything localspec keeps for itself: LOCALSPEC_CACHE, else the system's cache folder."""
    if named := os.environ.get("LOCALSPEC_CACHE"):
        return Path(os.path.expanduser(named)).absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("localspec", appauthor=False))


def hub_folder() -> Path:
    """The hub client's cache, shared with every other program that uses it: HF_HUB_CACHE, HF_HOME, or its default."""
    if named := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return _expanded(named)
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return _expanded(home) / "hub"


@contextmanager
def exclusive(path: Path, taken: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file `path`; who is killed lets go of it.

    `taken` is called when another process holds it: it says so, or raises; if it returns, the other is waited for.
    """
    from filelock import FileLock, SoftFileLock, Timeout

    make_folder(path.parent)
    lock: FileLock | SoftFileLock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        taken()
        lock.acquire()
    except NotImplementedError:
        # Some network file systems have no locks; a file that only one process can create does the same, if less well.
        lock = SoftFileLock(path.with_suffix(".softlock"))
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def locked(path: Path, what: str, progress: Progress) -> AbstractContextManager[None]:
    """`exclusive`: of several processes that want the same file, one fetches and the others wait."""
    return exclusive(path, lambda: progress.note(f"Another process is fetching {what}; waiting for it."))


def make_folder(folder: Path) -> None:
    """Create `folder`; `DownloadError` names it when that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error


def check_room(folder: Path, need: int, progress: Progress) -> None:
    """`DownloadError` when `need` more bytes do not fit; a warning where the file system reports no size at all."""
    if need <= 0:
        return
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    usage = shutil.disk_usage(existing)
    if usage.total == 0:
        progress.warn(f"{existing} does not say how much room it has; {need:,} bytes are needed.")
    elif usage.free < need:
        raise no_room(folder, need, f"{usage.free:,} are free")


def no_room(folder: Path, need: int, found: str) -> DownloadError:
    """The disk is full, or will be."""
    return DownloadError(
        f"There is not enough room in {folder}: {need:,} more bytes are needed, {found}.",
        hint="Free some space, or choose another disk: HF_HOME for the hub's files, LOCALSPEC_CACHE for the others.",
    )


def unwritable(path: Path, error: OSError, need: int | None = None) -> DownloadError:
    """What an error of the file system means to the user; `need`: bytes that were still to come."""
    if error.errno in _NO_ROOM:
        return no_room(path if path.is_dir() else path.parent, need or 0, error.strerror or "no room is left")
    return DownloadError(
        f"{path} cannot be written: {error.strerror or error}.",
        hint="Check its permissions, or set HF_HOME (hub) or LOCALSPEC_CACHE (everything else) to another folder.",
    )


def _expanded(text: str) -> Path:
    return Path(os.path.expanduser(os.path.expandvars(text))).absolute()
