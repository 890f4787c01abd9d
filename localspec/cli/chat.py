"""`localspec chat`: a conversation, typed or piped. Input and output only; what is said lives in `services.chat`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from localspec.cli.chat_commands import Leave, execute
from localspec.cli.chat_session import Session
from localspec.cli.console import Terminal, err, explain, is_terminal
from localspec.cli.options import Shared, with_shared
from localspec.errors import LocalspecError

if TYPE_CHECKING:
    from rich.console import Console

    from localspec.services.runtime import Runtime

EXAMPLES = """
[bold]Examples[/bold]

localspec chat

localspec chat --pair NAME --N 4 --system "Answer in one sentence."

printf 'hi\\nbye\\n' | localspec chat
"""


@with_shared
def chat(
    shared: Shared,
    template: Annotated[
        str | None, typer.Option("--template", metavar="NAME|FILE", help="Chat format instead of the model's own.")
    ] = None,
) -> None:
    """Talk to a model.

    /help lists the commands inside. Lines that are piped in are answered in order.
    """
    from localspec.services.chat.chat import Conversation
    from localspec.services.chat.template import choose
    from localspec.services.runtime import Runtime

    settings, choice, engine = shared.answer(), shared.choice(), shared.engine()
    with Terminal() as report, Runtime.open(choice, engine, report) as runtime:
        format = choose(template, runtime.template, bos=runtime.bos, eos=runtime.eos)
        session = Session(runtime, Conversation(runtime, format, system=shared.system), settings, report)
        report.settle()
        if not session.conversation.hears_system:
            report.warn("This model's chat template leaves the system message out.")
        if is_terminal(sys.stdin):
            banner(runtime, err())
            converse(session)
        elif not answer_lines(session):
            raise typer.Exit(1)


def banner(runtime: Runtime, console: Console) -> None:
    """Who is talking, where the models live, how they draft."""
    facts = runtime.settings()
    console.print(f"[bold]localspec[/bold] · {facts['pair']} · {runtime.drafter} N={facts['N']}", highlight=False)
    for line in runtime.placement:
        console.print(f"  {line}", style="dim", markup=False)
    console.print("  /help lists commands · Alt-Enter or a final \\ starts a new line · Ctrl-D leaves", style="dim")
    console.print()


def answer_lines(session: Session) -> bool:
    """Answer the lines of standard input in order; False when one of them failed."""
    sound = True
    for line in sys.stdin:
        text = line.rstrip("\r\n")
        if not text.strip():
            continue
        if is_terminal(sys.stdout):
            err().print(f"> {text}", style="bold", markup=False)
        try:
            take(session, text)
        except Leave:
            break
        except LocalspecError as error:
            explain(error)
            sound = False
        if session.stopped:
            raise KeyboardInterrupt
    return sound


def converse(session: Session) -> None:
    """Ask for lines until the user leaves."""
    from localspec.cli.chat_input import Reader

    reader = Reader()
    warned = False
    while True:
        try:
            text = reader.read(session.unsent)
        except EOFError:
            return
        except KeyboardInterrupt:
            if warned:
                return
            warned = True
            err().print("Press Ctrl-C once more, or Ctrl-D, to leave.", style="dim")
            continue
        warned = False
        session.unsent = ""
        if not text.strip():
            continue
        try:
            take(session, text)
        except Leave:
            return
        except LocalspecError as error:
            explain(error)


def take(session: Session, text: str) -> None:
    """Do what one input says. Two slashes begin a message that starts with one."""
    if text.startswith("/") and not text.startswith("//"):
        execute(session, text)
    else:
        session.say(text[1:] if text.startswith("//") else text)
