"""An answer on standard output while it is made, and the one line about it afterwards. Knows no command."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from localspec.cli.streams import harmless, is_rich, is_terminal
from localspec.cli.wrapping import Wrapped

if TYPE_CHECKING:
    from localspec.cli.terminal import Terminal
    from localspec.loop.answer import Answer, Piece

GREEN, NORMAL = "\x1b[32m", "\x1b[39m"


def stream(pieces: Iterable[Piece], report: Terminal, *, show_drafts: bool = False) -> str:
    """Write the pieces as they come and return their text; `show_drafts` colours accepted draft tokens."""
    seen, coloured = is_terminal(sys.stdout), show_drafts and is_rich(sys.stdout)
    shown: list[str] = []
    page = Wrapped(sys.stdout)
    for piece in pieces:
        if not shown:
            report.settle()
        shown.append(piece.text)
        if seen:
            page.write(harmless(piece.text), green if coloured and piece.drafted else str)
        else:
            sys.stdout.write(piece.text)
            sys.stdout.flush()
    page.settle()
    report.settle()
    return "".join(shown)


def green(text: str) -> str:
    """As accepted draft tokens are shown."""
    return f"{GREEN}{text}{NORMAL}"


def finish(shown: str, answer: Answer) -> None:
    """Write what an interrupt held back, and end the line."""
    rest = answer.text.removeprefix(shown)
    sys.stdout.write(harmless(rest) if is_terminal(sys.stdout) else rest)
    if answer.text and not answer.text.endswith("\n"):
        sys.stdout.write("\n")
    sys.stdout.flush()


def footer(answer: Answer) -> str:
    """48.1 tok/s · 62 % accepted · 2.3 tokens/pass · ngram N=auto."""
    stats = answer.stats
    parts = [f"{stats.tokens_per_s:.1f} tok/s"] if stats.tokens_per_s else []
    if stats.acceptance_rate is not None and stats.tokens_per_pass is not None:
        parts += [f"{100 * stats.acceptance_rate:.0f} % accepted", f"{stats.tokens_per_pass:.1f} tokens/pass"]
    parts.append("plain" if stats.drafter == "none" else f"{stats.drafter} N={stats.N}")
    endings = {"interrupted": "stopped", "length": "cut at max-tokens", "context": "context full"}
    if answer.finish_reason in endings:
        parts.append(endings[answer.finish_reason])
    return " · ".join(parts)
