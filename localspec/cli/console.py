"""What every command prints with: the two streams, progress, and how an error looks.

Knows no command and no service.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

import typer

from localspec.cli.streams import err, is_rich, is_terminal, out, print_json
from localspec.cli.terminal import Terminal
from localspec.errors import LocalspecError

__all__ = ["Terminal", "err", "explain", "fail", "is_rich", "is_terminal", "out", "print_json"]

BUG_HINT = "This is a bug in localspec; set LOCALSPEC_DEBUG=1 to see where, and please report it."


def explain(error: BaseException) -> None:
    """One sentence and one hint on standard error; the traceback only with LOCALSPEC_DEBUG=1."""
    with suppress(OSError):  # nobody can be told
        _explain(error)


def _explain(error: BaseException) -> None:
    from rich.text import Text

    if os.environ.get("LOCALSPEC_DEBUG") == "1":
        sys.stderr.write("".join(traceback.format_exception(type(error), error, error.__traceback__)))
    deliberate = isinstance(error, LocalspecError)
    sentence = str(error) if deliberate else f"{type(error).__name__}: {error}".rstrip(": ")
    hint = error.hint if isinstance(error, LocalspecError) else BUG_HINT
    lines = [("error: ", "bold red", sentence)] + ([("hint: ", "bold", hint)] if hint else [])
    for label, style, text in lines:
        err().print(Text.assemble((label, style), text))


def fail(error: BaseException) -> NoReturn:
    """Explain the error and leave with its exit code."""
    explain(error)
    raise typer.Exit(error.exit_code if isinstance(error, LocalspecError) else 1)
