"""Medusa heads as one ggml graph (Cai et al. 2024): K stacks of residual blocks over one hidden row, then the output.

Head k guesses the token k + 2 places behind the row's own: x = x + silu(W x + b), as often as it has blocks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from localspec.core.draft import Ids
from localspec.engine import ggml
from localspec.engine.base import FeatureSpec, Row
from localspec.engine.context import LlamaContext
from localspec.engine.graph import Buffer, Graph, Machine, Ops, Stored, closing_on_error
from localspec.engine.outputs import Output
from localspec.errors import DecodeError


class MedusaGraph:
    """The heads with their weights on a device. `close` frees them."""

    def __init__(
        self,
        tensors: Mapping[str, Stored],
        output: Output,
        *,
        width: int,
        heads: int,
        blocks: int,
        device: str | None = None,
        threads: int = 1,
    ) -> None:
        """`tensors` have been checked against the sizes. Raises `LoadError`."""
        self.width = width
        self.heads = heads
        self.ids: Ids | None = output.ids
        self.busy_s = 0.0
        self.evaluated = 0
        self._machine = Machine(device=device, threads=threads)
        with closing_on_error(self._machine):
            self._weights = Buffer.holding(self._machine, {**tensors, **output.tensors})
        with closing_on_error(self._weights, self._machine):
            self._graph = Graph(self._machine, lambda ops: self._build(ops, output, blocks))

    def _build(self, ops: Ops, output: Output, blocks: int) -> None:
        hidden = ops.input("hidden", ggml.F32, self.width, 1)
        features = []
        for head in range(self.heads):
            x = hidden
            for block in range(blocks):
                x = ops.add(x, ops.silu(ops.linear(x, self._weights, f"head.{head}.{block}")))
            features.append(x)
        if "head.0.output.weight" in self._weights:
            for head, x in enumerate(features):
                count = self._weights.shapes[f"head.{head}.output.weight"][1]
                ops.output(f"logits {head}", output.apply(ops, self._weights, x, f"head.{head}.output"), count)
            return
        joined = features[0]
        for x in features[1:]:
            joined = ops.concat(joined, x, 1)
        count = self._weights.shapes["output.weight"][1]
        ops.output("logits", output.apply(ops, self._weights, joined), self.heads, count)

    def guess(self, hidden: Row) -> list[Row]:
        """Logits of each head for one hidden row. Raises `DecodeError`."""
        started = time.perf_counter()
        found = self._graph.run(hidden=np.ascontiguousarray(hidden, dtype=np.float32))
        self.busy_s += time.perf_counter() - started
        self.evaluated += 1
        return list(found["logits"]) if "logits" in found else list(found.values())

    def close(self) -> None:
        for part in (self._graph, self._weights, self._machine):
            part.close()


class MedusaHead:
    """`engine.base.Guesser`: the heads beside the verifier whose last hidden row they read."""

    def __init__(self, graph: MedusaGraph, verifier: LlamaContext, *, tree: tuple[tuple[int, ...], ...] = ()) -> None:
        """Listens to `verifier` from now on. `tree`: the places that the file names. Raises `LoadError`."""
        self.tree = tree
        self.heads = graph.heads
        self.ids = graph.ids
        self._graph = graph
        self._verifier = verifier
        self.capture = verifier.capture(FeatureSpec(final=True, window=1))
        self._closed = False

    @property
    def busy_s(self) -> float:
        """Seconds spent computing so far."""
        return self._graph.busy_s

    @property
    def evaluated(self) -> int:
        """Rows read so far."""
        return self._graph.evaluated

    def guess(self, tokens: Ids) -> list[Row] | None:
        """See `engine.base.Guesser.guess`. Raises `DecodeError`."""
        if self._closed:
            raise DecodeError("this head has been closed", hint="Load it again.")
        end = len(tokens) - 1
        if not (self.capture.since < end == self.capture.end):
            return None
        if not np.array_equal(self._verifier.tokens, tokens[:-1]):
            return None
        return self._graph.guess(self.capture.rows(end - 1, end)[0])

    def rewind(self, length: int) -> None:
        """Nothing to forget."""

    def listen(self, on: bool) -> None:
        """Whether the verifier keeps its last row; off it costs the verifier nothing."""
        if on != self.capture.on:
            self.capture.on = on
            self._verifier.listen()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._verifier.release(self.capture)
            self._graph.close()
