"""Is this file the one it should be? Size and sha256, computed once and remembered.

The record of a check is a small JSON file that holds for one path, size and modification time. Knows no source.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.catalog.progress import Progress
from localspec.catalog.store import cache_folder
from localspec.errors import DownloadError

CHUNK = 1 << 20
AGAIN = "Fetch it again with `localspec models pull`; if it stays so, the file was replaced at its source."


@dataclass(frozen=True)
class Expected:
    """What a file should be; None: not known. `said_by` goes into messages."""

    size: int | None = None
    sha256: str | None = None
    said_by: str = "the registry"


def verify(path: Path, expected: Expected, progress: Progress, *, name: str = "") -> None:
    """`DownloadError` unless `path` is what was expected; the file itself is left alone. `name` is shown meanwhile."""
    check_size(path, path.stat().st_size, expected)
    if expected.sha256 is None or known_sha256(path) == expected.sha256:
        return
    found = sha256(path, progress, name=name or path.name)
    remember(path, found)
    if found != expected.sha256:
        raise DownloadError(
            f"{path} has the sha256 {found}, but {expected.said_by} says {expected.sha256}.", hint=AGAIN
        )


def check_size(path: Path, size: int, expected: Expected) -> None:
    """`DownloadError` unless `size`, which `path` has or will have, is what was expected."""
    if expected.size is not None and size != expected.size:
        raise DownloadError(f"{path} has {size:,} bytes, but {expected.said_by} says {expected.size:,}.", hint=AGAIN)


def is_sound(path: Path, expected: Expected, progress: Progress) -> bool:
    """True when `path` is there and is what was expected; what is not goes away, with a warning."""
    if not path.is_file():
        return False
    try:
        verify(path, expected, progress)
    except DownloadError as error:
        progress.warn(f"{error} It is fetched again.")
        discard(path)
        return False
    return True


def discard(path: Path) -> None:
    """Remove a file, what it links to, and the record of its check."""
    forget(path)
    for each in (path.resolve(), path):
        each.unlink(missing_ok=True)


def move(path: Path, target: Path) -> None:
    """Give a checked file its final name, in one step, and keep the record of its check."""
    digest = known_sha256(path)
    path.replace(target)
    forget(path)
    if digest is not None:
        remember(target, digest)


def sha256(path: Path, progress: Progress, *, name: str) -> str:
    """The file's sha256, 64 hexadecimal digits."""
    total, done, digest = path.stat().st_size, 0, hashlib.sha256()
    what = f"checking {name}"
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
            done += len(block)
            if done % (CHUNK << 5) == 0:
                progress.progress(what, done, total, "bytes")
    progress.progress(what, total, total, "bytes")
    return digest.hexdigest()


def known_sha256(path: Path) -> str | None:
    """The sha256 that was found the last time, if the file has not changed since."""
    try:
        record = json.loads(_record(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    stamp = _stamp(path)
    return record.get("sha256") if isinstance(record, dict) and record.items() >= stamp.items() else None


def remember(path: Path, digest: str) -> None:
    """Record what was found; a cache that cannot be written only costs a second look."""
    record, text = _record(path), json.dumps({**_stamp(path), "sha256": digest})
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        new = record.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        new.write_text(text, encoding="utf-8")
        new.replace(record)
    except OSError:
        return


def forget(path: Path) -> None:
    """Drop the record of a file that is going away; where none could be written there is none."""
    with suppress(OSError):
        _record(path).unlink()


def _record(path: Path) -> Path:
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]
    return cache_folder() / "verified" / f"{name}.json"


def _stamp(path: Path) -> dict[str, str | int]:
    status = path.stat()
    return {"path": str(path.resolve()), "size": status.st_size, "mtime_ns": status.st_mtime_ns}
