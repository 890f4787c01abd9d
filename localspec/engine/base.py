"""What the rest of localspec sees of a model: vocabulary, context, pass. Protocols only.

Sequence ids, removal ranges, batches and every llama.cpp name stay behind these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from localspec.core.draft import Draft, Ids

Row = npt.NDArray[np.float32]
Progress = Callable[[int, int], None]
"""(tokens done, tokens in all)."""
Cancelled = Callable[[], bool]


@dataclass(frozen=True)
class FeatureSpec:
    """Which hidden rows of a model to keep: side by side in one row, in this order.

    layers  inputs of these layers, 0 .. the number of layers, which stands for what leaves the last one (before the
            last norm); where an architecture does not give them the evaluation is watched, which is slower
    final   what the output layer reads (after the last norm); every model gives it, but it costs the output layer for
            every token that is captured
    window  rows of that many last positions are enough; None: of the whole text
    """

    layers: tuple[int, ...] = ()
    final: bool = False
    window: int | None = None


class Vocab(Protocol):
    """Tokens as numbers and as bytes."""

    size: int
    """Rows of the output layer; ids are 0 .. size - 1."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Ids of `text`; `add_special` adds BOS/EOS if the model wants them, `parse_special` reads control tokens."""
        ...

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes a token stands for; control tokens are empty unless `special`."""
        ...

    def is_end(self, token: int) -> bool:
        """True for every end-of-generation token."""
        ...


class Pass(Protocol):
    """One evaluation. Rows are views that live until the next evaluation of the same context."""

    @property
    def rows(self) -> int:
        """The pending token's row and one for each node."""
        ...

    def logits(self, row: int) -> Row:
        """(V,) float32 view, not to be written to: row 0 follows the pending token, row i + 1 follows node i."""
        ...


class Context(Protocol):
    """A model's cache of one text. `evaluate` then exactly one `commit` (or `rewind`) is a transaction."""

    @property
    def vocab_size(self) -> int:
        """Rows of the output layer."""
        ...

    @property
    def capacity(self) -> int:
        """Tokens the cache can hold."""
        ...

    @property
    def draft_room(self) -> int:
        """Most nodes of a draft."""
        ...

    @property
    def leaves(self) -> int:
        """Most leaf paths of a draft; 1 when only chains are possible."""
        ...

    @property
    def busy_s(self) -> float:
        """Seconds spent inside llama.cpp so far."""
        ...

    @property
    def evaluated(self) -> int:
        """Tokens evaluated so far."""
        ...

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        ...

    @property
    def tokens(self) -> Ids:
        """(length,) int32 view: the text the cache holds."""
        ...

    def prefill(
        self,
        tokens: Sequence[int] | Ids,
        *,
        logits: bool = True,
        progress: Progress | None = None,
        cancelled: Cancelled | None = None,
    ) -> Pass | None:
        """Make the cache hold exactly `tokens`, evaluating only what follows the common prefix.

        Returns a pass whose row 0 follows the last token (`logits=True`), else None. When `cancelled` says so it
        returns None early and keeps what was evaluated: compare `length`.
        """
        ...

    def evaluate(self, pending: int, draft: Draft) -> Pass:
        """Evaluate the pending token and the draft below it; the cache is in between states until `commit`."""
        ...

    def grow(self, tokens: Ids, parents: Ids) -> Pass:
        """Evaluate more nodes of a tree below the last token of the cache, one layer after the other.

        `parents` count through the nodes of all `grow` calls since the last `commit` or `rewind`, -1 is that last
        token. Row i follows the i-th of the new nodes. For drafting a tree; `commit` then keeps one path of it.
        """
        ...

    def commit(self, path: Sequence[int]) -> None:
        """Keep the pending token and these accepted nodes, forget the rest of what was evaluated."""
        ...

    def rewind(self, length: int) -> None:
        """Forget all tokens from `length` on; also ends an open transaction."""
        ...

    def close(self) -> None:
        """Free the native memory; closing twice is fine."""
        ...


class Head(Protocol):
    """Drafts from the hidden rows of a verifier, which it follows by itself: it is told tokens only."""

    @property
    def vocab_size(self) -> int:
        """Numbers in a row of logits."""
        ...

    @property
    def nodes(self) -> int:
        """Most nodes of a tree below the text it follows now."""
        ...

    @property
    def leaves(self) -> int:
        """Most leaf paths of a tree; 1 when only chains are possible."""
        ...

    def follow(self, tokens: Ids, *, logits: bool = True, cancelled: Cancelled | None = None) -> Pass | None:
        """Come in line with `tokens`, of which the verifier's cache holds all but the last.

        Returns a pass whose row 0 follows the last token; None when `logits` is False, when it was cancelled, or when
        there is nothing to go on from: a text of one token, or rows that were not captured.
        """
        ...

    def step(self, token: int) -> Pass:
        """Go on with `token`, drawn from the last pass of `follow` or `step`; its row is the head's own guess."""
        ...

    def grow(self, tokens: Ids, parents: Ids) -> Pass:
        """As `Context.grow`, below the last token of the text that was followed."""
        ...

    def close(self) -> None:
        """Free the native memory; closing twice is fine."""
        ...


class Guesser(Protocol):
    """A head that guesses several places ahead from the verifier's last hidden row, each on its own (Medusa)."""

    @property
    def heads(self) -> int:
        """How many places."""
        ...

    @property
    def ids(self) -> Ids | None:
        """The verifier's id of each number in a row, None: the same."""
        ...

    @property
    def tree(self) -> tuple[tuple[int, ...], ...]:
        """Places of a tree that its makers found good, best first; () when they name none."""
        ...

    def guess(self, tokens: Ids) -> Sequence[Row] | None:
        """What follows `tokens`, of which the verifier's cache holds all but the last: logits of each place.

        None when the verifier's row was not captured or there is none.
        """
        ...

    def close(self) -> None:
        """Free the native memory; closing twice is fine."""
        ...
