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
from localspec.engine.base import Cancelled, Context, Guesser, Head, Pass, Progress, Row

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

    def ask(self, context: Any) -> list[Row]:
        """Evaluate it. Returns copies of all rows; the context (or head) holds the text before again."""
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


@dataclass(frozen=True)
class Following:
    """The row of a head behind a text of the verifier and the tokens it has drafted since."""

    text: Ids
    drafted: tuple[int, ...]
    rows: int = 1

    def key(self, row: int) -> Key:
        return ("follow", self.text.tobytes(), self.drafted)

    def ask(self, context: Head) -> list[Row]:
        result = context.follow(self.text)
        for token in self.drafted:
            assert result is not None, "a head that had nothing to say was asked to go on"
            result = context.step(token)
        return [] if result is None else [np.array(result.logits(0))]


@dataclass(frozen=True)
class Branching:
    """The last of `sizes` layers that a head grew below a text."""

    text: Ids
    draft: Draft
    sizes: tuple[int, ...]

    @property
    def rows(self) -> int:
        return self.sizes[-1]

    def key(self, row: int) -> Key:
        node = len(self.draft) - self.rows + row
        path = self.draft.tokens[list(self.draft.path(node))]
        return ("branch", self.text.tobytes(), self.draft.parents.tobytes(), self.sizes, row, path.tobytes())

    def ask(self, context: Head) -> list[Row]:
        context.follow(self.text)
        rows: list[Row] = []
        at = 0
        for size in self.sizes:
            result = context.grow(self.draft.tokens[at : at + size], self.draft.parents[at : at + size])
            rows = [np.array(result.logits(row)) for row in range(size)]
            at += size
        return rows


@dataclass(frozen=True)
class Guessing:
    """What a head that guesses several places says behind a text of the verifier."""

    text: Ids
    rows: int

    def key(self, row: int) -> Key:
        return ("guess", self.text.tobytes(), row)

    def ask(self, context: Guesser) -> list[Row]:
        found = context.guess(self.text)
        assert found is not None, "the verifier's row is there, so a head has something to say"
        return [np.array(row) for row in found]


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


class Answering(Protocol):
    """What questions are put to: a context, a head."""

    @property
    def vocab_size(self) -> int:
        """Numbers in a row at most."""
        ...


class Remembering:
    """The rows of something that answers questions; counts what was asked and what was evaluated for it."""

    def __init__(self, asked: Answering, *, memory: int = MEMORY) -> None:
        self._answers = asked
        self._known: OrderedDict[Key, Row] = OrderedDict()
        self._room = max(1, memory // (4 * asked.vocab_size))
        self.vocab_size = asked.vocab_size
        self.asked = 0
        self.passes = 0
        self.rechecked = 0
        self.difference = 0.0

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
            again = question.ask(self._answers)[row]
            self.rechecked += 1
            other = again != found  # a head's rows hold -inf, which is no number to subtract
            self.difference = max(self.difference, float(np.abs(again[other] - found[other]).max(initial=0.0)))
        return found

    def _learn(self, question: Question) -> list[Row]:
        rows = question.ask(self._answers)
        self.passes += 1
        for at, row in enumerate(rows):
            row.setflags(write=False)
            self._known[question.key(at)] = row
        while len(self._known) > self._room:
            self._known.popitem(last=False)
        return rows

    def close(self) -> None:
        """What is below stays open: it belongs to whoever made it."""
        self._known.clear()


class RecordedHead(Remembering):
    """`engine.base.Head` over another one, whose verifier is brought in line when a row is really needed."""

    def __init__(self, head: Head, verifier: Context) -> None:
        super().__init__(_InLine(head, verifier))
        self._head = head
        self._text: Ids = NOTHING
        self._drafted: tuple[int, ...] = ()
        self._grown: tuple[Draft, tuple[int, ...]] = (Draft(NOTHING, NOTHING), ())

    @property
    def nodes(self) -> int:
        return self._head.nodes

    @property
    def leaves(self) -> int:
        return self._head.leaves

    def follow(self, tokens: Ids, *, logits: bool = True, cancelled: Cancelled | None = None) -> RecordedPass | None:
        self._text, self._drafted, self._grown = np.array(tokens), (), (Draft(NOTHING, NOTHING), ())
        return self._pass(Following(self._text, ())) if logits and len(tokens) > 1 else None

    def step(self, token: int) -> RecordedPass:
        self._drafted = (*self._drafted, token)
        return self._pass(Following(self._text, self._drafted))

    def grow(self, tokens: Ids, parents: Ids) -> RecordedPass:
        draft, sizes = self._grown
        draft = Draft(np.concatenate([draft.tokens, tokens]), np.concatenate([draft.parents, parents]))
        self._grown = (draft, (*sizes, len(tokens)))
        return self._pass(Branching(self._text, *self._grown))


class RecordedGuesser(Remembering):
    """`engine.base.Guesser` over another one, as `RecordedHead`."""

    def __init__(self, head: Guesser, verifier: Context) -> None:
        super().__init__(_GuesserInLine(head, verifier))
        self.heads, self.ids, self.tree = head.heads, head.ids, head.tree

    def guess(self, tokens: Ids) -> list[Row] | None:
        question = Guessing(np.array(tokens), self.heads)
        return [self._look_up(question, row) for row in range(self.heads)] if len(tokens) > 1 else None


class _GuesserInLine:
    """As `_InLine`."""

    def __init__(self, head: Guesser, verifier: Context) -> None:
        self._head = head
        self._verifier = verifier
        self.vocab_size = verifier.vocab_size

    def guess(self, tokens: Ids) -> Sequence[Row] | None:
        self._verifier.prefill(tokens[:-1], logits=False)
        return self._head.guess(tokens)


class _InLine:
    """A head whose verifier reads every text first, as the loop makes it do."""

    def __init__(self, head: Head, verifier: Context) -> None:
        self._head = head
        self._verifier = verifier
        self.vocab_size, self.leaves = head.vocab_size, head.leaves
        self.step, self.grow, self.close = head.step, head.grow, head.close

    @property
    def nodes(self) -> int:
        return self._head.nodes

    def follow(self, tokens: Ids, *, logits: bool = True, cancelled: Cancelled | None = None) -> Pass | None:
        self._verifier.prefill(tokens[:-1], logits=False)
        return self._head.follow(tokens, logits=logits, cancelled=cancelled)


class Recorded(Remembering):
    """`engine.base.Context` over another one."""

    def __init__(self, context: Context, *, memory: int = MEMORY) -> None:
        super().__init__(context, memory=memory)
        self._context = context
        self._text: Ids = NOTHING
        self._open: tuple[int | None, Draft, tuple[int, ...]] | None = None
        self.capacity = context.capacity
        self.draft_room = context.draft_room

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
