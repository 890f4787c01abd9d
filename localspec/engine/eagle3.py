"""An EAGLE-3 head (Li et al. 2025) run by llama.cpp, beside the context of the verifier whose hidden rows it reads.

The inputs of three layers of the verifier are fused into one row per position. The head's cache holds at position P the
pair (token of P + 1, fused row of P), and its output there is the law of P + 2 and a row that stands in for the fused
row of P + 1, which the verifier has not computed yet: with that the next step is made. Conventions: llama.cpp,
common/speculative.cpp. Knows nothing about acceptance; the accepted tokens come again as pairs with true rows.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.core.draft import EMPTY, Draft, Ids
from localspec.engine import native
from localspec.engine.base import Cancelled, FeatureSpec, Row
from localspec.engine.batch import TokenBatch
from localspec.engine.branches import Branches
from localspec.engine.context import CACHE_TYPES, CODES, FLASH, ContextSettings, LlamaContext, common_prefix
from localspec.engine.features import Rows
from localspec.engine.model import LlamaModel
from localspec.engine.native import lib
from localspec.errors import ContextFullError, DecodeError, LoadError

CHUNK = 64
"""Pairs per evaluation: llama.cpp makes room for the logits of all of them."""
FEW = 8
"""Up to so many pairs are evaluated at once with the logits of all, where only the last row is wanted."""


class HeadPass:
    """Rows of the last evaluation of a head."""

    def __init__(self, head: Eagle3Head, ticket: int, rows: int, *, first: int = 0) -> None:
        self._head = head
        self._ticket = ticket
        self._first = first
        self.rows = rows

    def logits(self, row: int) -> Row:
        """(V,) float32 view, -inf for ids outside the draft's vocabulary."""
        if not 0 <= row < self.rows:
            raise IndexError(f"row {row} of {self.rows}")
        return self._head.logits_row(self._ticket, self._first + row)


