"""One answer at a time: two streams, abandoned streams, threads, and what is left when a pair is closed."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from localspec.errors import BusyError, UsageError
from localspec.loop.answer import Answer
from localspec.services.runtime import Runtime
from localspec.services.settings import AnswerSettings
from localspec.services.stream import Stream
from tests import zoo
from tests.services import tiny
from tests.services.tiny import GREEDY, PROMPT

OTHER = zoo.byte_ids("something else entirely, and then something else")
LONG = AnswerSettings(GREEDY, max_tokens=60)


@pytest.fixture
def pair() -> Iterator[Runtime]:
    with tiny.open_pair(drafter="model", N=3) as runtime:
        yield runtime


def stream(pair: Runtime, prompt: list[int] | None = None, settings: AnswerSettings = LONG) -> Stream:
    return pair.answer(prompt or PROMPT, settings, ignore_end=True)


def test_a_second_stream_is_refused_and_the_first_goes_on(pair: Runtime) -> None:
    """B89: interleaved streams shared one cache, and both texts were nonsense."""
    expected = tiny.answer(pair, max_tokens=60)
    first, second = stream(pair), stream(pair, OTHER)
    pieces = [next(first).text]
    with pytest.raises(BusyError) as caught:
        next(second)
    assert "close it" in caught.value.hint
    pieces += [piece.text for piece in first]
    assert "".join(pieces) == expected.text
    assert first.answer.tokens == expected.tokens


def test_closing_a_stream_that_never_ran_leaves_the_running_one_alone(pair: Runtime) -> None:
    """B89: it cut the cache, the other's, back to its own prompt; the running text went wrong without an error."""
    expected = tiny.answer(pair, max_tokens=60)
    first, second = stream(pair), stream(pair, OTHER[:3])
    next(first)
    second.close()
    assert (second.answer.text, second.answer.finish_reason) == ("", "interrupted")
    with pytest.raises(BusyError), stream(pair, OTHER[:3]) as third:
        next(third)
    list(first)
    assert first.answer.tokens == expected.tokens


def test_a_stream_may_be_made_early_and_read_later(pair: Runtime) -> None:
    expected = tiny.answer(pair, max_tokens=60)
    early = stream(pair)
    tiny.answer(pair, OTHER)
    list(early)
    assert early.answer.tokens == expected.tokens


def test_an_abandoned_stream_frees_its_pair(pair: Runtime) -> None:
    """A loop that is left early, without close: the next answer must not have to wait for the garbage collector."""
    gc.disable()
    try:
        for _piece in stream(pair):
            break
        for _piece in stream(pair, OTHER):
            break
        assert tiny.answer(pair).stats.completion_tokens == 40
    finally:
        gc.enable()


def test_leaving_early_keeps_the_cache_equal_to_the_text(pair: Runtime) -> None:
    """B25."""
    with stream(pair) as reading:
        for _ in range(5):
            next(reading)
    answer = reading.answer
    assert answer.finish_reason == "interrupted"
    assert answer.tokens
    whole = [*PROMPT, *answer.tokens]
    assert list(pair.cached) == whole[:-1]
    assert tiny.answer(pair, [*whole, *OTHER]).stats.prefill_tokens == len(OTHER)


def test_an_answer_is_there_only_when_it_is_finished(pair: Runtime) -> None:
    reading = stream(pair)
    next(reading)
    with pytest.raises(UsageError, match="not finished"):
        _ = reading.answer
    reading.close()
    reading.close()
    assert reading.answer.finish_reason == "interrupted"
    assert list(reading) == []


def test_nothing_is_changed_in_the_middle_of_an_answer(pair: Runtime) -> None:
    """The drafter in use, its context and the caches belong to the answer that is running."""
    expected = tiny.answer(pair, max_tokens=60)
    reading = stream(pair)
    next(reading)
    for change in (lambda: pair.respeculate("ngram", 2), pair.forget, lambda: pair.time_pass(2)):
        with pytest.raises(BusyError):
            change()  # type: ignore[no-untyped-call]
    list(reading)
    assert reading.answer.tokens == expected.tokens
    pair.respeculate("ngram", 2)


def test_closing_the_pair_ends_its_answer(pair: Runtime) -> None:
    """B89: use after close crashed the process, sometimes much later."""
    reading, waiting = stream(pair), stream(pair)
    next(reading)
    pair.close()
    pair.close()
    assert list(reading) == []
    assert reading.answer.finish_reason == "interrupted"
    with pytest.raises(UsageError, match="closed"):
        waiting.__next__()


