"""A context that remembers the rows it has computed, so that thousands of samples of one prompt cost few passes.

The loop, the drafter and the rule on top of it are the real ones and do not notice: they prefill, evaluate, commit and
rewind. A row is a function of the text that leads to it, of its place in the batch and of the batch's shape: masks hide
from it what else a draft holds. So a row that was computed once in that text, place and shape is given again, and a
pass of which no unknown row is asked for is not made at all. Every `RECHECK`th row that is given again is computed
anew and compared; the largest difference is kept. Knows no law and no rule.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from localspec.core.draft import Draft, Ids
from localspec.engine.base import Cancelled, Context, Pass, Progress, Row

RECHECK = 97
MEMORY = 512 * 2**20
"""Bytes of rows that are kept; those not asked for the longest go first."""

Key = tuple[Any, ...]
NOTHING: Ids = np.empty(0, dtype=np.int32)


class Question(Protocol):
    """An evaluation that may turn out not to be needed."""

    @property
    def rows(self) -> int: ...

    def key(self, row: int) -> Key:
        """What determines a row."""
        ...

    def ask(self, context: Context) -> list[Row]:
        """Evaluate it. Returns copies of all rows; the context holds the text before again."""
        ...


@dataclass(frozen=True)
class Reading:
    """The row behind a text that is read from its start."""

    text: Ids
    rows: int = 1

    def key(self, row: int) -> Key:
        return ("read", self.text.tobytes())

    def ask(self, context: Context) -> list[Row]:
        result = context.prefill(self.text)
        assert result is not None
        return [np.array(result.logits(0))]


@dataclass(frozen=True)
class Checking:
    """A pass over a pending token and the draft below it."""

    text: Ids
    pending: int
    draft: Draft

    @property
    def rows(self) -> int:
        return 1 + len(self.draft)

    def key(self, row: int) -> Key:
        path = self.draft.tokens[list(self.draft.path(row - 1))]
        return ("check", self.text.tobytes(), self.pending, self.draft.parents.tobytes(), row, path.tobytes())

    def ask(self, context: Context) -> list[Row]:
        context.prefill(self.text, logits=False)
        result = context.evaluate(self.pending, self.draft)
        rows = [np.array(result.logits(row)) for row in range(self.rows)]
        context.rewind(len(self.text))
        return rows


@dataclass(frozen=True)
class Growing:
    """The last of `sizes` layers of a draft that is grown below a text."""

    text: Ids
    draft: Draft
    sizes: tuple[int, ...]

    @property
    def rows(self) -> int:
        return self.sizes[-1]

    def key(self, row: int) -> Key:
        node = len(self.draft) - self.rows + row
        path = self.draft.tokens[list(self.draft.path(node))]
        return ("grow", self.text.tobytes(), self.draft.parents.tobytes(), self.sizes, row, path.tobytes())

    def ask(self, context: Context) -> list[Row]:
        context.prefill(self.text, logits=False)
        result: Pass | None = None
        at = 0
        for size in self.sizes:
            result = context.grow(self.draft.tokens[at : at + size], self.draft.parents[at : at + size])
            at += size
        assert result is not None
        rows = [np.array(result.logits(row)) for row in range(self.rows)]
        context.rewind(len(self.text))
        return rows


class RecordedPass:
    """Rows of a pass that is made when a row is asked for that nobody knows yet."""

    def __init__(self, question: Question, look_up: Callable[[Question, int], Row]) -> None:
        self.rows = question.rows
        self._question = question
        self._look_up = look_up

    def logits(self, row: int) -> Row:
        if not 0 <= row < self.rows:
            raise IndexError(f"row {row} of {self.rows}")
        return self._look_up(self._question, row)


class Recorded:
    """`engine.base.Context` over another one."""

    def __init__(self, context: Context, *, memory: int = MEMORY) -> None:
        self._context = context
        self._text: Ids = NOTHING
        self._open: tuple[int | None, Draft, tuple[int, ...]] | None = None
        self._known: OrderedDict[Key, Row] = OrderedDict()
        self._room = max(1, memory // (4 * context.vocab_size))
        self.vocab_size = context.vocab_size
        self.capacity = context.capacity
        self.draft_room = context.draft_room
        self.asked = 0
        self.passes = 0
        self.rechecked = 0
        self.difference = 0.0

    @property
    def leaves(self) -> int:
        return self._context.leaves

    @property
    def busy_s(self) -> float:
        return self._context.busy_s

    @property
    def evaluated(self) -> int:
        return self._context.evaluated

    @property
    def length(self) -> int:
        return len(self._text)

    @property
    def tokens(self) -> Ids:
        return self._text

    def prefill(
        self,
        tokens: Sequence[int] | Ids,
        *,
        logits: bool = True,
        progress: Progress | None = None,
        cancelled: Cancelled | None = None,
    ) -> RecordedPass | None:
        self._open = None
        self._text = np.array(tokens, dtype=np.int32)
        return self._pass(Reading(self._text)) if logits else None

    def evaluate(self, pending: int, draft: Draft) -> RecordedPass:
        assert self._open is None, "evaluate before the last one was committed"
        self._open = (pending, draft, ())
        return self._pass(Checking(self._text, pending, draft))

    def grow(self, tokens: Ids, parents: Ids) -> RecordedPass:
        _, draft, sizes = self._open or (None, Draft(NOTHING, NOTHING), ())
        draft = Draft(np.concatenate([draft.tokens, tokens]), np.concatenate([draft.parents, parents]))
        sizes = (*sizes, len(tokens))
        self._open = (None, draft, sizes)
        return self._pass(Growing(self._text, draft, sizes))

    def commit(self, path: Sequence[int]) -> None:
        assert self._open is not None, "commit without an evaluate"
        pending, draft, _ = self._open
        self._open = None
        roots = [] if pending is None else [pending]
        self._text = np.concatenate([self._text, np.array([*roots, *draft.tokens[list(path)]], dtype=np.int32)])

    def rewind(self, length: int) -> None:
        self._open = None
        self._text = self._text[:length]

    def close(self) -> None:
        """The context below stays open: it belongs to whoever made it."""
        self._known.clear()

    def _pass(self, question: Question) -> RecordedPass:
        return RecordedPass(question, self._look_up)

    def _look_up(self, question: Question, row: int) -> Row:
        self.asked += 1
        key = question.key(row)
        found = self._known.get(key)
        if found is None:
            return self._learn(question)[row]
        self._known.move_to_end(key)
        if self.asked % RECHECK == 0:
            again = question.ask(self._context)[row]
            self.rechecked += 1
            self.difference = max(self.difference, float(np.abs(again - found).max()))
        return found

    def _learn(self, question: Question) -> list[Row]:
        rows = question.ask(self._context)
        self.passes += 1
        for at, row in enumerate(rows):
            row.setflags(write=False)
            self._known[question.key(at)] = row
        while len(self._known) > self._room:
            self._known.popitem(last=False)
        return rows
