"""A llama_batch whose fields are numpy views. Knows nothing about contexts.

Tokens may come with a row of numbers each, as heads take them, or as such rows alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from localspec.engine.native import lib

FEW = 16  # tokens that are sooner put in one by one


class TokenBatch:
    """Room for `capacity` tokens, each in up to `sequences` sequences, with `rows` of `width` numbers if not 0."""

    def __init__(self, capacity: int, sequences: int, *, width: int = 0) -> None:
        self.capacity = capacity
        self._batch = lib.llama_batch_init(capacity, width, sequences)
        view = np.ctypeslib.as_array
        self._token: npt.NDArray[np.int32] = np.zeros(capacity, dtype=np.int32)
        if width:
            self.rows: npt.NDArray[np.float32] = view(self._batch.embd, (capacity, width))
            # llama.cpp allocates one or the other.
            self._batch.token = self._token.ctypes.data_as(ctypes.POINTER(lib.llama_token))
        else:
            self._token = view(self._batch.token, (capacity,))
        self._owns_tokens = bool(width)
        self._position: npt.NDArray[np.int32] = view(self._batch.pos, (capacity,))
        self._counts: npt.NDArray[np.int32] = view(self._batch.n_seq_id, (capacity,))
        self._wanted: npt.NDArray[np.int8] = view(self._batch.logits, (capacity,))
        self._sequence_of: list[npt.NDArray[np.int32]] = [
            view(self._batch.seq_id[row], (sequences,)) for row in range(capacity)
        ]
        for ids in self._sequence_of:
            ids[0] = 0
        self._counts[:] = 1
        self._scattered = 0
        self._steps = np.arange(capacity, dtype=np.int32)

    def fill(self, tokens: npt.NDArray[np.int32], start: int, *, rows: Literal["all", "last", "none"]) -> Any:
        """`tokens` one after the other from position `start` in sequence 0; logits for the last one, all or none."""
        count = len(tokens)
        if count <= FEW:
            self._put(tokens.tolist(), start)
        else:
            self._token[:count] = tokens
            self._place(count, start)
            self._wanted[:count] = 1
        if rows != "all":
            self._wanted[: count - 1] = 0
            self._wanted[count - 1] = rows == "last"
        return self._batch

    def fill_rows(self, rows: npt.NDArray[np.float32], start: int) -> Any:
        """`rows` without tokens, from position `start` in sequence 0; all are outputs."""
        count = len(rows)
        self.rows[:count] = rows
        self._place(count, start)
        self._wanted[:count] = 1
        self._batch.token = None
        return self._batch

    def fill_chain(self, pending: int, tokens: npt.NDArray[np.int32], start: int) -> Any:
        """`pending` at position `start` and `tokens` behind it, in sequence 0; logits for all."""
        self._put([pending, *tokens.tolist()], start)
        return self._batch

    def _put(self, tokens: list[int], start: int) -> None:
        """A few tokens from position `start` on in sequence 0, with logits for all, one by one.

        After a pass everything is out of the processor's caches, and slices and sums of numpy reach for a lot of code.
        """
        if self._scattered:
            self._gather()
        for at, token in enumerate(tokens):
            self._token[at], self._position[at], self._wanted[at] = token, start + at, 1
        self._batch.n_tokens = len(tokens)

    def _place(self, count: int, start: int) -> None:
        """Positions from `start` on, everything in sequence 0."""
        if self._scattered:
            self._gather()
        np.add(self._steps[:count], start, out=self._position[:count])
        self._batch.n_tokens = count

    def fill_tree(
        self,
        tokens: npt.NDArray[np.integer],
        positions: npt.NDArray[np.integer],
        sequences: Sequence[Sequence[int]],
        *,
        flags: npt.NDArray[np.int8] | None = None,
    ) -> Any:
        """`tokens` at their own positions, each in its own sequences; logits for all, or for those with a flag."""
        count = len(tokens)
        self._token[:count] = tokens
        self._position[:count] = positions
        self._wanted[:count] = 1 if flags is None else flags
        for row, ids in enumerate(sequences):
            self._counts[row] = len(ids)
            self._sequence_of[row][: len(ids)] = ids
        self._scattered = max(self._scattered, count)
        self._batch.n_tokens = count
        return self._batch

    def _gather(self) -> None:
        """Put the rows that a tree had spread over sequences back into sequence 0."""
        for row in range(self._scattered):
            self._sequence_of[row][0] = 0
        self._counts[: self._scattered] = 1
        self._scattered = 0

    def free(self) -> None:
        if self._owns_tokens:
            self._batch.token = None
        lib.llama_batch_free(self._batch)
