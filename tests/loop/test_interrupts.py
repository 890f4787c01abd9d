"""Leaving an answer early, from every place where it can happen, keeps text, tokens and cache in step.

Interrupts are injected: an exception at the k-th call of each step of a round, or a consumer that walks away.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from localspec.core.draft import Draft, Verdict
from localspec.core.rejection import Rejection
from localspec.core.rule import LawOf
from localspec.engine.base import Cancelled, Progress
from localspec.engine.toy import ToyContext, ToyModel, ToyPass
from localspec.errors import DecodeError
from localspec.loop.answer import Piece
from localspec.loop.generation import Limits
from tests.loop.answers import Setting
from tests.loop.scripted import Failing, Scripted, following
from tests.property.trip import Trip

PROMPT = [3, 1, 4, 1, 5]
STAGES = ["prefill", "evaluate", "row", "commit"]


class Interrupted(ToyContext):
    """A toy context whose `stage` raises `error` at its call number `at`; `after` lets the call do its work first."""

    def __init__(self, model: ToyModel, *, stage: str, at: int, error: BaseException, after: bool = False) -> None:
        super().__init__(model)
        self._stage, self._left, self._error, self._after = stage, at, error, after

    def _reached(self, stage: str) -> bool:
        self._left -= stage == self._stage
        return stage == self._stage and self._left == 0

    def _guard(self, stage: str, work: Callable[[], Any]) -> Any:
        reached = self._reached(stage)
        if reached and not self._after:
            raise self._error
        result = work()
        if reached:
            raise self._error
        return result

    def prefill(
        self,
        tokens: Sequence[int] | np.ndarray[Any, np.dtype[np.int32]],
        *,
        logits: bool = True,
        progress: Progress | None = None,
        cancelled: Cancelled | None = None,
    ) -> ToyPass | None:
        found: ToyPass | None = self._guard(
            "prefill", lambda: ToyContext.prefill(self, tokens, logits=logits, progress=progress, cancelled=cancelled)
        )
        return found

    def evaluate(self, pending: int, draft: Draft) -> ToyPass:
        result: ToyPass = self._guard("evaluate", lambda: ToyContext.evaluate(self, pending, draft))
        if self._reached("row"):
            result.logits = self._raise  # type: ignore[method-assign]
        return result

    def commit(self, path: Sequence[int]) -> None:
        self._guard("commit", lambda: ToyContext.commit(self, path))

    def _raise(self, row: int) -> Any:
        raise self._error


def toy_model() -> ToyModel:
    return ToyModel(seed=1, end_bias=-30.0)


@pytest.fixture(scope="module")
def plain() -> tuple[int, ...]:
    model = toy_model()
    return Setting(ToyContext(model), model.vocab).answer(PROMPT).tokens


def spelled(setting: Setting, tokens: Sequence[int]) -> str:
    return b"".join(setting.vocab.piece(token) for token in tokens).decode()


@pytest.mark.parametrize("N", [0, 1, 4])
@pytest.mark.parametrize("at", [1, 2, 5])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), DecodeError("no")], ids=["interrupt", "error"])
def test_an_exception_anywhere_leaves_text_tokens_and_cache_in_step(
    plain: tuple[int, ...], stage: str, after: bool, at: int, N: int, error: BaseException
) -> None:
    """B25, B28: whatever the verifier's step, the answer is what was committed, and the next one goes on from it."""
    if stage == "prefill":
        at = 1
    model = toy_model()
    context = Interrupted(model, stage=stage, at=at, error=error, after=after)
    setting = Setting(context, model.vocab)
    generation = setting.start(PROMPT, drafter=Scripted(following([*PROMPT, *plain])), N=N)
    pieces: list[Piece] = []
    with pytest.raises(type(error)):
        pieces.extend(generation)
    answer = generation.answer
    assert answer is not None
    assert answer.finish_reason == "interrupted"
    assert answer.tokens == plain[: len(answer.tokens)]
    assert answer.text == spelled(setting, answer.tokens)
    committed = [*PROMPT, *answer.tokens]
    assert context.tokens.tolist() == committed[: context.length]
    assert context.length == (len(committed) - 1 if stage != "prefill" or after else 0)
    again = setting.answer(PROMPT, drafter=Scripted(following([*PROMPT, *plain])), N=N)
    assert again.tokens == plain


@pytest.mark.parametrize("taken", [1, 2, 3, 7])
@pytest.mark.parametrize("N", [0, 1, 4])
def test_a_consumer_who_walks_away_leaves_everything_in_step(toy: Setting, taken: int, N: int) -> None:
    """An abandoned iterator: `close`, or leaving a for loop early."""
    whole = toy.answer(PROMPT).tokens
    generation = toy.start(PROMPT, drafter=Scripted(following([*PROMPT, *whole])), N=N)
    stream = iter(generation)
    seen = [next(stream) for _ in range(taken)]
    stream.close()  # type: ignore[attr-defined]
    answer = generation.answer
    assert answer is not None
    assert answer.finish_reason == "interrupted"
    assert answer.text.startswith("".join(piece.text for piece in seen))
    assert answer.text == spelled(toy, answer.tokens)
    toy.check_cache(answer, PROMPT)
    before = toy.verifier.evaluated
    toy.answer([*PROMPT, *answer.tokens, 7], limits=Limits(max_tokens=1))
    assert toy.verifier.evaluated - before == 2


