"""Many texts through one context, for making training data: hidden rows of every token, the top of the law of some.

Texts are packed side by side into batches, each in a sequence of its own, and the cache is emptied behind each batch;
a text longer than a batch goes alone, piece by piece. Only the logits that are asked for are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from localspec.core.draft import Ids
from localspec.core.filters import largest
from localspec.core.fold import fold
from localspec.engine import native
from localspec.engine.asking import gives_layer_inputs
from localspec.engine.base import FeatureSpec
from localspec.engine.batch import TokenBatch
from localspec.engine.features import Rows
from localspec.engine.hidden import HiddenRows, Tap, check, check_final, check_last_layer
from localspec.engine.model import LlamaModel
from localspec.engine.native import lib
from localspec.errors import DecodeError, LoadError


@dataclass(frozen=True)
class Reading:
    """What came of one text of n tokens, of which m rows were asked for.

    features  (n, width) float32: row i is of token i
    ids       (m, k) int32: the likeliest tokens behind each asked row, likeliest first
    logits    (m, k) float32
    normaliser  (m,) float32: log of the sum of exp of all V logits, so that logits - normaliser are log probabilities
    """

    features: Rows
    ids: npt.NDArray[np.int32]
    logits: Rows
    normaliser: Rows


class BulkReader:
    """Evaluates lists of texts. `close()` or `with` frees it; the model is the caller's."""

    def __init__(
        self,
        model: LlamaModel,
        spec: FeatureSpec,
        *,
        longest: int,
        top: int = 0,
        batch: int = 512,
        sequences: int = 32,
        outputs: int = 256,
        threads: int = 1,
    ) -> None:
        """Texts of up to `longest` tokens, `sequences` of them side by side, in batches of `batch` tokens.

        `top`: how many of the likeliest tokens of an asked row are kept. `outputs`: most asked rows of a batch (all
        rows count when the spec wants the final ones): memory for so many times V logits. Raises `LoadError`.
        """
        check(spec, layers=model.layers, name=model.path.name)
        if spec.final:
            check_final(model)
        self.model = model
        self.spec = spec
        self.top = top
        self.longest = longest
        self._width = model.width * (len(spec.layers) + spec.final)
        self._outputs = outputs
        self._vocab_size = model.vocab.size
        inner = sorted(layer for layer in spec.layers if layer < model.layers)
        watched = bool(inner) and not gives_layer_inputs(model, inner)
        if model.layers in spec.layers:
            check_last_layer(model, watched=watched)
        size = min(batch, outputs) if spec.final else batch
        self._tap = Tap(inner, width=model.width, batch=size) if watched else None
        params = lib.llama_context_default_params()
        params.n_ctx = max(longest, size)
        params.n_batch = params.n_ubatch = size
        params.n_seq_max = sequences
        params.n_outputs_max = max(outputs, sequences)
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified, params.no_perf = True, True
        if self._tap:
            params.cb_eval = self._tap.callback
        with native.heard():
            self._handle = lib.llama_init_from_model(model.handle, params)
        if not self._handle:
            raise LoadError(
                f"llama.cpp could not make a context of {params.n_ctx} tokens for {model.path.name}: "
                f"{native.complaint() or 'no reason was given'}",
                hint="Try shorter texts or smaller batches.",
            )
        self._memory = lib.llama_get_memory(self._handle)
        self._batch = TokenBatch(size, 1)
        self._sequences = sequences
        self._hidden = HiddenRows(self._handle, width=model.width, layers=model.layers, batch=size, tap=self._tap)
        self._hidden.listen(spec.layers)
        self._hidden.listen_to_final(spec.final)

    def read(self, texts: Sequence[Ids], asked: Sequence[Ids] | None = None) -> Iterator[Reading]:
        """The readings of `texts`, in their order. `asked[i]`: ascending positions of text i whose laws are wanted.

        Raises `DecodeError`.
        """
        wanted = asked if asked is not None else [np.empty(0, dtype=np.int32)] * len(texts)
        for group in self._groups(texts, wanted):
            yield from self._read_group([texts[i] for i in group], [np.asarray(wanted[i]) for i in group])

    def _groups(self, texts: Sequence[Ids], asked: Sequence[Ids]) -> Iterator[list[int]]:
        """Neighbours that fit one batch together."""
        group: list[int] = []
        tokens = rows = 0
        for i, (text, of_text) in enumerate(zip(texts, asked, strict=True)):
            if not 0 < len(text) <= self.longest:
                raise DecodeError(f"a text of {len(text)} tokens was to be read where {self.longest} fit")
            full = tokens + len(text) > self._batch.capacity or rows + len(of_text) > self._outputs
            if group and (full or len(group) == self._sequences):
                yield group
                group, tokens, rows = [], 0, 0
            group.append(i)
            tokens, rows = tokens + len(text), rows + len(of_text)
        if group:
            yield group

    def _read_group(self, texts: list[Ids], asked: list[Ids]) -> list[Reading]:
        lib.llama_memory_clear(self._memory, False)
        if len(texts) == 1:
            return [self._read_alone(texts[0], asked[0])]
        starts = np.cumsum([0, *(len(text) for text in texts)])
        flags = np.zeros(int(starts[-1]), dtype=np.int8)
        for start, of_text in zip(starts, asked, strict=False):
            flags[start + of_text] = 1
        positions = np.concatenate([np.arange(len(text)) for text in texts])
        sequences = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        features, (ids, logits, sums) = self._evaluate(np.concatenate(texts), positions, sequences, flags)
        ends = np.cumsum([0, *(len(of_text) for of_text in asked)])
        return [
            Reading(features[first:last], ids[begin:end], logits[begin:end], sums[begin:end])
            for (first, last), (begin, end) in zip(pairwise(starts), pairwise(ends), strict=True)
        ]

    def _read_alone(self, text: Ids, asked: Ids) -> Reading:
        """One text, however long, in pieces that hold no more tokens and asked rows than a batch may."""
        flags = np.zeros(len(text), dtype=np.int8)
        flags[asked] = 1
        pieces, start = [], 0
        while start < len(text):
            stop = min(len(text), start + self._batch.capacity)
            rows = np.cumsum(flags[start:stop])
            stop = start + int(np.searchsorted(rows, self._outputs, side="right"))
            here = np.arange(start, stop)
            pieces.append(self._evaluate(text[start:stop], here, np.zeros(len(here), dtype=int), flags[start:stop]))
            start = stop
        features = np.concatenate([piece[0] for piece in pieces])
        tops = [np.concatenate([piece[1][part] for piece in pieces]) for part in range(3)]
        return Reading(features, *tops)

    def _evaluate(
        self,
        tokens: Ids,
        positions: npt.NDArray[np.integer],
        sequences: npt.NDArray[np.integer],
        flags: npt.NDArray[np.int8],
    ) -> tuple[Rows, tuple[npt.NDArray[np.int32], Rows, Rows]]:
        kept = np.ones_like(flags) if self.spec.final else flags
        batch = self._batch.fill_tree(tokens, positions, sequences[:, None].tolist(), flags=kept)
        code = int(lib.llama_decode(self._handle, batch))
        if code:
            raise DecodeError(
                f"llama.cpp could not evaluate {len(tokens)} tokens of training data (code {code})",
                hint="Set LOCALSPEC_DEBUG=1 to see llama.cpp's log.",
            )
        address = native.logits_address(self._handle)
        features = self._hidden.read(self.spec, slice(0, len(tokens)))
        rows = np.flatnonzero(flags[kept != 0])
        logits = native.floats(address, int(kept.sum()), self._vocab_size)[rows] if len(rows) else None
        return features, self._top(logits)

    def _top(self, logits: Rows | None) -> tuple[npt.NDArray[np.int32], Rows, Rows]:
        """Ids and logits of the likeliest tokens of each row, and the log of the sum of all."""
        count = 0 if logits is None else len(logits)
        ids = np.empty((count, self.top), dtype=np.int32)
        if logits is None:
            return ids, np.empty(ids.shape, dtype=np.float32), np.empty(0, dtype=np.float32)
        for row, numbers in enumerate(logits if self.top else ()):
            ids[row] = largest(numbers, fold(np.maximum, numbers), self.top)
        highest = logits.max(axis=1, keepdims=True)
        normaliser = np.log(np.exp(logits - highest).sum(axis=1)) + highest[:, 0]
        return ids, np.take_along_axis(logits, ids, axis=1), normaliser.astype(np.float32)

    def close(self) -> None:
        if self._handle:
            lib.llama_free(self._handle)
            self._batch.free()
            self._handle = None

    def __enter__(self) -> BulkReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
