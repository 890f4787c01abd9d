"""A toy model behind the same protocols as llama.cpp: its law is a seeded function of the last two tokens.

It needs no weights and no native code, keeps to the rules of a real context (transactions, capacity, rows that expire)
and is what the loop, the drafters and the theory are tested on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from localspec.core.draft import EMPTY, Draft, Ids
from localspec.engine.base import Cancelled, Progress, Row
from localspec.errors import ContextFullError, DecodeError, LocalspecError

END = 0
"""The toy vocabulary's end-of-generation token."""


class ToyVocab:
    """`size` tokens: 0 ends the text, the others stand for one byte each, from 'a' on."""

    def __init__(self, size: int) -> None:
        self.size = size

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return [min(byte - 96, self.size - 1) if byte > 96 else 1 for byte in text.encode()]

    def piece(self, token: int, *, special: bool = False) -> bytes:
        if token == END:
            return b"<end>" if special else b""
        return bytes([(96 + token - 1) % 128 + 1]) if token < 31 else b"?"

    def is_end(self, token: int) -> bool:
        return token == END


class ToyModel:
    """Logits by seed: (V,) float32 per context of two tokens.

    `sharpness` scales them; `end_bias` is added to the end token's; `blur` mixes in another seed's logits, so that a
    second model with the same seed and some blur is a good but imperfect draft.
    """

    def __init__(
        self, size: int = 27, *, seed: int = 0, sharpness: float = 2.0, end_bias: float = -8.0, blur: float = 0.0
    ) -> None:
        self.vocab = ToyVocab(size)
        self.size = size
        self.seed = seed
        self.sharpness = sharpness
        self.end_bias = end_bias
        self.blur = blur
        self._rows: dict[tuple[int, int], Row] = {}

    def row(self, before: int, last: int) -> Row:
        """Logits after the tokens `before`, `last`."""
        key = (before, last)
        if key not in self._rows:
            row = self._draw(self.seed, before, last)
            if self.blur:
                row = (1 - self.blur) * row + self.blur * self._draw(self.seed + 1_000_003, before, last)
            row[END] += self.end_bias
            self._rows[key] = row.astype(np.float32)
        return self._rows[key]

    def _draw(self, seed: int, before: int, last: int) -> Row:
        rng = np.random.default_rng([seed, before, last])
        return (self.sharpness * rng.standard_normal(self.size)).astype(np.float32)


class ToyPass:
    """Rows of one toy evaluation."""

    def __init__(self, rows: Sequence[Row], is_fresh: Callable[[], bool]) -> None:
        self._rows = rows
        self._is_fresh = is_fresh
        self.rows = len(rows)

    def logits(self, row: int) -> Row:
        assert self._is_fresh(), "a row was read after the next evaluation"
        return self._rows[row]


class ToyContext:
    """`engine.base.Context` over a toy model."""

    def __init__(self, model: ToyModel, *, capacity: int = 512, draft_room: int = 32, leaves: int = 32) -> None:
        self.model = model
        self.vocab_size = model.size
        self.capacity = capacity
        self.draft_room = draft_room
        self.leaves = leaves
        self.busy_s = 0.0
        self.evaluated = 0
        self._tokens: list[int] = []
        self._open: tuple[list[int], Draft] | None = None
        self._ticket = 0

    @property
    def length(self) -> int:
        return len(self._tokens)

    @property
    def tokens(self) -> Ids:
        return np.array(self._tokens, dtype=np.int32)

    def prefill(
        self,
        tokens: Sequence[int] | Ids,
        *,
        logits: bool = True,
        progress: Progress | None = None,
        cancelled: Cancelled | None = None,
    ) -> ToyPass | None:
        wanted = np.asarray(tokens, dtype=np.int32).tolist()
        if len(wanted) > self.capacity:
            raise ContextFullError(f"{len(wanted)} tokens do not fit a context of {self.capacity}")
        keep = 0
        while keep < min(len(wanted), len(self._tokens)) and wanted[keep] == self._tokens[keep]:
            keep += 1
        if logits and keep == len(wanted):
            keep -= 1  # as a real context, which has to evaluate the last token for its row
        self.rewind(keep)
        for done, token in enumerate(wanted[self.length :], start=1):
            if cancelled and cancelled():
                return None
            self._tokens.append(token)
            self.evaluated += 1
            if progress:
                progress(done, len(wanted) - keep)
        return self._pass([self._row(self._tokens)]) if logits else None

    def evaluate(self, pending: int, draft: Draft) -> ToyPass:
        assert self._open is None, "evaluate before the last one was committed"
        count = 1 + len(draft)
        if self.length + count > self.capacity or count > self.draft_room + 1:
            raise ContextFullError(f"a draft of {count - 1} does not fit: {self.length} of {self.capacity} are used")
        self._check(draft, pending)
        self._open = ([pending], draft)
        self.evaluated += count
        root = [*self._tokens, pending]
        paths = [root + draft.tokens[list(draft.path(node))].tolist() for node in range(len(draft))]
        return self._pass([self._row(path) for path in [root, *paths]])

    def grow(self, tokens: Ids, parents: Ids) -> ToyPass:
        roots, draft = self._open or ([], EMPTY)
        assert not roots, "grow inside an evaluate"
        old = len(draft)
        draft = Draft(np.concatenate([draft.tokens, tokens]), np.concatenate([draft.parents, parents]))
        try:
            if len(draft) > self.draft_room or self.length + len(draft) > self.capacity:
                raise ContextFullError(
                    f"a tree of {len(draft)} nodes does not fit: {self.length} of {self.capacity} are used"
                )
            self._check(draft)
        except LocalspecError:
            self._open = None
            raise
        self._open = ([], draft)
        self.evaluated += len(tokens)
        paths = [self._tokens + draft.tokens[list(draft.path(node))].tolist() for node in range(old, len(draft))]
        return self._pass([self._row(path) for path in paths])

    def commit(self, path: Sequence[int]) -> None:
        assert self._open is not None, "commit without an evaluate"
        roots, draft = self._open
        self._open = None
        self._tokens += [*roots, *draft.tokens[list(path)].tolist()]

    def rewind(self, length: int) -> None:
        if length > self.length:
            raise DecodeError(f"cannot rewind to {length}: the cache holds {self.length} tokens")
        self._open = None
        del self._tokens[max(0, length) :]

    def close(self) -> None:
        return None

    def _check(self, draft: Draft, *others: int) -> None:
        leaves = 1 if draft.is_chain else draft.leaves
        if leaves > self.leaves:
            raise DecodeError(f"a draft with {leaves} leaves, the context has sequences for {self.leaves}")
        if not all(0 <= token < self.vocab_size for token in [*others, *draft.tokens.tolist()]):
            raise DecodeError("a token is outside the vocabulary")

    def _row(self, text: Sequence[int]) -> Row:
        return self.model.row(text[-2] if len(text) > 1 else END, text[-1])

    def _pass(self, rows: Sequence[Row]) -> ToyPass:
        self._ticket += 1
        ticket = self._ticket
        return ToyPass(rows, lambda: ticket == self._ticket)
