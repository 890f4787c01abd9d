"""The decoder layer of an EAGLE-1 head as ggml graphs (Li et al. 2024): it predicts the verifier's next hidden row.

It reads pairs (token at P + 1, hidden row at P) into a cache of keys and values of its own; what comes out at P is its
guess of the hidden row at P + 1, from which the output layer makes logits and which is the input of the next pair.
Pairs of a tree lie behind the text in the cache, each with a row of the mask that shows it its ancestors. Knows
nothing about the verifier; `eagle1` follows it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.core.draft import Ids
from localspec.engine import ggml
from localspec.engine.base import Row
from localspec.engine.graph import Buffer, Graph, Machine, Ops, Stored, Tensor, closing_on_error
from localspec.engine.outputs import Output
from localspec.errors import ContextFullError

Rows = npt.NDArray[np.float32]
PIECE = 256
"""Pairs of a text that are read in one run."""
_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, PIECE)
"""Pairs per run that graphs are made for; fewer are padded."""
_SMALLEST_SPAN = 256
"""Cells that a graph looks at, at least; spans double from there."""
_GRAPHS = 24
"""Graphs kept; the one used longest ago goes first."""


@dataclass(frozen=True)
class Sizes:
    """What a head's file says. heads: of attention; size: of one of them; neox: rotary positions over halves."""

    width: int
    heads: int
    heads_kv: int
    size: int
    epsilon: float
    rope_base: float
    neox: bool = True


@dataclass(frozen=True)
class Shape:
    """What a graph was built for: pairs, cells looked at, and of how many pairs logits are wanted (all, last, none)."""

    pairs: int
    span: int
    wanted: int


