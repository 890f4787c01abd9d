"""Streaming a file into a partial one, going on where the last attempt ended.

Survives cut connections, a server that ignores ranges, and interruptions: what has arrived stays for the next time.
Knows a URL and a file, not what is in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localspec.catalog.endpoint import Endpoint
from localspec.catalog.progress import Progress
from localspec.catalog.store import unwritable
from localspec.errors import DownloadError

PATIENCE = 5  # attempts in a row that bring nothing
PAUSE_S = 0.5  # before the second of them; doubles
TICK_S = 0.1  # between two reports of progress


def stream_to(partial: Path, url: str, name: str, *, size: int | None, hub: Endpoint, progress: Progress) -> None:
    """Fetch `url` until `partial` has `size` bytes (None: until the server ends it).

    Raises what the client raises once `PATIENCE` attempts in a row have brought nothing, or at once when the server
    refuses; `DownloadError` when the disk is full or more bytes come than there should be. `partial` is kept.
    """
    from huggingface_hub.errors import HfHubHTTPError

    fruitless, dropped = 0, False
    while True:
        before = _size(partial)
        if size is not None and before > size:
            partial.unlink()
            before = 0
        if before == size:
            progress.progress(name, before, size, "bytes")
            return
        try:
            _stream_once(partial, url, size=size, hub=hub, tick=_ticker(name, size, progress))
            if size is None:
                return
        except _http_error() as error:
            if isinstance(error, HfHubHTTPError) and error.response.status_code == 416:
                if dropped:  # it has sent all it has, and that is too little: beginning again would never end
                    raise ConnectionError(f"the server ends the file after {before:,} of {size:,} bytes") from error
                partial.unlink(missing_ok=True)  # longer than the file: not a beginning of it
                dropped = True
            elif isinstance(error, HfHubHTTPError) and error.response.status_code not in (408, 429, 500, 502, 503, 504):
                raise
            fruitless = 0 if _size(partial) > before else fruitless + 1
            if fruitless >= PATIENCE:
                raise
            time.sleep(PAUSE_S * 2 ** max(0, fruitless - 1))
        else:
            fruitless = 0 if _size(partial) > before else fruitless + 1
            if fruitless >= PATIENCE:
                raise ConnectionError(f"the server ends the file after {before:,} of {size:,} bytes")


def _stream_once(partial: Path, url: str, *, size: int | None, hub: Endpoint, tick: Callable[[int], None]) -> None:
    """One request, from where `partial` ends."""
    from huggingface_hub import get_session
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]

    have = _size(partial)
    headers = build_hf_headers(token=hub.token or False, library_name="localspec")
    headers["Accept-Encoding"] = "identity"  # ranges count bytes of the file, not of a compressed one
    if have:
        headers["Range"] = f"bytes={have}-"
    with get_session().stream("GET", url, headers=headers, timeout=hub.pause_s, follow_redirects=True) as response:
        hf_raise_for_status(response)
        if not _continues(response, have):
            have = 0
        try:
            with partial.open("r+b" if have else "wb") as file:
                file.seek(have)
                for block in response.iter_bytes():
                    file.write(block)
                    have += len(block)
                    tick(have)
                    if size is not None and have > size:
                        raise DownloadError(
                            f"The server sends more than the {size:,} bytes that it says {url.split('/')[-1]} has.",
                            hint="Try again later; if it stays so, something in between sends another file.",
                        )
        except OSError as error:
            raise unwritable(partial, error, (size or 0) - have) from error


def _continues(response: Any, have: int) -> bool:
    """False when the server sends the file from its beginning although a range was asked for."""
    if response.status_code != 206:
        return False
    return str(response.headers.get("Content-Range", f"bytes {have}-")).startswith(f"bytes {have}-")


def _http_error() -> type[Exception]:
    """The base of the errors of whichever HTTP library the installed client is built on."""
    from huggingface_hub.errors import HfHubHTTPError

    return next(base for base in HfHubHTTPError.__mro__ if base.__name__ == "HTTPError")


def _ticker(name: str, size: int | None, progress: Progress) -> Callable[[int], None]:
    said = 0.0

    def tick(done: int) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= TICK_S:
            said = now
            progress.progress(name, done, size, "bytes")

    return tick


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
