"""The keyboard of a chat: history, several lines, completion of commands. Knows their table, nothing of answers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.cli.chat_commands import COMMANDS

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

PROMPT, CONTINUED = "> ", "  "


class Reader:
    """Asks for one input after the other."""

    def __init__(self) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.output import create_output

        self._session: PromptSession[str] = PromptSession(
            history=history(),
            completer=completer(),
            complete_while_typing=Condition(lambda: self._session.default_buffer.text.startswith("/")),
            key_bindings=keys(),
            multiline=True,
            prompt_continuation=CONTINUED,
            output=create_output(always_prefer_tty=True),
        )

    def read(self, draft: str) -> str:
        """What the user types, `draft` to begin with. Raises `EOFError` on Ctrl-D, `KeyboardInterrupt` on Ctrl-C."""
        return self._session.prompt(PROMPT, default=draft)


def keys() -> KeyBindings:
    """Enter sends, Alt-Enter and a final backslash start a new line, Ctrl-C empties the line first."""
    from prompt_toolkit.key_binding import KeyBindings

    bindings = KeyBindings()

    @bindings.add("enter")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def break_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add("c-c")
    def interrupt(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    return bindings


def completer() -> Completer:
    """Names of commands, and the words that may follow them."""
    from prompt_toolkit.completion import Completer, Completion

    class Commands(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            text = document.text_before_cursor
            name, blank, rest = text[1:].partition(" ")
            if not text.startswith("/") or "\n" in text:
                return
            if not blank:
                words = [(f"/{known}", command.summary) for known, command in COMMANDS.items()]
                start = text
            else:
                words = [(word, "") for word in COMMANDS[name].words] if name in COMMANDS else []
                start = rest
            for word, summary in words:
                if word.startswith(start):
                    yield Completion(word, start_position=-len(start), display_meta=summary)

    return Commands()


def history() -> History:
    """What was typed in earlier chats, kept in the user's state folder where that can be written."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class Kept(FileHistory):
        def store_string(self, string: str) -> None:
            with suppress(OSError):  # a full disk is no reason to end a conversation
                super().store_string(string)

    path = history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))  # nobody else's to read
        return Kept(str(path))
    except OSError:
        return InMemoryHistory()


def history_file() -> Path:
    """Where the history lies."""
    from platformdirs import user_state_path

    return user_state_path("localspec", appauthor=False) / "history"
