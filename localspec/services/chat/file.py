"""Conversations in files: what was said, with the ids of the answers, as JSON (schema localspec.conversation/1).

Knows turns and files; no model.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from localspec.catalog.texts import read_text
from localspec.errors import UsageError
from localspec.loop.answer import FinishReason

SCHEMA = "localspec.conversation/1"


@dataclass(frozen=True)
class Turn:
    """A message and its answer, with the ids the answer was sampled as."""

    user: str
    answer: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason


def write(path: Path, system: str | None, turns: Sequence[Turn]) -> None:
    """Write a conversation; a file of that name is replaced at once or not at all. Raises `UsageError`."""
    text = json.dumps({"schema": SCHEMA, "messages": messages(system, turns)}, ensure_ascii=False, indent=1)
    path = Path(os.path.expanduser(path))
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except (OSError, ValueError) as error:  # a name with a zero byte is no `OSError`
        raise UsageError(f"cannot write {path}: {_reason(error)}", hint="Choose another file name.") from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(name)
        raise UsageError(f"cannot write {path}: {_reason(error)}", hint="Choose another file name.") from error


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def messages(system: str | None, turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """The turns as messages, the form in which other programs read them too."""
    found: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
    for turn in turns:
        found.append({"role": "user", "content": turn.user})
        found.append(
            {
                "role": "assistant",
                "content": turn.answer,
                "tokens": list(turn.tokens),
                "finish_reason": turn.finish_reason,
            }
        )
    return found


def read(path: Path) -> tuple[str | None, list[Turn]]:
    """The system message and the turns of a file. Raises `UsageError` that says what is wrong with it."""
    path = Path(os.path.expanduser(path))
    try:
        document = json.loads(read_text(path, errors="surrogatepass"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {_reason(error)}", hint="See the file name and its folder.") from error
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"is not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
        raise damaged(path, "holds no conversation")
    if document.get("schema") != SCHEMA:
        raise damaged(path, f"has schema {document.get('schema')!r} instead of {SCHEMA!r}")
    return turns_of(document["messages"], path)


def turns_of(found: list[Any], path: Path) -> tuple[str | None, list[Turn]]:
    """Messages back to turns."""
    for number, message in enumerate(found, 1):
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            raise damaged(path, f"has a message without text, number {number}")
    system = found[0]["content"] if found and found[0].get("role") == "system" else None
    said = found if system is None else found[1:]
    roles = [message.get("role") for message in said]
    if roles != ["user", "assistant"] * (len(said) // 2):
        raise damaged(path, "does not go from user to assistant and back")
    return system, [turn(question, answer) for question, answer in zip(said[::2], said[1::2], strict=True)]


def turn(question: dict[str, Any], answer: dict[str, Any]) -> Turn:
    """One turn; ids that are missing or odd are left out, the text is what counts."""
    tokens = answer.get("tokens", [])
    sound = isinstance(tokens, list) and all(type(token) is int for token in tokens)
    reason: FinishReason = answer["finish_reason"] if answer.get("finish_reason") in get_args(FinishReason) else "stop"
    return Turn(
        question["content"],
        answer["content"],
        tuple(tokens) if sound else (),
        reason,
    )


def damaged(path: Path, what: str) -> UsageError:
    return UsageError(f"{path} {what}", hint="Give a file that /save wrote.")
