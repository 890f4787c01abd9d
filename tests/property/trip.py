"""Interrupts at any point of a round: a tripwire at the steps of verifier, drafter and rule, or at a line of code.

Wraps contexts, passes, vocabularies and drafters; knows nothing of what is said.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import localspec.loop
from localspec.core.draft import Draft, Ids, Verdict
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Drafter
from localspec.engine.base import Cancelled, Context, Pass, Row, Vocab

STEPS = ("prefill", "begin", "propose", "evaluate", "row", "piece", "observe", "commit")
LOOP = str(Path(str(localspec.loop.__file__)).parent)


@dataclass
class Trip:
    """Raises at the `left`-th time that `step` is reached; `after`: once the step has done its work.

    files  beginnings of the paths of those whose lines count
    """

    step: str = ""
    left: int = 0
    after: bool = False
    gone_off: bool = False
    files: tuple[str, ...] = (LOOP,)

    def set(self, step: str, at: int, *, after: bool) -> None:
        self.step, self.left, self.after, self.gone_off = step, at, after, False

    def clear(self) -> None:
        self.set("", 0, after=False)

    def around(self, step: str, work: Callable[[], Any]) -> Any:
        """What `work` returns, unless this is the moment."""
        if step != self.step:
            return work()
        self.left -= 1
        if self.left != 0:
            return work()
        if self.after:
            work()
        self.gone_off = True
        raise KeyboardInterrupt

    @contextmanager
    def at_line(self, number: int) -> Iterator[None]:
        """Interrupts at the `number`-th line that runs in `files`, as Ctrl-C may in any program."""
        self.clear()
        left = number

        def watch(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.startswith(self.files):
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    self.gone_off = True
                    raise KeyboardInterrupt
            return watch

        before = sys.gettrace()
        sys.settrace(watch)
        try:
            yield
        finally:
            sys.settrace(before)


class TrippedPass:
    def __init__(self, trip: Trip, inner: Pass) -> None:
        self._trip, self._inner, self.rows = trip, inner, inner.rows

    def logits(self, row: int) -> Row:
        found: Row = self._trip.around("row", lambda: self._inner.logits(row))
        return found


class TrippedContext:
    """A context with wires at its steps; everything else is the context's own."""

    def __init__(self, trip: Trip, inner: Context) -> None:
        self._trip, self.inner = trip, inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def prefill(self, tokens: Sequence[int] | Ids, **keys: Any) -> Pass | None:
        found: Pass | None = self._trip.around("prefill", lambda: self.inner.prefill(tokens, **keys))
        return found

    def evaluate(self, pending: int, draft: Draft) -> Pass:
        inner = self._trip.around("evaluate", lambda: self.inner.evaluate(pending, draft))
        return TrippedPass(self._trip, inner)

    def commit(self, path: Sequence[int]) -> None:
        self._trip.around("commit", lambda: self.inner.commit(path))


class TrippedVocab:
    def __init__(self, trip: Trip, inner: Vocab) -> None:
        self._trip, self._inner = trip, inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def piece(self, token: int, *, special: bool = False) -> bytes:
        found: bytes = self._trip.around("piece", lambda: self._inner.piece(token, special=special))
        return found


class TrippedDrafter:
    """A drafter with wires, that also keeps what was proposed."""

    def __init__(self, trip: Trip, inner: Drafter) -> None:
        self._trip, self._inner, self.name = trip, inner, inner.name
        self.proposed: list[tuple[list[int], Draft]] = []

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        self._trip.around("begin", lambda: self._inner.begin(tokens, sampling=sampling, rule=rule, cancelled=cancelled))

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        draft: Draft = self._trip.around("propose", lambda: self._inner.propose(tokens, budget))
        self.proposed.append((tokens.tolist(), draft))
        return draft

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        self._trip.around("observe", lambda: self._inner.observe(result, verdict))

    def close(self) -> None:
        self._inner.close()
