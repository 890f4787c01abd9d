"""What `plan` learns from texts: plain answers, and what each drafter would have proposed at every position of them.

A second model reads a whole answer in few passes, since the text is known (teacher forcing); prompt lookup is asked
again and again, which costs nothing. Knows no costs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from localspec.core.confidence import confidence
from localspec.core.coupled import Coupled
from localspec.core.draft import Draft, Ids
from localspec.core.law import Law
from localspec.drafters.base import Budget, Drafter
from localspec.drafters.registry import entry
from localspec.engine.base import Context, Row
from localspec.loop.counters import Counters
from localspec.planner.plan import LONGEST, Trace
from localspec.services.recording import RecordingLender
from localspec.services.report import Report
from localspec.services.runtime import Runtime, rule_of
from localspec.services.settings import AnswerSettings

PATIENCE_S = 90.0
"""Seconds of plain decoding after which no further prompt is answered."""
SHORTEST = 8
"""Tokens of an answer from which something can be learned."""


@dataclass(frozen=True)
class Text:
    """A prompt and its plain answer."""

    prompt: Ids
    answer: Ids
    stats: Counters

    @property
    def whole(self) -> Ids:
        return np.concatenate([self.prompt, self.answer])


@dataclass(frozen=True)
class Asked:
    """A drafter on all texts. overlap: mean of sum(min(p, q)) over the positions, None where it has no law of its own.

    ask_s  median seconds it took to answer
    """

    traces: list[Trace]
    overlap: float | None
    ask_s: float


def plain_texts(
    runtime: Runtime, prompts: Sequence[Sequence[int]], settings: AnswerSettings, report: Report
) -> list[Text]:
    """Plain answers, as many as patience allows; those too short to tell anything are left out."""
    found: list[Text] = []
    spent = 0.0
    for number, prompt in enumerate(prompts):
        report.progress("Decoding plainly", number, len(prompts), "steps")
        runtime.forget()
        stream = runtime.answer(prompt, settings, speculate=False)
        for _ in stream:
            pass
        answer = stream.answer
        if len(answer.tokens) >= SHORTEST:
            ids, said = np.array(prompt, dtype=np.int32), np.array(answer.tokens, dtype=np.int32)
            found.append(Text(ids, said, answer.stats))
        spent += answer.stats.decode_s + answer.stats.prefill_s
        if spent > PATIENCE_S:
            report.note(f"This takes long: {number + 1} of {len(prompts)} prompts have to do.")
            break
    report.progress("Decoding plainly", len(prompts), len(prompts), "steps")
    return found


# -- a second model ---------------------------------------------------------------------------------------------------


class Reader:
    """The laws of verifier and draft along an answer, and the chance that a token drafted there would be accepted."""

    def __init__(self, runtime: Runtime, settings: AnswerSettings, options: Mapping[str, str]) -> None:
        self._verifier = runtime.verifier
        lender = runtime.lender
        self._draft = lender.context("draft")
        self._known, self._blocked = lender.known("draft"), lender.blocked("draft")
        self._sampling = settings.sampling
        own = float(entry("model").parse(options).temperature)
        self._draft_sampling = settings.sampling if own < 0 else replace(settings.sampling, temperature=own)
        self._rule = rule_of(settings)
        self._is_end = runtime.vocab.is_end

    def read(self, text: Text) -> tuple[Trace, float | None]:
        """The trace of one answer and its mean overlap, which tells nothing at temperature 0."""
        shared = Text(
            np.minimum(text.prompt, self._draft.vocab_size - 1),
            np.minimum(text.answer, self._draft.vocab_size - 1),
            text.stats,
        )
        q_rows = None if self._matches else self._laws(text)
        chances, claims, ranks, overlaps = [], [], [], []
        for at, row in rows_along(self._draft, shared):
            logits = self._shared(row)
            recent = text.whole[: len(text.prompt) + at]
            law, token = self._draft_sampling.law(logits, recent), int(text.answer[at])
            claims.append(confidence(logits) if self._draft_sampling.greedy else law.top)
            ranks.append(int((logits > logits[token]).sum()) if token < len(logits) else len(logits))
            if self._sampling.greedy:
                chances.append(law.prob(token))
            elif q_rows is None:
                chances.append(float(self._rule.guess(law, len(recent))[0] == token))
            else:
                q = q_rows[at]
                # Given that this token came, the chance that it came by acceptance.
                chances.append(min(1.0, law.prob(token) / max(q.prob(token), 1e-30)))
                overlaps.append(float(np.minimum(q.dense(len(row)), law.dense(len(row))).sum()))
        picked = tuple(ranks) if self._sampling.greedy else ()
        ended = self._is_end(int(text.answer[-1]))
        trace = Trace(runs(chances, beyond=0.0), runs(claims, beyond=claims[-1]), picked, ended)
        return trace, float(np.mean(overlaps)) if overlaps else None

    @property
    def _matches(self) -> bool:
        """True when a draft token is accepted if and only if it is the token of the text."""
        return self._sampling.greedy or isinstance(self._rule, Coupled)

    def _laws(self, text: Text) -> list[Law]:
        whole, start = text.whole, len(text.prompt)
        return [self._sampling.law(row, whole[: start + at]) for at, row in rows_along(self._verifier, text)]

    def _shared(self, row: Row) -> Row:
        logits = np.array(row[: self._known])
        logits[self._blocked] = -np.inf
        return logits


def runs(values: Sequence[float], *, beyond: float) -> tuple[tuple[float, ...], ...]:
    """At each place the next `LONGEST` values; what lies beyond the end of the text was never accepted."""
    padded = [*values, *[beyond] * LONGEST]
    return tuple(tuple(padded[at : at + LONGEST]) for at in range(len(values)))


def rows_along(context: Context, text: Text) -> Iterator[tuple[int, Row]]:
    """(i, the row from which token i of the answer comes), evaluated in passes as large as the context takes."""
    context.prefill(text.prompt[:-1], logits=False)
    tokens = np.concatenate([text.prompt[-1:], text.answer[:-1]])
    step = 1 + context.draft_room
    for start in range(0, len(tokens), step):
        block = tokens[start : start + step]
        result = context.evaluate(int(block[0]), Draft.chain(block[1:]))
        for row in range(len(block)):
            yield start + row, result.logits(row)
        context.commit(range(len(block) - 1))


def read_by_model(
    runtime: Runtime, texts: Sequence[Text], settings: AnswerSettings, options: Mapping[str, str], report: Report
) -> Asked:
    """What the pair's draft would have proposed."""
    reader = Reader(runtime, settings, options)
    traces: list[Trace] = []
    overlaps: list[float] = []
    for number, text in enumerate(texts, start=1):
        trace, overlap = reader.read(text)
        traces.append(trace)
        if overlap is not None:
            overlaps.append(overlap)
        report.progress("Reading the answers with the draft", number, len(texts), "steps")
    return Asked(traces, statistics.fmean(overlaps) if overlaps else None, 0.0)


