"""Standard output and standard error: when they may be coloured and what they can encode.

Results go to `out`, everything else to `err`. Knows no command and no service.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

ENDLESS = 10_000
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def prepare_streams() -> None:
    """Characters that a code page lacks become "?" instead of ending the program; closed streams lead nowhere.

    A closed descriptor would be given to the next file that is opened, and what is printed would go into it.
    """
    while (free := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(free)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  they live as long as the process
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
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


def columns(terminal: IO[str]) -> int:
    """How wide it is now; one that does not say is taken for endless."""
    try:
        return os.get_terminal_size(terminal.fileno()).columns or ENDLESS
    except (OSError, ValueError):
        return ENDLESS


def out() -> Console:
    """Standard output."""
    return console(sys.stdout)


def err() -> Console:
    """Standard error."""
    return console(sys.stderr)


def console(stream: IO[str]) -> Console:
    """A rich console on `stream`; outside a terminal lines and tables are as long as they are."""
    seen = is_terminal(stream)
    return _safe_console()(
        file=stream,
        force_terminal=is_rich(stream),
        highlight=False,
        soft_wrap=not seen,
        width=None if seen else ENDLESS,
    )


@functools.cache
def _safe_console() -> type[Console]:
    """A console that sends only its own escape sequences: names and errors come out of files, and from servers."""
    from rich.console import Console
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(harmless(segment.text), segment.style)

    return SafeConsole


def harmless(text: str) -> str:
    """Control characters as pictures: nothing that is shown may operate somebody's terminal."""
    return CONTROL.sub(lambda match: picture(ord(match[0])), text)


def picture(code: int) -> str:
    """The Unicode picture of a control character."""
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"


def is_broken(stream: IO[str]) -> bool:
    """True when what is written there is lost: a full disk behind a redirection, a terminal that is gone."""
    try:
        stream.flush()
    except (OSError, ValueError):
        return True
    return False


def give_up(stream: IO[str]) -> None:
    """Send what comes from now on, and what is still held back, nowhere: nobody is there to be told."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def print_json(document: dict[str, Any]) -> None:
    """Exactly one JSON document on one line of standard output."""
    # A code page that cannot hold every character would silently change strings.
    ascii_only = (sys.stdout.encoding or "ascii").lower().replace("-", "") != "utf8"
    text = json.dumps(document, ensure_ascii=ascii_only, allow_nan=False)
    # JSON may hold these as they are, but some of them open escape sequences.
    sys.stdout.write(re.sub(r"[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
    sys.stdout.flush()
