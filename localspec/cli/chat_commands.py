"""The slash commands of a chat: one function each, in one table. Knows the session, not the keyboard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.cli import chat_settings
from localspec.cli.console import err
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.cli.chat_session import Session


class Leave(Exception):
    """The user is done."""


@dataclass(frozen=True)
class Command:
    """usage: what follows the name; words: what may be completed there."""

    usage: str
    summary: str
    act: Callable[[Session, str], None]
    words: Sequence[str] = ()


def execute(session: Session, text: str) -> None:
    """Do what `/name rest` says. Raises `UsageError` for an unknown name, `Leave` at the end."""
    name, _, rest = text[1:].partition(" ")
    command = COMMANDS.get(name.lower())
    if command is None:
        near = get_close_matches(name.lower(), COMMANDS, n=3)
        hint = f"Did you mean {' or '.join('/' + match for match in near)}?" if near else "/help lists the commands."
        raise UsageError(f"there is no command /{name}", hint=hint)
    command.act(session, rest.strip())


def show_help(session: Session, rest: str) -> None:
    """All commands, then keys."""
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, command in COMMANDS.items():
        table.add_row(f"[bold]/{name}[/bold] {command.usage}".rstrip(), command.summary)
    err().print(table)
    session.tell(
        "Ctrl-C stops an answer · Alt-Enter or a final \\ starts a new line · // begins a message with a slash"
    )


def show_stats(session: Session, rest: str) -> None:
    """The counters of the last answer and of the whole chat."""
    from localspec.cli import chat_stats

    if not session.counted:
        raise UsageError("there are no figures before the first answer", hint="Say something first.")
    err().print(chat_stats.table(session.counted))


def reset(session: Session, rest: str) -> None:
    session.conversation.reset()
    session.tell("The conversation is empty; the system message stays." if session.conversation.system else EMPTIED)


EMPTIED = "The conversation is empty."


def undo(session: Session, rest: str) -> None:
    session.unsent = session.conversation.undo().user
    left = len(session.conversation.turns)
    session.tell(f"The last message and its answer are taken back; turns left: {left}.")


def retry(session: Session, rest: str) -> None:
    session.retry()


def system(session: Session, rest: str) -> None:
    """Show, set or remove the system message."""
    conversation = session.conversation
    if not rest:
        session.tell(conversation.system or "There is no system message; /system TEXT sets one.")
        return
    conversation.instruct(None if rest == "off" else rest)
    session.tell("The system message is removed." if rest == "off" else "The system message counts from now on.")
    if not conversation.hears_system:
        session.report.warn("This model's chat template leaves the system message out.")


def save(session: Session, rest: str) -> None:
    session.conversation.save(named(rest, "save"))
    session.tell(f"Saved: {rest}, turns: {len(session.conversation.turns)}.")


def load(session: Session, rest: str) -> None:
    session.conversation.load(named(rest, "load"))
    session.tell(f"Loaded: {rest}, turns: {len(session.conversation.turns)}.")


def named(rest: str, command: str) -> Path:
    """The file behind /save or /load."""
    if not rest:
        raise UsageError(f"/{command} needs a file name", hint=f"For example: /{command} talk.json")
    return Path(rest)


def change(session: Session, rest: str) -> None:
    """Show all settings, or change one."""
    if not rest:
        for name, value in chat_settings.current(session).items():
            session.tell(f"{name:18} {value}")
        return
    name, _, value = rest.partition(" ")
    chat_settings.change(session, name, value.strip())
    session.tell(f"{name} is {chat_settings.current(session).get(name, value)} from the next answer on.")


def speculate(session: Session, rest: str) -> None:
    """Drafting on or off."""
    if rest not in ("on", "off"):
        now, other = ("on", "off") if session.speculate else ("off", "on")
        raise UsageError(f"/spec takes on or off; it is {now}", hint=f"Try /spec {other}.")
    session.speculate = rest == "on"
    session.tell(f"Speculation is {rest}; the text follows the same law either way.")


def show(session: Session, rest: str) -> None:
    """How answers appear."""
    if rest not in ("drafts", "plain"):
        raise UsageError("/show takes drafts or plain", hint="Try /show drafts.")
    session.show_drafts = rest == "drafts"
    session.tell("Accepted draft tokens are green." if session.show_drafts else "Answers are shown plainly.")


def leave(session: Session, rest: str) -> None:
    raise Leave


COMMANDS: dict[str, Command] = {
    "help": Command("", "this list", show_help),
    "stats": Command("", "figures of the last answer and of the chat", show_stats),
    "reset": Command("", "forget the conversation", reset),
    "undo": Command("", "take the last message back, to edit it", undo),
    "retry": Command("", "another answer to the last message", retry),
    "system": Command("[TEXT|off]", "show, set or remove the system message", system),
    "save": Command("FILE", "write the conversation to a file", save),
    "load": Command("FILE", "go on from a file", load),
    "set": Command("[NAME VALUE]", "show or change settings: /set temperature 0.5", change, chat_settings.NAMES),
    "spec": Command("on|off", "switch speculation", speculate, ("on", "off")),
    "show": Command("drafts|plain", "colour accepted draft tokens, or not", show, ("drafts", "plain")),
    "quit": Command("", "leave", leave),
}
