"""One answer at a time on a pair: whose turn it is, and the stream that an answer is read from.

A context belongs to one caller; a second one gets an error instead of a share of the cache. Knows neither models nor
drafters.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

from localspec.errors import BusyError, UsageError
from localspec.loop.answer import Answer, Piece
from localspec.loop.generation import Generation


class Turns:
    """Who may use a pair now. Safe to ask from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Have the pair for oneself. Raises `BusyError` while someone else has it, `UsageError` once it is closed."""
        if not self._lock.acquire(blocking=False):
            self.check_open()
            raise BusyError(
                "another answer of this pair is still running",
                hint="Read that stream to its end or close it first; a pair answers one prompt at a time.",
            )
        try:
            self.check_open()
            yield
        finally:
            self._lock.release()

    def check_open(self) -> None:
        """Raises `UsageError` once the pair is closed."""
        if self._closed:
            raise UsageError("this pair has been closed", hint="Load it again.")

    @contextmanager
    def last(self, hurry: Callable[[], None]) -> Iterator[None]:
        """Let nobody in any more, `hurry` until who is in has left, then have the pair to take it apart."""
        self._closed = True
        hurry()
        while not self._lock.acquire(timeout=0.02):
            hurry()
        try:
            yield
        finally:
            self._lock.release()


class Stream:
    """An answer in the making: iterate for pieces, `close()` to give up; `answer` holds the result afterwards.

    Leaving the loop early, closing or an exception keeps the cache equal to the committed text and still sets `answer`
    (finish_reason "interrupted").
    """

    def __init__(
        self,
        generation: Generation,
        turns: Turns,
        stop: threading.Event,
        done: Callable[[], None] = lambda: None,
        *,
        start: Callable[[], None] = lambda: None,
    ) -> None:
        """`stop` is what the generation looks at to see whether it has been cancelled.

        `start` is called when it has its turn, `done` at its end.
        """
        self._generation = generation
        self._stop = stop
        # Not a method: a generator that held this object would keep an abandoned stream, and the pair's turn, alive.
        self._pieces = _pieces(generation, turns, start, done)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Piece:
        try:
            return next(self._pieces)
        except ValueError:
            if not self._is_running:
                raise
            raise BusyError("another thread is reading this stream", hint="Read a stream from one thread.") from None

    @property
    def answer(self) -> Answer:
        """The result. Raises `UsageError` while the stream is still running."""
        if self._generation.answer is None:
            raise UsageError("the answer is not finished yet", hint="Iterate over the stream first, or close it.")
        return self._generation.answer

    @property
    def has_begun(self) -> bool:
        """True from the first piece that was asked for."""
        return inspect.getgeneratorstate(self._pieces) != inspect.GEN_CREATED

    @property
    def _is_running(self) -> bool:
        return inspect.getgeneratorstate(self._pieces) == inspect.GEN_RUNNING

    def close(self) -> None:
        """Stop now; a stream that never started has an empty answer.

        While another thread waits for a piece, that thread's round is the last: its loop ends and `answer` follows.
        """
        self._stop.set()
        try:
            self._pieces.close()
        except ValueError:
            if not self._is_running:
                raise
            return
        self._generation.conclude()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _pieces(
    generation: Generation, turns: Turns, start: Callable[[], None], done: Callable[[], None]
) -> Generator[Piece, None, None]:
    with turns.taken():
        start()
        try:
            yield from generation
        finally:
            done()
