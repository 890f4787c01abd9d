"""Ctrl-C at any line of the engine, of a program that does not ask for it: the next text finds a cache that is whole.

The likeliest place is right behind llama.cpp's own work, before Python has taken note of it. There the tokens of a
prompt stayed in the cache and nobody knew: each later prompt of the pair ended with "invalid batch".
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from localspec.core.draft import Draft
from localspec.engine import abort, memory
from localspec.engine import context as context_module
from localspec.engine.context import LlamaContext
from tests.engine.kinds import KINDS, Kind
from tests.engine.reference import Reference
from tests.property.trip import Trip

FILES = (str(context_module.__file__), str(memory.__file__))
TEXT = [(7 * i) % 250 + 5 for i in range(48)]
NAMES = ("attention", "window", "recurrent", "hybrid-copies", "hybrid-snapshots")
CHOSEN = [kind for kind in KINDS if kind.name in NAMES]
DRAFT = Draft.chain([200, 201, 202])
TREE = Draft(np.array([200, 201, 202, 203], dtype=np.int32), np.array([-1, -1, 0, 1], dtype=np.int32))


def play(context: LlamaContext, draft: Draft) -> None:
    """A prompt, and a round of which one token is kept, as the loop plays it."""
    context.prefill(TEXT, logits=False, cancelled=lambda: False)
    before = context.length
    try:
        context.evaluate(9, draft)
        context.commit((0,))
    except BaseException:
        context.rewind(min(before, context.length))
        raise


@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize("kind", CHOSEN, ids=str)
def test_b25_after_an_interrupt_at_any_line_the_cache_is_the_text(
    context: LlamaContext, reference: Reference, kind: Kind, shape: str
) -> None:
    if shape == "tree" and not context.has_trees:
        assert context.leaves == 1
        return
    draft = TREE if shape == "tree" else DRAFT
    trip, line = Trip(files=FILES), 0
    others = [[5, 6, 7, 8], [*TEXT[:20], 99], [*TEXT, 9, 200, 33]]
    expected = [reference.rows(other)[0] for other in others]
    while True:
        line += 1
        context.rewind(0)
        with contextlib.suppress(KeyboardInterrupt), trip.at_line(line):
            play(context, draft)
        if not trip.gone_off:
            break
        held = context.tokens.tolist()
        assert held == [*TEXT, 9, 200][: len(held)]
        result = context.prefill(others[line % 3])
        assert result is not None
        assert np.abs(result.logits(0) - expected[line % 3]).max() < kind.tolerance
    assert line > 60


def test_b25_an_interrupt_while_the_watch_is_set_or_taken_away_is_harmless(
    plain: LlamaContext, plain_reference: Reference
) -> None:
    """llama.cpp once went on to call a watch that Python had thrown away."""
    trip, line, text = Trip(files=(str(abort.__file__),)), 0, [*TEXT[:20], 99]
    expected = plain_reference.rows(text)[0]
    while True:
        line += 1 if line < 20 else 37  # most lines are questions
        plain.rewind(0)
        with contextlib.suppress(KeyboardInterrupt), trip.at_line(line):
            long_prefill(plain, lambda: False)
        gc.collect()
        result = plain.prefill(text)
        assert result is not None
        assert np.abs(result.logits(0) - expected).max() < 0.02
        if not trip.gone_off:
            break
    assert line > 100


def long_prefill(context: LlamaContext, cancelled: Callable[[], bool]) -> None:
    context.prefill(TEXT * 4, logits=False, cancelled=cancelled)


def test_b25_ctrl_c_while_llama_cpp_asks_is_not_lost(plain: LlamaContext) -> None:
    """An exception cannot pass through C: ctypes printed it and the evaluation went on to its end."""
    asked, before = 0, sys.unraisablehook

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        if asked == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return False

    with pytest.raises(KeyboardInterrupt):
        long_prefill(plain, cancelled)
    assert plain.length == 0
    assert sys.unraisablehook is before
    assert plain.prefill([5, 6, 7]) is not None


def test_b25_ctrl_c_before_the_question_is_read_is_not_lost(plain: LlamaContext) -> None:
    """The same, one moment earlier: as the callback is entered, outside of any `try`."""
    entered = 0

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal entered
        if frame.f_code.co_name == "_ask":
            entered += 1
            if entered == 5:
                raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        with pytest.raises(KeyboardInterrupt):
            long_prefill(plain, lambda: False)
    finally:
        sys.settrace(before)
    assert plain.length == 0
    assert plain.prefill([5, 6, 7]) is not None


def test_an_error_of_the_question_is_raised(plain: LlamaContext) -> None:
    """Whatever a program's own `cancelled` does wrong, the program hears of it."""
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return bool(1 // (5 - asked))

    with pytest.raises(ZeroDivisionError):
        long_prefill(plain, cancelled)
    assert plain.prefill([5, 6, 7]) is not None


def test_b25_an_exit_that_ctypes_cannot_pass_on_ends_the_evaluation(plain: LlamaContext) -> None:
    """What falls between C and the first line of the question reaches Python's hook only."""

    def cancelled() -> bool:
        sys.unraisablehook(SimpleNamespace(exc_value=SystemExit(3)))  # type: ignore[arg-type]
        return False

    with pytest.raises(SystemExit) as caught:
        long_prefill(plain, cancelled)
    assert caught.value.code == 3
    assert plain.length == 0
    assert plain.prefill([5, 6, 7]) is not None


def test_errors_of_others_go_where_they_always_went(plain: LlamaContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finaliser that fails during an evaluation is none of our business, and ends nothing."""
    heard: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: heard.append(found.exc_value))

    class Failing:
        def __del__(self) -> None:
            raise ValueError("a finaliser")

    once = [Failing()]

    def cancelled() -> bool:
        once.clear()
        return False

    long_prefill(plain, cancelled)
    assert [str(error) for error in heard] == ["a finaliser"]
    assert plain.length == len(TEXT) * 4


@pytest.mark.parametrize("kind", CHOSEN, ids=str)
def test_b25_an_interrupt_right_behind_llama_cpps_work_leaves_the_text_as_it_was(
    context: LlamaContext, reference: Reference, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokens are in the cache and Python has not taken note of them."""
    context.prefill(TEXT[:20])
    decode = context._decode

    def interrupted(batch: Any) -> int:
        decode(batch)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(context, "_decode", interrupted)
        with pytest.raises(KeyboardInterrupt):
            context.prefill(TEXT)
    assert context.tokens.tolist() == TEXT[: context.length]
    assert context.length in (0, 20), "what a recurrent memory cannot go back to is read again, by who needs it"
    result = context.prefill(TEXT)
    assert result is not None
    assert np.abs(result.logits(0) - reference.rows(TEXT)[0]).max() < kind.tolerance


@pytest.mark.parametrize("kind", CHOSEN, ids=str)
def test_b25_an_interrupt_while_forgetting_empties_the_cache(
    context: LlamaContext, reference: Reference, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows then what the cache holds. The rewind that follows reads nothing again: someone may be waiting."""
    context.prefill(TEXT)
    context.evaluate(9, DRAFT)

    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(context.memory, "retreat", interrupted)
        with pytest.raises(KeyboardInterrupt):
            context.rewind(len(TEXT))
    before = context.evaluated
    context.rewind(len(TEXT))
    assert (context.length, context.evaluated) == (0, before)
    result = context.prefill(TEXT)
    assert result is not None
    assert np.abs(result.logits(0) - reference.rows(TEXT)[0]).max() < kind.tolerance