# -- drafters that look up --------------------------------------------------------------------------------------------


def read_by_lookup(
    name: str, runtime: Runtime, texts: Sequence[Text], settings: AnswerSettings, options: Mapping[str, str]
) -> Asked:
    """What a drafter that evaluates nothing would have proposed; it learns from each text for the next."""
    drafter = RecordingLender(runtime.lender, runtime.verifier).drafter(name, options)  # remembers nothing
    times: list[float] = []
    traces = [_looked_up(drafter, text, settings, times, is_end=runtime.vocab.is_end) for text in texts]
    return Asked(traces, None, statistics.median(times) if times else 0.0)


def _looked_up(
    drafter: Drafter, text: Text, settings: AnswerSettings, times: list[float], *, is_end: Callable[[int], bool]
) -> Trace:
    whole, start = text.whole, len(text.prompt)
    drafter.begin(whole[:start], sampling=settings.sampling, rule=rule_of(settings), cancelled=lambda: False)
    chances, claims = [], []
    for at in range(start, len(whole)):
        said: list[float] = []

        def pays(depth: int, sure: float, said: list[float] = said) -> bool:
            said.append(sure)
            return True

        started = time.perf_counter()
        draft = drafter.propose(whole[:at], Budget(LONGEST, pays))
        times.append(time.perf_counter() - started)
        draft = draft.ending_at(is_end)
        right = draft.tokens[: len(whole) - at] == whole[at : at + len(draft)]
        row = np.zeros(len(draft))
        row[: len(right)] = np.cumprod(right)
        chances.append(tuple(row.tolist()))
        claims.append(tuple(said[: len(draft)]))
    return Trace(tuple(chances), tuple(claims), ended=is_end(int(whole[-1])))


def settings_for(asked: AnswerSettings) -> AnswerSettings:
    """The law that is planned for, with a seed so that measuring again measures the same texts."""
    return replace(asked, acceptance=asked.rule, seed=asked.seed or 0)