@pytest.mark.parametrize("after", range(6))
def test_a_cancelled_answer_stops_between_rounds(toy: Setting, after: int) -> None:
    """B25: Ctrl-C as the command line does it, by a flag."""
    asked = iter([False] * (after + 1 + len(PROMPT)) + [True] * 1000)
    generation = toy.start(PROMPT, N=0, cancelled=lambda: next(asked))
    pieces = list(generation)
    answer = toy.checked(generation, PROMPT, pieces)
    assert answer.finish_reason == "interrupted"
    assert len(answer.tokens) < 40


def test_a_prompt_cancelled_while_it_is_read_keeps_what_was_read(toy: Setting) -> None:
    """B25: Ctrl-C during prompt evaluation."""
    asked = iter([False] * 3 + [True] * 1000)
    generation = toy.start(PROMPT, cancelled=lambda: next(asked))
    assert list(generation) == []
    answer = generation.answer
    assert answer is not None
    assert answer.tokens == ()
    assert answer.finish_reason == "interrupted"
    assert 0 < toy.verifier.length < len(PROMPT)
    assert toy.verifier.tokens.tolist() == PROMPT[: toy.verifier.length]


def test_an_interrupt_while_the_drafter_works_is_no_failure_of_the_drafter(toy: Setting) -> None:
    """B25: Ctrl-C ends the answer; the drafter stays for the next."""
    whole = toy.answer(PROMPT).tokens
    drafter = Failing(following([*PROMPT, *whole]), stage="propose", at=3, error=KeyboardInterrupt())
    generation = toy.start(PROMPT, drafter=drafter)
    with pytest.raises(KeyboardInterrupt):
        list(generation)
    assert toy.warnings == []
    answer = generation.answer
    assert answer is not None
    assert len(answer.tokens) == 2 * 5
    toy.check_cache(answer, PROMPT)
    assert toy.answer(PROMPT, drafter=drafter).tokens == whole


class InterruptedRule(Rejection):
    """Judges, then is interrupted at its call number `at`."""

    def __init__(self, at: int) -> None:
        super().__init__(np.random.default_rng(0))
        self._left = at

    def accept(self, draft: Draft, law_of: LawOf, position: int) -> Verdict:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt
        return super().accept(draft, law_of, position)


@pytest.mark.parametrize("at", [1, 2, 5])
def test_an_interrupt_while_a_draft_is_judged(toy: Setting, at: int) -> None:
    whole = toy.answer(PROMPT).tokens
    drafter = Scripted(following([*PROMPT, *whole]))
    generation = toy.start(PROMPT, drafter=drafter, rule=InterruptedRule(at))
    with pytest.raises(KeyboardInterrupt):
        list(generation)
    answer = generation.answer
    assert answer is not None
    assert answer.tokens == whole[: 5 * (at - 1)]
    toy.check_cache(answer, PROMPT)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_interrupt_behind_a_found_stop_does_not_invent_tokens(at: int) -> None:
    """The stop was found in a block that was never committed: its tokens once came from memory nobody had written."""
    model = toy_model()
    plain = Setting(ToyContext(model), model.vocab).answer(PROMPT).tokens
    context = Interrupted(model, stage="commit", at=at, error=KeyboardInterrupt())
    setting = Setting(context, model.vocab)
    stop = b"".join(model.vocab.piece(token) for token in plain[5 * at - 3 : 5 * at - 1]).decode()
    drafter = Scripted(following([*PROMPT, *plain]))
    generation = setting.start(PROMPT, drafter=drafter, limits=Limits(max_tokens=40, stops=(stop,)))
    with pytest.raises(KeyboardInterrupt):
        list(generation)
    answer = generation.answer
    assert answer is not None
    assert answer.tokens == plain[: len(answer.tokens)]
    assert len(answer.tokens) <= 5 * (at - 1)
    assert answer.text == spelled(setting, answer.tokens)
    assert context.tokens.tolist() == [*PROMPT, *answer.tokens][: context.length]


@pytest.mark.parametrize("N", [0, 3])
@pytest.mark.parametrize("stops", [(), ("third to fifth",)], ids=["no stop", "stop"])
def test_b25_an_interrupt_at_any_line_of_the_loop_leaves_text_tokens_and_cache_in_step(
    stops: tuple[str, ...], N: int
) -> None:
    """B25: Ctrl-C in a program that does not ask for it lands anywhere. Between commit and count the text had words
    that the tokens lacked, or tokens of a stop that nobody had committed came from memory nobody had written.
    """
    model = toy_model()
    setting = Setting(ToyContext(model), model.vocab)
    plain = setting.answer(PROMPT, limits=Limits(max_tokens=8)).tokens
    if stops:
        stops = (spelled(setting, plain[2:5]),)
    trip, line = Trip(), 0
    while True:
        line += 1
        setting = Setting(ToyContext(model), model.vocab)
        drafter = Scripted(following([*PROMPT, *plain]))
        generation = setting.start(PROMPT, drafter=drafter, N=N, limits=Limits(max_tokens=8, stops=stops))
        shown: list[Piece] = []
        with contextlib.suppress(KeyboardInterrupt), trip.at_line(line):
            shown.extend(generation)
        if not trip.gone_off:
            break
        generation.conclude()  # as a stream does when it is closed: the interrupt may have hit the first one
        answer = generation.answer
        assert answer is not None
        assert answer.tokens == plain[: len(answer.tokens)]
        assert answer.text == spelled(setting, answer.tokens)
        assert answer.text.startswith("".join(piece.text for piece in shown))
        committed = [*PROMPT, *answer.tokens][:-1]
        held = setting.verifier.tokens.tolist()
        assert held == (committed if answer.tokens else committed[: len(held)])
    assert line > 100
