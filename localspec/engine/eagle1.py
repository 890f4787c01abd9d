"""An EAGLE-1 head beside the verifier whose hidden rows it reads (Li et al. 2024).

The layer itself is in `eagle1graph`. What is here keeps it in line with the verifier's text: the longest common prefix
stays, pairs behind it are read again with the verifier's own rows. Of a text that is new to it only the last tokens are
read, because each row costs the verifier a pass of its output layer.
"""

from __future__ import annotations

import numpy as np

from localspec.core.draft import Ids
from localspec.engine.base import Cancelled, FeatureSpec, Row
from localspec.engine.context import LlamaContext, common_prefix
from localspec.engine.eagle1graph import PIECE, Eagle1Graph
from localspec.errors import DecodeError

WINDOW = 256
"""Last tokens of a new text that are read."""


class Rows:
    """Logits as `engine.base.Pass` gives them; they stay."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows
        self.rows = len(rows)

    def logits(self, row: int) -> Row:
        """(V,) float32, -inf for ids that the head does not know."""
        return self._rows[row]


class Eagle1Head:
    """`engine.base.Head`. Not thread-safe, and to be closed before its verifier."""

    def __init__(self, graph: Eagle1Graph, verifier: LlamaContext, *, window: int = WINDOW) -> None:
        """Listens to `verifier` from now on. Raises `LoadError`."""
        self.vocab_size = graph.vocab_size
        self._graph = graph
        self._verifier = verifier
        self.capture = verifier.capture(FeatureSpec(final=True, window=window))
        self._text: Ids = np.zeros(graph.capacity + 1, dtype=np.int32)  # the pair of P holds the token of P + 1
        self._closed = False

    @property
    def busy_s(self) -> float:
        """Seconds spent computing so far."""
        return self._graph.busy_s

    @property
    def evaluated(self) -> int:
        """Pairs and nodes read so far."""
        return self._graph.evaluated

    @property
    def nodes(self) -> int:
        return self._graph.draft_room

    @property
    def leaves(self) -> int:
        """As many as nodes: each node has a row of the mask."""
        return self._graph.draft_room

    def follow(self, tokens: Ids, *, logits: bool = True, cancelled: Cancelled | None = None) -> Rows | None:
        """See `engine.base.Head.follow`. Raises `DecodeError`."""
        self._check_open()
        graph, count = self._graph, len(tokens) - 1
        if not (0 <= self.capture.since < count == self.capture.end):
            return None
        if not np.array_equal(self._verifier.tokens, tokens[:-1]):
            return None
        self._return_to(tokens, count - 1 if logits else count)
        row = None
        while graph.length < count:
            if cancelled and cancelled():
                return None
            start, end = graph.length, min(count, graph.length + PIECE)
            wanted = logits and end == count
            self._text[start : end + 1] = tokens[start : end + 1]
            row = graph.extend(tokens[start + 1 : end + 1], self.capture.rows(start, end), logits=wanted)
        return Rows([row]) if row is not None else None

    def _return_to(self, tokens: Ids, most: int) -> None:
        """Keep the pairs of the common prefix, at most so many, or begin where the verifier's rows do."""
        graph = self._graph
        keep = min(common_prefix(self._text[: graph.length + 1], tokens) - 1, most)
        if keep > graph.start and keep >= self.capture.since:
            graph.rewind(keep)
            return
        graph.begin(self.capture.since)
        self._text[: graph.start] = tokens[: graph.start]  # what has not been read counts, too

    def step(self, token: int) -> Rows:
        """See `engine.base.Head.step`. Raises `ContextFullError`, `DecodeError`."""
        self._check_open()
        return Rows(self._graph.grow(np.array([token], dtype=np.int32), np.array([self._graph.nodes - 1])))

    def grow(self, tokens: Ids, parents: Ids) -> Rows:
        """See `engine.base.Head.grow`. Raises `ContextFullError`, `DecodeError`."""
        self._check_open()
        return Rows(self._graph.grow(tokens, parents))

    def rewind(self, length: int) -> None:
        """Forget what was read of all tokens from `length` on."""
        self._check_open()
        if length - 1 <= self._graph.start:
            self._graph.begin(0)
        elif length - 1 < self._graph.length:
            self._graph.rewind(length - 1)

    def listen(self, on: bool) -> None:
        """Whether the verifier keeps rows for this head; off it costs the verifier nothing."""
        if on != self.capture.on:
            self.capture.on = on
            self._verifier.listen()

    def _check_open(self) -> None:
        if self._closed:
            raise DecodeError("this head has been closed", hint="Load it again.")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._verifier.release(self.capture)
            self._graph.close()
