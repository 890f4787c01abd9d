"""Standard output and standard error: when they may be coloured and what they can encode.

Results go to `out`, everything else to `err`. Knows no command and no service.
"""

from __future__ import annotations

import json
import os
import sys
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def prepare_streams() -> None:
    """Characters that a code page lacks become "?" instead of ending the program."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def is_terminal(stream: IO[str]) -> bool:
    """True when somebody is looking at it; also for streams that are closed or missing."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def is_rich(stream: IO[str]) -> bool:
    """True when colours and moving lines are welcome there."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def out() -> Console:
    """Standard output."""
    return console(sys.stdout)


def err() -> Console:
    """Standard error."""
    return console(sys.stderr)


def console(stream: IO[str]) -> Console:
    """A rich console on `stream`; outside a terminal lines and tables are as long as they are."""
    from rich.console import Console

    seen = is_terminal(stream)
    return Console(
        file=stream, force_terminal=is_rich(stream), highlight=False, soft_wrap=not seen, width=None if seen else 10_000
    )


def print_json(document: dict[str, Any]) -> None:
    """Exactly one JSON document on one line of standard output."""
    # A code page that cannot hold every character would silently change strings.
    ascii_only = (sys.stdout.encoding or "ascii").lower().replace("-", "") != "utf8"
    sys.stdout.write(json.dumps(document, ensure_ascii=ascii_only, allow_nan=False) + "\n")
    sys.stdout.flush()
