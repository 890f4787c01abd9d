"""A conversation: turns, and the prompt that brings them before the model so that only new tokens are evaluated.

Knows a runtime that answers ids and a chat template. Knows neither a terminal nor how an answer is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from localspec.errors import ContextFullError, UsageError
from localspec.services.chat import file as chat_file
from localspec.services.chat.file import Turn
from localspec.services.chat.template import Message, Template
from localspec.services.chat.transcript import Transcript

if TYPE_CHECKING:
    from localspec.engine.base import Cancelled, Vocab
    from localspec.loop.answer import Answer, Piece
    from localspec.services.report import Report
    from localspec.services.settings import AnswerSettings


class Stream(Protocol):
    """An answer in the making (`services.runtime.Stream`)."""

    @property
    def answer(self) -> Answer: ...

    def __iter__(self) -> Iterator[Piece]: ...

    def close(self) -> None: ...


class Answering(Protocol):
    """What a conversation needs of a runtime."""

    @property
    def vocab(self) -> Vocab: ...

    @property
    def context_size(self) -> int: ...

    def answer(
        self,
        prompt: Sequence[int],
        settings: AnswerSettings,
        *,
        cancelled: Cancelled | None = None,
        report: Report | None = None,
        speculate: bool = True,
    ) -> Stream: ...


@dataclass(frozen=True)
class Prepared:
    """A prompt that is ready: its transcript, and how many of the oldest turns it leaves out."""

    transcript: Transcript
    dropped: int


class Reply:
    """One answer of a conversation: iterate for its pieces, then read `answer`. Leaving early keeps what was said.

    dropped  oldest turns that had to be left out for this answer and were not left out before
    """

    answer: Answer | None = None

    def __init__(self, conversation: Conversation, text: str, stream: Stream, prepared: Prepared, before: Turn | None):
        """`before` is the turn that this one replaces."""
        self._conversation = conversation
        self._text = text
        self._stream = stream
        self._prepared = prepared
        self._before = before
        self.dropped = prepared.dropped - conversation.dropped

    def __iter__(self) -> Iterator[Piece]:
        try:
            yield from self._stream
        finally:
            try:
                self._stream.close()
            finally:  # an interrupt may fall into closing too: what was said is kept all the same
                self.answer = self._closed()
                self._conversation.keep(self._text, self.answer, self._prepared, self._before)

    def _closed(self) -> Answer:
        """The answer of the stream, which may have been interrupted while it closed."""
        try:
            return self._stream.answer
        except UsageError:
            self._stream.close()
            return self._stream.answer


class Conversation:
    """Messages and answers over one runtime.

    turns    everything that was said, also what no longer fits
    dropped  how many of the oldest turns the model does not see any more
    system   the system message, always seen
    """

    def __init__(self, runtime: Answering, template: Template, *, system: str | None = None) -> None:
        """Raises `TemplateError` when the template is broken or takes no system message."""
        self._runtime = runtime
        self._template = template
        self._empty = Transcript(runtime.vocab, template.bos)
        self._transcript = self._empty
        self._attempts = 0
        self.turns: list[Turn] = []
        self.dropped = 0
        self.system: str | None = None
        self.instruct(system)

    def ask(
        self,
        text: str,
        settings: AnswerSettings,
        *,
        cancelled: Cancelled | None = None,
        report: Report | None = None,
        speculate: bool = True,
    ) -> Reply:
        """The answer to `text`, in the making; nothing is evaluated before it is iterated.

        Raises `ContextFullError` when the message alone does not fit: the conversation is as it was.
        """
        self._attempts = 0
        return self._answer(text, settings, cancelled=cancelled, report=report, speculate=speculate)

    def retry(
        self,
        settings: AnswerSettings,
        *,
        cancelled: Cancelled | None = None,
        report: Report | None = None,
        speculate: bool = True,
    ) -> Reply:
        """Another answer to the last message; with a seed, the next seed.

        Raises `UsageError` when there is none, `ContextFullError` when it does not fit any more: all is as it was.
        """
        before = self.undo()
        self._attempts += 1
        if settings.seed is not None:
            settings = replace(settings, seed=settings.seed + self._attempts)
        try:
            return self._answer(
                before.user, settings, cancelled=cancelled, report=report, speculate=speculate, before=before
            )
        except BaseException:
            self.turns.append(before)  # what cannot be answered again keeps the answer that it has
            self._recall()
            raise

    def undo(self) -> Turn:
        """Take the last message and its answer back. Raises `UsageError` when there is none."""
        if not self.turns:
            raise UsageError("there is no message to go back to", hint="Say something first.")
        turn = self.turns.pop()
        self.dropped = min(self.dropped, len(self.turns))
        self._recall()
        return turn

    def reset(self) -> None:
        """Forget all turns; the system message stays."""
        self.turns = []
        self.dropped = 0
        self._recall()

    def instruct(self, system: str | None) -> None:
        """Set or remove the system message. Raises `TemplateError` when the template takes none."""
        before, self.system = self.system, system or None
        try:
            self._template.render(self._messages([], "?"))
        except Exception:
            self.system = before
            raise
        self._recall()

    @property
    def hears_system(self) -> bool:
        """False when there is a system message that the template leaves out without a word."""
        return self.system is None or self.system.strip() in self._template.render(self._messages([], "?"))

    def save(self, path: Path) -> None:
        """Write everything to a file that appears only when it is whole. Raises `UsageError`."""
        chat_file.write(path, self.system, self.turns)

    def load(self, path: Path) -> None:
        """Go on from a file. Raises `UsageError` when it cannot be read: the conversation is as it was."""
        system, turns = chat_file.read(path)
        self.instruct(system)
        self.turns = turns
        self.dropped = 0
        self._recall()

    def keep(self, text: str, answer: Answer, prepared: Prepared, before: Turn | None) -> None:
        """Make a finished or interrupted answer part of the conversation."""
        if answer.finish_reason == "interrupted" and not answer.text:
            # Nothing was said: the message is taken back, so that speakers go on taking turns.
            if before is not None:
                self.turns.append(before)
                self._recall()
            return
        self.dropped = prepared.dropped
        self.turns.append(Turn(text, answer.text, answer.tokens, answer.finish_reason))
        self._transcript = prepared.transcript.wrote(answer.text, answer.tokens)

    def _answer(
        self,
        text: str,
        settings: AnswerSettings,
        *,
        cancelled: Cancelled | None,
        report: Report | None,
        speculate: bool,
        before: Turn | None = None,
    ) -> Reply:
        prepared = self._prepare(text, settings.max_tokens)
        stream = self._runtime.answer(
            prepared.transcript.ids, settings, cancelled=cancelled, report=report, speculate=speculate
        )
        return Reply(self, text, stream, prepared, before)

    def _prepare(self, text: str, max_tokens: int | None) -> Prepared:
        """The prompt for a new message. Whole oldest turns make room, several at a time: each loss moves all text that
        follows it, which then has to be evaluated again.
        """
        size = self._runtime.context_size
        room = max(1, size // 8 if max_tokens is None else min(max_tokens, size // 8))
        transcript = self._transcript.read(self._render(self.turns[self.dropped :], text))
        if len(transcript.ids) + room <= size:
            return Prepared(transcript, self.dropped)
        dropped = self.dropped
        while dropped < len(self.turns) and len(transcript.ids) > size // 2:
            dropped += 1
            transcript = self._empty.read(self._render(self.turns[dropped:], text))
        if len(transcript.ids) > size:
            raise ContextFullError(
                f"this message makes a prompt of {len(transcript.ids)} tokens, the context holds {size}",
                hint="Shorten the message, or start again with a larger --ctx-size.",
            )
        kept = self.turns[dropped:]
        return Prepared(self._replay(kept).read(self._render(kept, text)), dropped)

    def _recall(self) -> None:
        """Bring the transcript in line with turns that changed."""
        self._transcript = self._replay(self.turns[self.dropped :])

    def _replay(self, turns: Sequence[Turn]) -> Transcript:
        """The transcript after these turns."""
        transcript = self._empty
        for at, turn in enumerate(turns):
            transcript = transcript.read(self._render(turns[:at], turn.user)).wrote(turn.answer, turn.tokens)
        return transcript

    def _render(self, turns: Sequence[Turn], text: str) -> str:
        return self._template.render(self._messages(turns, text))

    def _messages(self, turns: Sequence[Turn], text: str) -> list[Message]:
        messages: list[Message] = [] if self.system is None else [{"role": "system", "content": self.system}]
        for turn in turns:
            messages.append({"role": "user", "content": turn.user})
            messages.append({"role": "assistant", "content": turn.answer})
        return [*messages, {"role": "user", "content": text}]