class Eagle3Head:
    """`engine.base.Head`. Not thread-safe, and to be closed before its verifier."""

    def __init__(self, model: LlamaModel, verifier: LlamaContext, settings: ContextSettings) -> None:
        """Listens to `verifier` from now on. Raises `LoadError` when it does not give what `model` reads."""
        self.model = model
        self.vocab_size = model.vocab.size
        self.busy_s = 0.0
        self.evaluated = 0
        self._handle: Any = None
        self._verifier = verifier
        self._settings = settings
        self._ticket = 0
        layers = native.target_layers(model.handle)
        if not layers:
            raise LoadError(
                f"this llama-cpp-python cannot tell which layers {model.path.name} reads",
                hint="Install the llama-cpp-python version that localspec names as its own.",
            )
        # First of all: the verifier's native context may be made anew for it.
        self.capture = verifier.capture(FeatureSpec(layers), reduce=self._fuse, width=model.width)
        try:
            self._create()
        except BaseException:
            verifier.release(self.capture)
            raise
        verifier.dependants += 1

    def _create(self) -> None:
        settings, verifier = self._settings, self._verifier
        params = lib.llama_context_default_params()
        params.n_ctx = verifier.capacity + settings.draft_room
        params.n_batch = params.n_ubatch = max(CHUNK, settings.draft_room)
        params.n_seq_max = 1 + settings.leaves
        params.n_threads = params.n_threads_batch = settings.threads
        params.type_k = params.type_v = CACHE_TYPES[settings.kv_type]
        params.flash_attn_type = FLASH[settings.flash_attn]
        params.kv_unified = True
        params.no_perf = True
        params.ctx_other = verifier.native_handle
        with native.heard():
            self._handle = lib.llama_init_from_model(self.model.handle, params)
        if not self._handle:
            raise LoadError(
                f"llama.cpp could not make a context for the head {self.model.path.name}: "
                f"{native.complaint() or 'no reason was given'}",
                hint="Try a smaller --ctx-size or another --kv-type.",
            )
        native.set_nextn(self._handle, True, True)
        self._memory = lib.llama_get_memory(self._handle)
        self._branches = Branches(self._memory)
        self._batch = TokenBatch(params.n_batch, params.n_seq_max, width=self.model.width)
        self._wide = TokenBatch(CHUNK, 1, width=self.capture.raw_width)
        self._text: Ids = np.zeros(verifier.capacity + 1, dtype=np.int32)
        self._pairs = 0  # positions of the cache that hold true pairs, of the tokens _text[1 : _pairs + 1]
        self._stepped = 0  # positions behind them with the head's own rows
        self._grown = EMPTY
        width = self.model.width
        self._last = np.zeros(width, dtype=np.float32)  # stands in for the row of the last token
        self._root = self._last  # the same, of the last true pair
        self._own: npt.NDArray[np.float32] = np.zeros((settings.draft_room, width), dtype=np.float32)  # of grown nodes

    @property
    def leaves(self) -> int:
        """Most leaf paths of a tree."""
        return max(1, self._settings.leaves)

    @property
    def nodes(self) -> int:
        """Most nodes of a tree."""
        return min(self._settings.draft_room, self._verifier.capacity - self._pairs)

    # -- following the verifier ---------------------------------------------------------------------------------------

    def follow(self, tokens: Ids, *, logits: bool = True, cancelled: Cancelled | None = None) -> HeadPass | None:
        """See `engine.base.Head.follow`. Raises `DecodeError`."""
        self._check_open()
        count = len(tokens) - 1
        if count < 1 or not self._has_rows(tokens):
            return None
        keep = min(max(0, common_prefix(self._text[: self._pairs + 1], tokens) - 1), count)
        self._retreat(min(keep, count - 1) if logits else keep)
        result = None
        while self._pairs < count:
            if cancelled and cancelled():
                return None
            result = self._read(tokens, self._chunk_end(count, logits), logits=logits)
        return result if logits else None

    def _has_rows(self, tokens: Ids) -> bool:
        """True when the verifier holds all tokens but the last and their rows were captured."""
        held = self._verifier.tokens
        return self.capture.end == len(held) and np.array_equal(held, tokens[:-1])

    def _chunk_end(self, count: int, logits: bool) -> int:
        """How far to evaluate next: only the last pairs of all need rows, and then all of that evaluation have them."""
        end = min(count, self._pairs + CHUNK)
        return end - 1 if logits and end == count and end - self._pairs > FEW else end

    def _read(self, tokens: Ids, end: int, *, logits: bool) -> HeadPass | None:
        """Evaluate the pairs of the positions up to `end`; a pass when they are the last."""
        start, count = self._pairs, end - self._pairs
        last = logits and end == len(tokens) - 1
        self._batch.rows[:count] = self.capture.rows(start, end)
        hidden = self._decode(self._batch.fill(tokens[start + 1 : end + 1], start, rows="all" if last else "none"))
        self._text[start : end + 1] = tokens[start : end + 1]
        self._pairs = end
        if not last:
            return None
        self._root = self._last = hidden[count - 1].copy()
        return HeadPass(self, self._ticket, 1, first=count - 1)

    def _fuse(self, rows: Rows) -> Rows:
        """(n, three layers) -> (n, width): the head's encoder."""
        fused = np.empty((len(rows), self.model.width), dtype=np.float32)
        for start in range(0, len(rows), CHUNK):
            piece = rows[start : start + CHUNK]
            # Rows alone have no positions of their own; llama.cpp wants some that are free.
            position = lib.llama_memory_seq_pos_max(self._memory, 0) + 1
            started = time.perf_counter()
            self._ticket += 1
            self._check(int(lib.llama_encode(self._handle, self._wide.fill_rows(piece, position))))
            address = native.nextn_address(self._handle)
            self.busy_s += time.perf_counter() - started
            fused[start : start + len(piece)] = native.floats(address, len(piece), self.model.width)
        return fused

    # -- drafting -----------------------------------------------------------------------------------------------------

    def step(self, token: int) -> HeadPass:
        """See `engine.base.Head.step`. Raises `ContextFullError`, `DecodeError`."""
        self._check_open()
        if self._stepped >= self._settings.draft_room:
            raise ContextFullError(f"a draft of more than {self._stepped} tokens does not fit the head's cache")
        self._batch.rows[0] = self._last
        ids = np.array((token,), dtype=np.int32)
        hidden = self._decode(self._batch.fill(ids, self._pairs + self._stepped, rows="all"))
        self._stepped += 1
        self._last = hidden[0].copy()
        return HeadPass(self, self._ticket, 1)

    def grow(self, tokens: Ids, parents: Ids) -> HeadPass:
        """See `engine.base.Head.grow`. Raises `ContextFullError`, `DecodeError`."""
        self._check_open()
        old = self._grown
        draft = Draft(np.concatenate([old.tokens, tokens]), np.concatenate([old.parents, parents]))
        if len(draft) > self.nodes or draft.leaves > self.leaves or self._stepped:
            raise ContextFullError(f"a tree of {len(draft)} nodes, {draft.leaves} leaves, does not fit a head's cache")
        self._grown = draft
        first, count = len(old), len(tokens)
        self._batch.rows[:count] = np.where((parents < 0)[:, None], self._root, self._own[parents])
        sequences = self._branches.extend(draft, first=first, base=self._pairs)
        positions = self._pairs - 1 + draft.depths[first:]
        self._own[first : first + count] = self._decode(self._batch.fill_tree(tokens, positions, sequences))
        return HeadPass(self, self._ticket, count)

    # -- forgetting ---------------------------------------------------------------------------------------------------

    def _retreat(self, pairs: int) -> None:
        """Forget the last draft and the true pairs from number `pairs` on."""
        self._branches.take_back()
        self._grown = EMPTY
        if self._stepped or pairs < self._pairs:
            lib.llama_memory_seq_rm(self._memory, 0, pairs, -1)
        self._pairs, self._stepped = pairs, 0

    def rewind(self, length: int) -> None:
        """Forget what was read of all tokens from `length` on."""
        self._check_open()
        self._retreat(min(self._pairs, max(0, length - 1)))

    # -- llama.cpp ----------------------------------------------------------------------------------------------------

    def _decode(self, batch: Any) -> npt.NDArray[np.float32]:
        """Evaluate; the rows that come out before the last norm, valid until the next evaluation."""
        started = time.perf_counter()
        self._ticket += 1
        code = int(lib.llama_decode(self._handle, batch))
        address, hidden = native.logits_address(self._handle), native.nextn_address(self._handle)
        self.busy_s += time.perf_counter() - started
        count = int(batch.n_tokens)
        self.evaluated += count
        self._check(code)
        self._logits = native.floats(address, count, self.vocab_size)
        return native.floats(hidden, count, self.model.width)

    def _check(self, code: int) -> None:
        if code:
            lib.llama_memory_clear(self._memory, False)
            self._branches.take_back()
            self._pairs, self._stepped, self._grown = 0, 0, EMPTY
            raise DecodeError(
                f"llama.cpp could not evaluate the head {self.model.path.name}: "
                f"{CODES.get(code, 'fatal error')} (code {code})",
                hint="Set LOCALSPEC_DEBUG=1 to see llama.cpp's log.",
            )

    def logits_row(self, ticket: int, index: int) -> Row:
        """Row `index` of the evaluation with this ticket."""
        assert ticket == self._ticket, "a row was read after the next evaluation"
        row: Row = self._logits[index]
        return row

    def _check_open(self) -> None:
        if not self._handle:
            raise DecodeError("this head has been closed", hint="Load the model again.")

    def listen(self, on: bool) -> None:
        """Whether the verifier keeps rows for this head; off it costs the verifier nothing."""
        if on != self.capture.on:
            self.capture.on = on
            self._verifier.listen()

    def close(self) -> None:
        if self._handle:
            self._verifier.release(self.capture)
            self._verifier.dependants -= 1
            lib.llama_free(self._handle)
            self._batch.free()
            self._wide.free()
            self._handle = None

    def __enter__(self) -> Eagle3Head:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
