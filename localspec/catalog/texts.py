"""Text files that a user names: read whole, but never more than a text of that kind can have.

A device like /dev/zero has no end, and reading it takes all memory of the machine; a pipe is fine.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

LARGEST = 256 * 2**20


def read_text(path: Path, *, encoding: str = "utf-8", errors: str = "strict", largest: int = LARGEST) -> str:
    """The text of a file. Raises `OSError`, for a file that is too large as well, and `UnicodeDecodeError`."""
    with path.open("rb") as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return data.decode(encoding, errors).replace("\r\n", "\n").replace("\r", "\n")  # as in text mode