class Eagle1Graph:
    """The layer with its weights and its cache on a device. `close` frees it."""

    def __init__(
        self,
        sizes: Sizes,
        tensors: Mapping[str, Stored],
        embedding: Stored,
        output: Output,
        *,
        vocab_size: int,
        capacity: int,
        draft_room: int = 32,
        device: str | None = None,
        threads: int = 1,
    ) -> None:
        """Room for `capacity` pairs of a text and trees of `draft_room` nodes.

        `tensors` have been checked against `sizes`; rows of `embedding` are looked up here, whatever their type.
        Raises `LoadError`.
        """
        self.width = sizes.width
        self.vocab_size = vocab_size
        self.capacity = capacity
        self.draft_room = draft_room
        self.busy_s = 0.0
        self.evaluated = 0
        self.start = 0
        """Position of the first pair that it holds."""
        self.length = 0
        """Position behind the last one."""
        self._sizes = sizes
        self._embedding = embedding
        self._output = output
        self._parents: list[int] = []  # of the nodes of the open tree
        self._depths: list[int] = []
        self._features: Rows = np.zeros((0, sizes.width), dtype=np.float32)  # of the last pair, then of the nodes
        self._graphs: OrderedDict[Shape, Graph] = OrderedDict()
        # The last cell is what padding is written to; GPUs want a multiple of the span.
        self._spare = -(-(capacity + draft_room + 1) // _SMALLEST_SPAN) * _SMALLEST_SPAN - 1
        self._machine = Machine(device=device, threads=threads)
        with closing_on_error(self._machine):
            self._weights = Buffer.holding(self._machine, {**tensors, **output.tensors})
        with closing_on_error(self._weights, self._machine):
            cells = (sizes.heads_kv * sizes.size, self._spare + 1)
            shapes = {"keys": (cells, ggml.F32), "values": (cells, ggml.F32)}
            self._cache = Buffer(self._machine, shapes, what="a head's cache")
            self._cache.clear()  # a cell that is masked must still hold numbers
        with closing_on_error(self._cache, self._weights, self._machine):
            self._graph(Shape(1, _SMALLEST_SPAN, 1))  # what the device cannot do shows now

    @property
    def nodes(self) -> int:
        """Nodes of the open tree."""
        return len(self._parents)

    def begin(self, position: int) -> None:
        """Forget everything; the first pair that comes is that of `position`."""
        self.start = self.length = position
        self.rewind(position)

    def rewind(self, length: int) -> None:
        """Forget all pairs from position `length` on, and the tree."""
        assert self.start <= length <= self.length, f"rewind to {length} of {self.start} .. {self.length}"
        self.length = length
        self._parents, self._depths = [], []
        self._features = self._features[:0]

    def extend(self, tokens: Ids, hidden: Rows, *, logits: bool = True) -> Row | None:
        """Read more pairs, (m,) tokens and (m, width) rows, and forget the tree: (V,) logits behind the last token.

        They are -inf for ids that the head does not know; None unless `logits`.
        Raises `ContextFullError`, `DecodeError`.
        """
        assert len(tokens) == len(hidden) > 0
        if self.length + len(tokens) > self.capacity:
            raise ContextFullError(f"{self.length + len(tokens)} pairs do not fit a head of {self.capacity}")
        self.rewind(self.length)
        for first in range(0, len(tokens), PIECE):
            piece = slice(first, first + PIECE)
            count = len(tokens[piece])
            wanted = logits and first + count == len(tokens)
            cells = np.arange(self.length, self.length + count)
            # A pair of the text sees all pairs before it and itself.
            at = np.arange(self.length + count)[None, :]
            seen = (at >= self.start) & (at <= cells[:, None])
            features, rows = self._run(tokens[piece], hidden[piece], cells, cells, seen, wanted=int(wanted))
            self.length += count
        self._features = features[-1:]
        return self._output.spread(rows, self.vocab_size)[0] if logits else None

    def grow(self, tokens: Ids, parents: Ids) -> list[Row]:
        """Evaluate nodes below the last pair, one layer after the other: (V,) logits behind each of them.

        `parents` count through the nodes of all calls since the last `extend`, -1 is the last pair. A node is read
        with its parent's own feature. Raises `ContextFullError`, `DecodeError`.
        """
        assert len(self._features), "grow before extend"
        first, count = len(self._parents), len(tokens)
        if first + count > self.draft_room:
            raise ContextFullError(
                f"a tree of {first + count} nodes does not fit a head with room for {self.draft_room}"
            )
        inputs = self._features[np.asarray(parents) + 1]
        self._parents += parents.tolist()
        self._depths += [1 if parent < 0 else self._depths[parent] + 1 for parent in parents.tolist()]
        cells = np.arange(first, first + count) + self.length
        seen = np.zeros((count, self.length + first + count), dtype=bool)
        seen[:, self.start : self.length] = True
        for row in range(count):
            seen[row, self.length + np.array(self._path(first + row))] = True
        positions = self.length - 1 + np.array(self._depths[first:])
        features, logits = self._run(tokens, inputs, cells, positions, seen, wanted=count)
        self._features = np.concatenate([self._features, features])
        return self._output.spread(logits, self.vocab_size)

    def _path(self, node: int) -> list[int]:
        """A node and its ancestors."""
        path = []
        while node >= 0:
            path.append(node)
            node = self._parents[node]
        return path

    # -- graphs -------------------------------------------------------------------------------------------------------

    def _run(
        self,
        tokens: Ids,
        hidden: Rows,
        cells: npt.NDArray[np.integer],
        positions: npt.NDArray[np.integer],
        seen: npt.NDArray[np.bool_],
        *,
        wanted: int,
    ) -> tuple[Rows, Rows]:
        """Features of all pairs, logits of the last `wanted`; the cells are written. seen: (pairs, leading cells)."""
        started = time.perf_counter()
        count = len(tokens)
        pairs = next(size for size in _COUNTS if size >= count)
        span = _SMALLEST_SPAN
        while span < seen.shape[1]:
            span *= 2
        shape = Shape(pairs, min(span, self._spare + 1), min(wanted, 1) if wanted < count else pairs)
        inputs = np.zeros((pairs, 2 * self.width), dtype=np.float32)
        for row, token in enumerate(tokens.tolist()):
            inputs[row, : self.width] = self._embedding.row(token)
        inputs[:count, self.width :] = hidden
        mask = np.full((pairs, shape.span), -np.inf, dtype=np.float16)
        mask[:count, : seen.shape[1]][seen] = 0.0
        mask[count:, 0] = 0.0  # padding must see something, or it becomes NaN
        given: dict[str, npt.NDArray[Any]] = {
            "inputs": inputs,
            "mask": mask,
            "cells": _padded(cells, pairs, self._spare, np.int64),
            "positions": _padded(positions, pairs, 0, np.int32),
        }
        if 0 < shape.wanted < pairs:
            given["last"] = np.array([count - 1], dtype=np.int32)
        found = self._graph(shape).run(**given)
        self.busy_s += time.perf_counter() - started
        self.evaluated += count
        logits = found.get("logits", np.empty((0, 0), dtype=np.float32))
        return found["features"][:count], logits[:wanted]

    def _graph(self, shape: Shape) -> Graph:
        if shape not in self._graphs:
            if len(self._graphs) == _GRAPHS:
                self._graphs.popitem(last=False)[1].close()
            self._graphs[shape] = Graph(self._machine, lambda ops: self._build(ops, shape))
        self._graphs.move_to_end(shape)
        return self._graphs[shape]

    def _build(self, ops: Ops, shape: Shape) -> None:
        weights, sizes, pairs = self._weights, self._sizes, shape.pairs
        inputs = ops.input("inputs", ggml.F32, 2 * sizes.width, pairs)
        x = ops.linear(inputs, weights, "fc")
        normed = (
            ops.norm(x, weights["blk.0.attn_norm.weight"], sizes.epsilon) if "blk.0.attn_norm.weight" in weights else x
        )
        x = ops.add(x, self._attention(ops, normed, shape))
        normed = ops.norm(x, weights["blk.0.ffn_norm.weight"], sizes.epsilon)
        gate = ops.silu(ops.linear(normed, weights, "blk.0.ffn_gate"))
        up = ops.linear(normed, weights, "blk.0.ffn_up")
        x = ops.add(x, ops.linear(ops.mul(gate, up), weights, "blk.0.ffn_down"))
        ops.output("features", x, pairs, sizes.width)
        if not shape.wanted:
            return
        if shape.wanted < pairs:
            x = ops.get_rows(x, ops.input("last", ggml.I32, 1))
        if "output_norm.weight" in weights:
            x = ops.norm(x, weights["output_norm.weight"], sizes.epsilon)
        logits = self._output.apply(ops, weights, x)
        ops.output("logits", logits, shape.wanted, weights.shapes["output.weight"][1])

    def _attention(self, ops: Ops, x: Tensor, shape: Shape) -> Tensor:
        """Writes the pairs' keys and values into their cells, then looks at the first `span` cells through the mask."""
        weights, sizes, pairs = self._weights, self._sizes, shape.pairs
        positions = ops.input("positions", ggml.I32, pairs)
        cells = ops.input("cells", ggml.I64, pairs)
        mask = ops.input("mask", ggml.F16, shape.span, pairs)
        query = self._turned(ops, ops.linear(x, weights, "blk.0.attn_q"), sizes.heads, pairs, positions)
        key = self._turned(ops, ops.linear(x, weights, "blk.0.attn_k"), sizes.heads_kv, pairs, positions)
        value = ops.linear(x, weights, "blk.0.attn_v")
        row = sizes.heads_kv * sizes.size
        keys = ops.written(self._cache["keys"], ops.reshape_2d(key, row, pairs), cells)
        values = ops.written(self._cache["values"], value, cells)
        keys, values = (
            # (size, span, heads): rows of the cache, head by head
            ops.view_3d(cache, sizes.size, shape.span, sizes.heads_kv, 4 * row, 4 * sizes.size, 0)
            for cache in (keys, values)
        )
        query = ops.permute(query, 0, 2, 1, 3)
        seen = ops.flash_attn_ext(query, keys, values, mask, sizes.size**-0.5, 0.0, 0.0)
        return ops.linear(ops.reshape_2d(seen, sizes.heads * sizes.size, pairs), weights, "blk.0.attn_output")

    def _turned(self, ops: Ops, x: Tensor, heads: int, pairs: int, positions: Tensor) -> Tensor:
        """(size, heads, pairs), turned by their positions."""
        size = self._sizes.size
        mode = ggml.NEOX if self._sizes.neox else ggml.PAIRS
        apart = ops.reshape_3d(x, size, heads, pairs)
        return ops.rope_ext(apart, positions, None, size, mode, 0, self._sizes.rope_base, 1.0, 0.0, 1.0, 32.0, 1.0)

    def close(self) -> None:
        for graph in self._graphs.values():
            graph.close()
        self._graphs.clear()
        for part in (self._cache, self._weights, self._machine):
            part.close()


def _padded(
    values: npt.NDArray[np.integer], count: int, rest: int, dtype: type[np.int64] | type[np.int32]
) -> npt.NDArray[np.integer]:
    """`values` and then `rest`, `count` in all."""
    full = np.full(count, rest, dtype=dtype)
    full[: len(values)] = values
    return full