def test_a_closed_pair_says_so(pair: Runtime) -> None:
    """B89."""
    vocab, context = pair.vocab, pair.verifier
    pair.close()
    uses: list[Any] = [
        lambda: pair.answer(PROMPT, LONG),
        lambda: pair.respeculate("ngram", 2),
        lambda: pair.time_pass(1),
        pair.forget,
        lambda: pair.vocab,
        lambda: pair.verifier,
        lambda: pair.cached,
        lambda: pair.template,
        lambda: pair.bos,
        lambda: pair.context_size,
        lambda: pair.placement,
        pair.settings,
    ]
    for use in uses:
        with pytest.raises(UsageError, match="closed"):
            use()
    with pytest.raises(Exception, match="closed"):
        vocab.tokenize("a", add_special=False, parse_special=False)
    with pytest.raises(Exception, match="closed"):
        context.prefill([1, 2, 3])


def test_threads_take_turns(pair: Runtime) -> None:
    """B89: eight threads, cancelled at random: each gets its whole text, the beginning of it, or a clear error."""
    prompts = [PROMPT, OTHER, PROMPT[:9], OTHER[:7]]
    expected = [tiny.answer(pair, prompt, max_tokens=30).tokens for prompt in prompts]
    outcomes: list[tuple[int, Answer] | BaseException] = []
    counts = {"whole": 0, "part": 0, "busy": 0}

    def ask(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(12):
            which = int(rng.integers(len(prompts)))
            patience = int(rng.integers(1, 80))
            try:
                with stream(pair, prompts[which], AnswerSettings(GREEDY, max_tokens=30)) as reading:
                    for read, _piece in enumerate(reading):
                        if read == patience:
                            break
                outcomes.append((which, reading.answer))
            except BusyError as error:
                outcomes.append(error)
                time.sleep(0.001)
            except BaseException as error:  # noqa: BLE001  looked at below, in the thread that can fail the test
                outcomes.append(error)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(outcomes) == 96
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            assert isinstance(outcome, BusyError), outcome
            counts["busy"] += 1
        else:
            which, answer = outcome
            assert answer.tokens == expected[which][: len(answer.tokens)]
            counts["whole" if answer.finish_reason == "length" else "part"] += 1
    assert all(counts.values()), counts


def in_the_background(work: Any) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_closing_a_stream_from_another_thread_ends_it(pair: Runtime) -> None:
    """A client goes away: the thread that is decoding for it stops at its next round."""
    reading = pair.answer(PROMPT, AnswerSettings(GREEDY), ignore_end=True)
    begun = threading.Event()
    errors: list[BaseException] = []

    def read() -> None:
        try:
            for _piece in reading:
                begun.set()
        except BaseException as error:  # noqa: BLE001  looked at below
            errors.append(error)

    thread = in_the_background(read)
    assert begun.wait(30)
    reading.close()
    thread.join(30)
    assert not thread.is_alive()
    assert errors == []
    assert reading.answer.finish_reason in ("interrupted", "context")
    assert tiny.answer(pair).stats.completion_tokens == 40


def test_closing_the_pair_while_another_thread_reads(pair: Runtime) -> None:
    """B89: the context was freed under the evaluation that was running in it."""
    for _ in range(5):
        runtime = tiny.open_pair(drafter="model", N=3)
        begun = threading.Event()
        errors: list[BaseException] = []

        def read(
            runtime: Runtime = runtime, begun: threading.Event = begun, errors: list[BaseException] = errors
        ) -> None:
            try:
                for _piece in runtime.answer(PROMPT, AnswerSettings(GREEDY), ignore_end=True):
                    begun.set()
            except BaseException as error:  # noqa: BLE001  looked at below
                errors.append(error)

        thread = in_the_background(read)
        assert begun.wait(30)
        runtime.close()
        thread.join(30)
        assert not thread.is_alive()
        assert errors == []


def test_one_stream_is_read_by_one_thread(pair: Runtime) -> None:
    """Python's own complaint, "generator already executing", names nothing that the caller knows."""
    inside, leave = threading.Event(), threading.Event()

    def wait() -> bool:
        inside.set()
        return leave.wait(30) and False

    reading = pair.answer(PROMPT, LONG, cancelled=wait)
    thread = in_the_background(lambda: list(reading))
    assert inside.wait(30)
    with pytest.raises(BusyError, match="another thread"):
        next(reading)
    leave.set()
    thread.join(30)
    assert reading.answer.finish_reason == "length"
