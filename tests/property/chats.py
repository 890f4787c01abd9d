"""A chat under test: does what operations say and checks, after each, all that localspec promises of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from localspec.core.draft import EMPTY
from localspec.engine.base import Context
from localspec.errors import ContextFullError, UsageError
from localspec.loop.answer import Answer
from localspec.services.chat.chat import Conversation
from localspec.services.chat.template import Template
from localspec.services.settings import AnswerSettings
from tests.property import operations as op
from tests.property.runtimes import Wired, all_paths_stand_in
from tests.property.speech import Said, decoded, spelled
from tests.services.toy_pair import Collected

PROBE = 9
Expect = Callable[[Sequence[int], op.How], Said | None]
"""(prompt, wishes) -> the only right answer; None where it is not known."""
Agree = Callable[[Sequence[int], Answer, Said], "bool | None"]
"""Is the answer to this prompt a beginning of the right one? None behind a near tie: there is no telling."""


def equal_so_far(prompt: Sequence[int], answer: Answer, said: Said) -> bool:
    return answer.tokens == said.uncut[: len(answer.tokens)]


@dataclass
class Chat:
    """One runtime, one conversation, and a plain list of what was said in it."""

    runtime: Wired
    report: Collected
    template: Template
    folder: Path
    expect: Expect
    fresh: Context
    agree: Agree = equal_so_far
    tolerance: float = 0.0
    turns: list[tuple[str, str]] = field(default_factory=list)
    system: str | None = None

    def __post_init__(self) -> None:
        self.conversation = Conversation(self.runtime, self.template)
        self.drafter: op.Draft | None = None

    def do(self, operation: op.Operation) -> None:
        """Do it and look at everything."""
        name = type(operation).__name__.lower()
        getattr(self, f"_{name}")(operation)
        self._check_conversation()
        self._check_drafts()

    # -- answers ------------------------------------------------------------------------------------------------------

    def _ask(self, ask: op.Ask) -> None:
        self._say(ask.text, ask.how, lambda settings, keys: self.conversation.ask(ask.text, settings, **keys))

    def _edit(self, edit: op.Edit) -> None:
        self._simple(op.Simple("undo"))
        self._ask(op.Ask(edit.text, edit.how))

    def _retry(self, retry: op.Retry) -> None:
        if not self.turns:
            self._refuses(lambda: self.conversation.retry(AnswerSettings()))
            return
        before = self.turns.pop()
        attempts = self.conversation._attempts + 1
        self._say(
            before[0],
            retry.how,
            lambda settings, keys: self.conversation.retry(settings, **keys),
            before=before,
            attempts=attempts,
        )

    def _say(
        self,
        text: str,
        how: op.How,
        start: Callable[[AnswerSettings, dict[str, Any]], Any],
        *,
        before: tuple[str, str] | None = None,
        attempts: int = 0,
    ) -> None:
        try:
            reply = start(_settings(how), {"cancelled": _flag(how), "speculate": how.speculate})
        except ContextFullError:
            self.turns += [before] if before else []
            return
        prepared = reply._prepared
        prompt = prepared.transcript.ids
        self._check_prompt(prompt, text, prepared.dropped)
        self._read(reply, how)
        answer = reply.answer
        assert answer is not None
        self._check_answer(prompt, answer, how, attempts)
        if answer.finish_reason == "interrupted" and not answer.text:
            self.turns += [before] if before else []
        else:
            self.turns.append((text, answer.text))

    def _raw(self, raw: op.Raw) -> None:
        prompt = raw.prompt[: self.runtime.context_size]
        stream = self.runtime.answer(prompt, _settings(raw.how), cancelled=_flag(raw.how), speculate=raw.how.speculate)
        self._read(stream, raw.how)
        stream.close()
        self._check_answer(prompt, stream.answer, raw.how, 0)

    def _read(self, pieces: Any, how: op.How) -> None:
        """Read an answer, or leave it as `how` says. What was shown is a beginning of the answer's text."""
        leave, trip = how.leave, self.runtime.trip
        self.before = self.runtime.verifier.evaluated
        self.left_early = False
        iterator = iter(pieces)
        shown: list[str] = []
        try:
            if leave is not None and leave.kind == "line":
                with trip.at_line(leave.at):
                    shown += [piece.text for piece in iterator]
            else:
                if leave is not None and leave.kind not in ("walk", "cancel"):
                    trip.set(leave.kind, leave.at, after=leave.after)
                for piece in iterator:
                    shown.append(piece.text)
                    if leave is not None and leave.kind == "walk" and len(shown) > leave.at:
                        self.left_early = True
                        break
        except KeyboardInterrupt:
            assert trip.gone_off
            self.left_early = True
        finally:
            trip.clear()
            if hasattr(iterator, "close"):
                iterator.close()
        self.shown = "".join(shown)

    # -- everything else ----------------------------------------------------------------------------------------------

    def _system(self, system: op.System) -> None:
        self.conversation.instruct(system.text)
        self.system = system.text

    def _draft(self, draft: op.Draft) -> None:
        self.drafter = draft
        N: Any = draft.N
        self.runtime.respeculate(draft.drafter, N, dict(draft.options), tree=draft.tree, resume=draft.resume)
        assert self.runtime.drafter == draft.drafter

    def _simple(self, simple: op.Simple) -> None:
        if simple.what == "undo":
            if not self.turns:
                self._refuses(self.conversation.undo)
                return
            self.turns.pop()
            self.conversation.undo()
        elif simple.what == "reset":
            self.turns.clear()
            self.conversation.reset()
        elif simple.what == "empty":
            self.runtime.forget()
            assert self.runtime.cached == []
        elif simple.what == "look":
            self.look()
        else:
            path = self.folder / "talk.json"
            self.conversation.save(path)
            if simple.what == "restart":
                self.conversation = Conversation(self.runtime, self.template, system="another one")
            self.conversation.load(path)
            assert [one.name for one in self.folder.iterdir() if one.suffix == ".json"] == ["talk.json"]

    def look(self) -> None:
        """The cache is what its ids say: one more token gets the logits that a fresh context gives it."""
        verifier, cached = self.runtime.verifier, list(self.runtime.cached)
        if len(cached) == verifier.capacity:
            return
        row = verifier.evaluate(PROBE, EMPTY).logits(0).copy()
        verifier.rewind(len(cached))
        assert self.runtime.cached == cached
        self.fresh.rewind(0)
        expected = self.fresh.prefill([*cached, PROBE])
        assert expected is not None
        assert float(np.abs(row - expected.logits(0)).max()) <= self.tolerance

    def _refuses(self, step: Callable[[], Any]) -> None:
        try:
            step()
        except UsageError:
            return
        raise AssertionError("there was nothing to go back to")

    # -- what must hold -----------------------------------------------------------------------------------------------

    def _check_conversation(self) -> None:
        assert [(turn.user, turn.answer) for turn in self.conversation.turns] == self.turns
        assert self.conversation.system == self.system
        assert 0 <= self.conversation.dropped <= len(self.turns)

    def _check_prompt(self, prompt: list[int], text: str, dropped: int) -> None:
        """The ids spell the rendering of what the model may see, byte by byte."""
        messages = [] if self.system is None else [{"role": "system", "content": self.system}]
        for user, said in self.turns[dropped:]:
            messages += [{"role": "user", "content": user}, {"role": "assistant", "content": said}]
        rendering = self.template.render([*messages, {"role": "user", "content": text}])
        assert b"".join(self.runtime.vocab.piece(token, special=True) for token in prompt) == rendering.encode()
        assert len(prompt) <= self.runtime.context_size

    def _check_answer(self, prompt: Sequence[int], answer: Answer, how: op.How, attempts: int) -> None:
        self._check_text(answer, how)
        self._check_cache(prompt, answer)
        if how.leave is None or how.leave.kind != "line":
            self._check_counters(prompt, answer)
        self._check_against_plain(prompt, answer, how, attempts)

    def _check_text(self, answer: Answer, how: op.How) -> None:
        """Shown pieces, text and tokens say the same; nothing of a stop string is in it."""
        vocab = self.runtime.vocab
        assert answer.text.startswith(self.shown)
        assert self.left_early or _cancelled(how) or answer.text == self.shown
        assert not any(stop in answer.text for stop in how.stop)
        if answer.text != spelled(vocab, answer.tokens):
            assert answer.finish_reason == "stop", "text and tokens may differ where a stop cut a token, only"
            assert how.stop
            whole, rest = decoded(vocab, answer.tokens)
            assert not rest
            assert answer.text.startswith(whole)
        assert how.max_tokens is None or len(answer.tokens) <= how.max_tokens

    def _check_cache(self, prompt: Sequence[int], answer: Answer) -> None:
        """The cache holds the committed text but the pending token; less where the prompt was not read to its end."""
        committed, cached = [*prompt, *answer.tokens], list(self.runtime.cached)
        if not self.left_early and (answer.stats.verifier_passes or answer.tokens):
            assert cached == committed[:-1]
        elif self.left_early and answer.tokens:
            assert cached == committed[: len(cached)]
            assert self.tolerance or len(cached) == len(committed) - 1, "an interrupt costs nothing that was evaluated"
        elif answer.finish_reason == "interrupted":
            assert cached == committed[: len(cached)] or self.runtime.verifier.evaluated == self.before
            assert len(cached) < len(committed) or self.runtime.verifier.evaluated == self.before

    def _check_counters(self, prompt: Sequence[int], answer: Answer) -> None:
        stats = answer.stats
        assert stats.verifier_passes == stats.bonus_tokens + stats.residual_tokens
        assert 0 <= stats.accepted <= stats.tested <= stats.drafted
        assert sum(stats.accepted_by_position) == stats.accepted
        assert stats.accepted_by_position == sorted(stats.accepted_by_position, reverse=True)
        assert stats.completion_tokens == len(answer.tokens)
        assert stats.completion_tokens <= stats.accepted + stats.verifier_passes
        if answer.finish_reason in ("length", "context"):
            assert stats.completion_tokens == stats.accepted + stats.verifier_passes
        assert answer.prompt_tokens == len(prompt)
        assert 0 <= stats.prefill_tokens < len(prompt)

    def _check_against_plain(self, prompt: Sequence[int], answer: Answer, how: op.How, attempts: int) -> None:
        """Where the law leaves one answer only, it is this one, whatever was said, drafted or broken off before."""
        said = self.expect(prompt, _nth(how, attempts))
        agreed = None if said is None else self.agree(prompt, answer, said)
        if said is None or agreed is None:
            return
        assert agreed, f"{answer.tokens} instead of {said.tokens}"
        if not self.left_early and not _cancelled(how):
            assert (answer.tokens, answer.text, answer.finish_reason) == (said.tokens, said.text, said.reason)

    def _check_drafts(self) -> None:
        """Lookup says nothing that does not stand in this text; only the unruly are switched off."""
        for drafter in self.runtime.built:
            if drafter.name == "ngram" and self.drafter and ("remember", "true") not in self.drafter.options:
                for text, draft in drafter.proposed:
                    assert not len(draft) or all_paths_stand_in(text, draft), (text, draft)
            drafter.proposed.clear()
        unruly = [line for line in self.report.warnings if "failed" in line and "wild" not in line]
        assert unruly == []


def _settings(how: op.How) -> AnswerSettings:
    acceptance: Any = how.acceptance
    return AnswerSettings(how.law, acceptance, how.seed, how.max_tokens, how.stop)


def _flag(how: op.How) -> Callable[[], bool] | None:
    """Says that the user has had enough, from the n-th question on."""
    if not _cancelled(how):
        return None
    assert how.leave is not None
    left = how.leave.at

    def asked() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    return asked


def _cancelled(how: op.How) -> bool:
    return how.leave is not None and how.leave.kind == "cancel"


def _nth(how: op.How, attempts: int) -> op.How:
    """A retry with a seed takes the next one."""
    return how if how.seed is None else op.How(**{**how.__dict__, "seed": how.seed + attempts})
