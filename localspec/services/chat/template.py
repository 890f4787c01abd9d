"""Chat templates: from messages to the text a model was trained on, and from that text to ids.

A template comes out of a model file, so it is foreign code: it runs in a sandbox, with a limit on time and on output.
Knows nothing about conversations or about how an answer is made.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import jinja2

from localspec.catalog.texts import read_text
from localspec.errors import LocalspecError, TemplateError, UsageError
from localspec.services.chat import sandbox
from localspec.services.chat.formats import FORMATS
from localspec.services.chat.sandbox import SIZE_LIMIT, Refusal, Sandbox, TooLong, environment

if TYPE_CHECKING:
    from localspec.engine.base import Vocab

Message = Mapping[str, Any]
"""{"role": "system" | "user" | "assistant", "content": text}."""

TIME_LIMIT_S = 5.0
LONGEST_SOURCE = 256_000  # characters; real templates have ten thousand
SOURCE = "<template>"  # what jinja2 calls the template's code in a traceback

PROBE = "314159"  # a message that no change of case alters

RAW_HINT = "Complete text with `localspec run --raw`, or name a format: --template {}.".format("|".join(FORMATS))


@dataclass(frozen=True)
class Template:
    """A chat template and the texts of the model's begin and end tokens."""

    source: str
    bos: str = ""
    eos: str = ""
    time_limit_s: float = TIME_LIMIT_S

    @cached_property
    def _sandbox(self) -> Sandbox:
        return environment()

    @cached_property
    def _compiled(self) -> jinja2.Template:
        if len(self.source) > LONGEST_SOURCE:
            raise TemplateError(f"the chat template has {len(self.source):,} characters", hint=RAW_HINT)
        try:
            return self._sandbox.from_string(self.source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(
                f"the chat template is broken in line {error.lineno}: {error.message}", hint=RAW_HINT
            ) from error
        except RecursionError as error:
            raise TemplateError("the chat template is nested too deeply", hint=RAW_HINT) from error

    def render(self, messages: Sequence[Message], *, reply: bool = True) -> str:
        """The messages as the model reads them; `reply` adds the opening of the answer. Raises `TemplateError`."""
        try:
            return self._render(messages, reply)
        except TemplateError as error:
            others = [message for message in messages if message["role"] != "system"]
            endless = isinstance(error.__cause__, TooLong)
            if endless or not others or len(others) == len(messages) or not self._accepts(others, reply):
                raise
        raise TemplateError(
            "this model's chat template takes no system message",
            hint="Leave the system message out, or write its text at the start of your first message.",
        )

    def says(self, text: str) -> bool:
        """False when it leaves out a message of the user; one that fails is not judged here."""
        try:
            return text in self._render([{"role": "user", "content": text}], True)
        except TemplateError:
            return True

    def _accepts(self, messages: Sequence[Message], reply: bool) -> bool:
        try:
            self._render(messages, reply)
        except TemplateError:
            return False
        return True

    def _render(self, messages: Sequence[Message], reply: bool) -> str:
        context = {
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": reply,
            "bos_token": self.bos,
            "eos_token": self.eos,
            "tools": None,
            "documents": None,
        }
        try:
            with deadline(self.time_limit_s):
                self._sandbox.spent = 0
                return limited(self._compiled.generate(context))
        except LocalspecError:
            raise
        except Refusal as error:
            raise TemplateError(
                f"the chat template refuses these messages: {error}", hint="Change or /undo the last message."
            ) from error
        except Exception as error:
            what = f"{type(error).__name__}: {error}" if not isinstance(error, jinja2.TemplateError) else str(error)
            raise TemplateError(f"the chat template fails{failing_line(error)}: {what}", hint=RAW_HINT) from error


def choose(name: str | None, own: str | None, *, bos: str, eos: str) -> Template:
    """The template `name` (a format or a file), else the model's own.

    Raises `TemplateError` when the model has none, `UsageError` when the name is neither, or no template.
    """
    if name is None and own is None:
        raise TemplateError("this model has no chat template, so it cannot hold a conversation", hint=RAW_HINT)
    source = own if name is None else FORMATS.get(name)
    if source is None:
        try:
            source = read_text(Path(os.path.expanduser(str(name))))
        except (OSError, ValueError) as error:
            raise UsageError(
                f"--template {name} is neither a known format nor a readable file",
                hint=f"Formats: {', '.join(FORMATS)}.",
            ) from error
        if not Template(source, bos, eos).says(PROBE):
            raise UsageError(
                f"--template {name} leaves out what the user says: it is no chat template",
                hint=f"Name a Jinja template that writes the messages, or a format: {', '.join(FORMATS)}.",
            )
    return Template(source, bos, eos)


def chat_ids(text: str, vocab: Vocab, bos: str) -> list[int]:
    """Ids of a rendered conversation: begin-of-text once, whether the template or the tokenizer writes it."""
    lead = [] if bos and text.startswith(bos) else begin_ids(vocab, bos)
    return lead + vocab.tokenize(text, add_special=False, parse_special=True)


def raw_ids(text: str, vocab: Vocab, bos: str) -> tuple[list[int], bool]:
    """Ids of a prompt that is completed as it stands, and whether it brought its own begin-of-text token.

    Raises `UsageError` when there is no token to go on from.
    """
    begin = begin_ids(vocab, bos)
    doubled = bool(begin) and text.startswith(bos)
    ids = ([] if doubled else begin) + (vocab.tokenize(text, add_special=False, parse_special=True) if text else [])
    if not ids:
        raise UsageError(
            "the prompt is empty, and this model has no begin-of-text token to go on from",
            hint="Type at least one character.",
        )
    return ids, doubled


def begin_ids(vocab: Vocab, bos: str) -> list[int]:
    """[begin-of-text] when the tokenizer adds it, else []. An end token that it would add too has no place here."""
    added = vocab.tokenize("", add_special=True, parse_special=False)
    return added[:1] if added and bos and vocab.piece(added[0], special=True) == bos.encode() else []


def limited(parts: Iterator[str]) -> str:
    """The parts joined, unless they get absurdly long."""
    kept: list[str] = []
    size = 0
    for part in parts:
        size += len(part)
        if size > SIZE_LIMIT:
            raise TooLong(f"it writes more than {SIZE_LIMIT:,} characters")
        kept.append(part)
    return "".join(kept)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise `TooLong` inside the block once it has run for `seconds`.

    jinja2 has no clock and a signal would work in the main thread only, so every line of Python run inside looks at it.
    """
    end = time.monotonic() + seconds
    late = f"it was still running after {seconds:g} s"

    def watch(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if time.monotonic() > end and not is_finalizing(frame):
            raise _Late
        return None if frame.f_code.co_filename == sandbox.__file__ else watch  # it bounds itself

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield
    except _Late:
        raise TooLong(late) from None
    finally:
        sys.settrace(before)


def is_finalizing(frame: FrameType | None) -> bool:
    """True below a `__del__`, which may run anywhere: what is raised there is printed and lost."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


class _Late(BaseException):
    """The time is over. No `Exception`: jinja2 goes on after those, and Python traces nothing any more after one."""


def failing_line(error: BaseException) -> str:
    """ " in line 3", or nothing when the error did not arise in a line of the template."""
    found = ""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == SOURCE:
            found = f" in line {trace.tb_lineno}"
        trace = trace.tb_next
    return found
