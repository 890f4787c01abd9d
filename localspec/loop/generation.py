"""The token iterator: rounds until something ends the answer. Owns the committed text of one answer.

After every step, also after an interrupt or an exception, the verifier's cache holds exactly the committed tokens but
the pending one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from localspec.core.draft import Ids
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.engine.base import Cancelled, Context, Progress, Vocab
from localspec.errors import ContextFullError, UsageError
from localspec.loop.answer import Answer, FinishReason, Piece
from localspec.loop.control import Controller, RoundReport
from localspec.loop.counters import Counters
from localspec.loop.proposer import Proposer
from localspec.loop.rest import Rest
from localspec.loop.round import Round, play_round
from localspec.loop.text import TextStream


@dataclass(frozen=True)
class Limits:
    """What ends an answer besides the model. max_tokens None: only the context does."""

    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    ignore_end: bool = field(default=False)
    """Go on after an end-of-generation token: for benchmarks that need equal lengths."""


class Generation:
    """One answer to `prompt`: iterate once for its pieces, then read `answer`."""

    def __init__(
        self,
        prompt: Sequence[int] | Ids,
        *,
        verifier: Context,
        vocab: Vocab,
        sampling: Sampling,
        rule: Rule,
        limits: Limits,
        proposer: Proposer | None,
        controller: Controller,
        engine_s: Callable[[], float] = lambda: 0.0,
        progress: Progress | None = None,
        cancelled: Cancelled | None = None,
    ) -> None:
        """Raises `UsageError` for an empty prompt, `ContextFullError` when not even one token fits behind it.

        `engine_s` tells the seconds spent inside llama.cpp so far, over all contexts in use; nobody else has these
        contexts until the answer is there.
        """
        if not len(prompt):
            raise UsageError("the prompt is empty: there is no token to go on from", hint="Type at least one letter.")
        if len(prompt) > verifier.capacity:
            raise ContextFullError(
                f"the prompt has {len(prompt)} tokens, the context holds {verifier.capacity}",
                hint="Raise --ctx-size, or shorten the prompt.",
            )
        self._verifier = verifier
        self._vocab = vocab
        self._sampling = sampling
        self._rule = rule
        self._limits = limits
        self._proposer = proposer
        self._controller = controller
        self._engine_s = engine_s
        self._progress = progress
        self._cancelled = cancelled or (lambda: False)
        self._prompt_size = self._size = len(prompt)
        self._tokens: Ids = np.empty(verifier.capacity + 1, dtype=np.int32)
        self._tokens[: self._size] = prompt
        self._text = TextStream(limits.stops)
        self._pieces: list[Piece] = []
        self._finish: FinishReason | None = None
        self._holds_cache = False
        self._rest = Rest(controller)
        self._engine_before = 0.0  # what `engine_s` said before the first round
        self.counters = Counters()
        self.answer: Answer | None = None

    @property
    def tokens(self) -> Ids:
        """(n,) int32 view: the committed text, prompt and pending token included."""
        return self._tokens[: self._size]

    def __iter__(self) -> Iterator[Piece]:
        try:
            if self._limits.max_tokens != 0:
                yield from self._decode()
            else:
                self._finish = "length"
        finally:
            self.conclude()

    def _decode(self) -> Iterator[Piece]:
        started = time.perf_counter()
        if not self._read_prompt():
            return
        self.counters.prefill_s = time.perf_counter() - started
        self._engine_before = self._engine_s()
        while self._finish is None:
            if self._cancelled():
                return
            yield from self._play(started)
        yield from self._text.finish()

    def _read_prompt(self) -> bool:
        """Evaluate the prompt but its last token, which is the first pending one. False when it was cancelled."""
        wanted = self._prompt_size - 1
        before, started = self._verifier.evaluated, time.perf_counter()
        self._verifier.prefill(self._tokens[:wanted], logits=False, progress=self._progress, cancelled=self._cancelled)
        self._holds_cache = True  # not before: an interrupted prefill leaves a text there, if not this one
        self.counters.prefill_tokens = self._verifier.evaluated - before
        self._controller.read(self.counters.prefill_tokens, time.perf_counter() - started)
        if self._verifier.length < wanted:
            return False
        if self._proposer:
            self._proposer.begin(self.tokens, sampling=self._sampling, rule=self._rule, cancelled=self._cancelled)
        return True

    def _play(self, started: float) -> list[Piece]:
        """One round; its pieces may be shown."""
        begun = time.perf_counter()
        depth = self._wanted() - 1
        limit = self._room(depth)
        proposer = self._proposer if limit else None
        round_ = play_round(
            self.tokens,
            verifier=self._verifier,
            propose=partial(proposer.propose, self.tokens, limit, leaves=self._verifier.leaves, depth=depth)
            if proposer
            else None,
            observe=proposer.observe if proposer else None,
            sampling=self._sampling,
            rule=self._rule,
            keep=self._keep,
        )
        self._tokens[self._size : self._size + round_.kept] = round_.block[: round_.kept]
        self._size += round_.kept
        self._count(round_, proposer.heard if proposer else "none")
        self._tell(round_, proposer)
        if self._finish is None and self._verifier.length + 1 > self._verifier.capacity:
            self._finish = "context"
        now = time.perf_counter()
        self.counters.decode_s += now - begun
        self.counters.engine_s = self._engine_s() - self._engine_before
        if self.counters.ttft_s is None:
            self.counters.ttft_s = now - started
        return self._pieces

    def _tell(self, round_: Round, proposer: Proposer | None) -> None:
        """Let the controller learn from the round, now or at the end of its rest."""
        drafted = len(round_.draft)
        if not drafted and self._rest.takes(draft_s=round_.draft_s, verify_s=round_.verify_s):
            return
        self._rest.tell(
            RoundReport(
                drafted=drafted,
                tested=round_.verdict.tested,
                accepted=len(round_.verdict.path),
                refused=round_.verdict.source == "residual",
                draft_s=round_.draft_s,
                verify_s=round_.verify_s,
                drafter=proposer.heard if proposer else "",
                confidences=proposer.confidences(round_.draft, round_.verdict) if proposer else (),
                taken=proposer.taken(round_.draft, round_.verdict) if proposer else (),
            )
        )

    def _wanted(self) -> int:
        """Most tokens that may still be emitted."""
        if self._limits.max_tokens is None:
            return self._verifier.capacity
        return self._limits.max_tokens - (self._size - self._prompt_size)

    def _room(self, depth: int) -> int:
        """Most draft tokens the next round may hold: the controller's choice within what fits and what is wanted.

        `depth` tokens are wanted of a draft; a tree may hold more, side by side.
        """
        if self._rest.is_parked:
            return 0
        room = 0
        if self._proposer and self._proposer.is_alive and depth > 0:
            room = max(0, min(self._verifier.capacity - self._verifier.length - 1, self._verifier.draft_room))
            if not (self._proposer.branches and self._verifier.leaves > 1):
                room = min(room, depth)
        return self._rest.limit(room)

    def _keep(self, block: tuple[int, ...]) -> int:
        """How many tokens of the block belong to the answer; turns them into text and notices what ends it."""
        kept, self._pieces, self._finish = self._read(block, self._text, emitted=self._size - self._prompt_size)
        return kept

    def _read(
        self, block: Sequence[int], text: TextStream, *, emitted: int
    ) -> tuple[int, list[Piece], FinishReason | None]:
        """How many tokens of a block behind `emitted` others belong to the answer, their pieces, and what ends it."""
        pieces: list[Piece] = []
        for at, token in enumerate(block):
            if self._vocab.is_end(token) and not self._limits.ignore_end:
                return at + 1, pieces, "stop"
            pieces += text.push(self._vocab.piece(token), drafted=at < len(block) - 1)
            if text.stopped:
                return at + 1, pieces, "stop"
            if emitted + at + 1 == self._limits.max_tokens:
                return at + 1, pieces, "length"
        return len(block), pieces, None

    def _count(self, round_: Round, drafter: str) -> None:
        counters, verdict = self.counters, round_.verdict
        drafted, accepted = len(round_.draft), len(verdict.path)
        counters.verifier_passes += 1
        counters.by(drafter if drafted else "none").add(drafted, accepted)
        if drafted:
            counters.drafted += drafted
            counters.tested += verdict.tested
            counters.accepted += accepted
            for position in range(accepted):
                if position == len(counters.accepted_by_position):
                    counters.accepted_by_position.append(0)
                counters.accepted_by_position[position] += 1
        if verdict.source == "bonus":
            counters.bonus_tokens += 1
        else:
            counters.residual_tokens += 1
        counters.completion_tokens = self._size - self._prompt_size
        counters.draft_s += round_.draft_s
        counters.verify_s += round_.verify_s
        counters.accept_s += round_.accept_s

    def conclude(self) -> None:
        """Bring text, tokens and cache to the same place and write the answer; once is enough.

        A round may have been broken off anywhere, before or after its tokens became text, were committed or counted:
        so what was said is read off the committed tokens, and a second try after another interrupt says the same.
        """
        if self.answer is not None:
            return
        tokens, text = self.tokens[self._prompt_size :].tolist(), TextStream(self._limits.stops)
        _, pieces, reason = self._read(tokens, text, emitted=0)
        if text.stopped:
            tokens = tokens[: text.kept_tokens]
        if reason is None and self._size > self._verifier.capacity:
            reason = "context"
        if self._limits.max_tokens == 0:
            reason = self._finish
        size = self._prompt_size + len(tokens)
        if self._holds_cache:  # before its first evaluation the cache is another answer's, perhaps a running one's
            self._verifier.rewind(min(self._verifier.length, max(size - 1, 0)))
        self._rest.end()
        counters = self.counters
        counters.completion_tokens = len(tokens)
        counters.controller = self._controller.explain()
        counters.drafter = self._proposer.name if self._proposer else "none"
        self.answer = Answer(
            text="".join(piece.text for piece in pieces + text.finish()),
            tokens=tuple(tokens),
            finish_reason=reason or "interrupted",
            prompt_tokens=self._prompt_size,
            stats=counters,
        )
