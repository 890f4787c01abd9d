"""What a chat remembers between two inputs, and how an answer appears. Knows no commands and no keyboard."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from localspec.cli import answers
from localspec.cli.console import Terminal, is_terminal
from localspec.cli.interrupt import stoppable
from localspec.errors import ContextFullError

if TYPE_CHECKING:
    from localspec.loop.counters import Counters
    from localspec.services.chat.chat import Conversation, Reply
    from localspec.services.runtime import Runtime
    from localspec.services.settings import AnswerSettings


class Session:
    """The state of one chat.

    settings     the law and limits of the next answers
    speculate    False after `/spec off`
    show_drafts  colour accepted draft tokens
    counted      the counters of all answers so far
    unsent       text that is offered for editing at the next prompt
    stopped      the last answer was interrupted
    """

    def __init__(
        self, runtime: Runtime, conversation: Conversation, settings: AnswerSettings, report: Terminal
    ) -> None:
        self.runtime = runtime
        self.conversation = conversation
        self.settings = settings
        self.report = report
        self.speculate = True
        self.show_drafts = False
        self.counted: list[Counters] = []
        self.unsent = ""
        self.stopped = False

    def say(self, text: str) -> None:
        """Send a message and show the answer. A message that does not fit is kept for editing."""
        with stoppable() as stopped:
            try:
                reply = self.conversation.ask(
                    text, self.settings, cancelled=stopped, report=self.report, speculate=self.speculate
                )
            except ContextFullError:
                self.unsent = text
                raise
            self._show(reply, text)

    def retry(self) -> None:
        """Answer the last message anew."""
        with stoppable() as stopped:
            reply = self.conversation.retry(
                self.settings, cancelled=stopped, report=self.report, speculate=self.speculate
            )
            self._show(reply, "")

    def tell(self, text: str) -> None:
        """One dim line to the user."""
        self.report.note(text)

    def _show(self, reply: Reply, text: str) -> None:
        if reply.dropped:
            turns = "1 oldest turn is" if reply.dropped == 1 else f"{reply.dropped} oldest turns are"
            kept = "; the system message stays" if self.conversation.system else ""
            self.tell(f"The context is full: {turns} left out from now on{kept}.")
        shown = answers.stream(reply, self.report, show_drafts=self.show_drafts)
        answer = reply.answer
        assert answer is not None
        answers.finish(shown, answer)
        self.counted.append(answer.stats)
        self.stopped = answer.finish_reason == "interrupted"
        if self.stopped and not answer.text:
            self.unsent = text
            self.tell("Stopped before the first word; the message is yours again.")
        elif is_terminal(sys.stderr):
            self.tell(answers.footer(answer) + "\n")
