"""A llama.cpp context as `engine.base.Context`: one text in a cache, evaluated, committed and rewound.

Sequence 0 holds the committed text, a tree's paths have their own (see `branches`). Every return code is looked at
before a row is read. Hidden rows are kept for those who ask (see `features`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from localspec.core.draft import EMPTY, Draft, Ids
from localspec.engine import native
from localspec.engine.abort import Watch
from localspec.engine.asking import gives_layer_inputs
from localspec.engine.base import Cancelled, FeatureSpec, Progress, Row
from localspec.engine.batch import TokenBatch
from localspec.engine.branches import Branches
from localspec.engine.features import Capture, Reduce
from localspec.engine.hidden import HiddenRows, Tap, check, check_final, check_last_layer
from localspec.engine.listening import Listening
from localspec.engine.memory import Memory, Snapshots, StateCopy, Truncation
from localspec.engine.model import LlamaModel
from localspec.engine.native import lib
from localspec.errors import ContextFullError, DecodeError, LoadError, LocalspecError

CacheType = Literal["f16", "q8_0", "q4_0"]
CACHE_TYPES: dict[str, int] = {"f16": 1, "q8_0": 8, "q4_0": 2}
FLASH: dict[str, int] = {"auto": -1, "off": 0, "on": 1}
CODES = {
    1: "no room in the cache",
    2: "aborted",
    -1: "invalid batch",
}
_ABORTED = 2
_REFUSED = -1  # like 1 it leaves the cache as it was; 2 and what lies below do not
_SNAPSHOTS = 8  # recurrent states kept per pass at most: each is as large as the whole memory of a text
_LONG_PREFILL = 32  # tokens; below this a prefill is too short to be worth interrupting


@dataclass(frozen=True)
class ContextSettings:
    """How a context is made.

    capacity    tokens
    draft_room  most nodes of a draft
    leaves      most leaf paths of a draft (0: chains only)
    """

    capacity: int
    draft_room: int = 16
    leaves: int = 0
    snapshots: bool = True
    batch: int = 512
    threads: int = 1
    kv_type: CacheType = "f16"
    flash_attn: Literal["auto", "on", "off"] = "auto"


class LlamaPass:
    """Rows of the last evaluation; reading one after the next evaluation is a bug and is caught."""

    __slots__ = ("_context", "_first", "_ticket", "rows")

    def __init__(self, context: LlamaContext, ticket: int, rows: int, *, first: int = 0) -> None:
        """`first`: kept rows before these, which nobody asked for."""
        self._context = context
        self._ticket = ticket
        self._first = first
        self.rows = rows

    def logits(self, row: int) -> Row:
        """(V,) float32 view of llama.cpp's own buffer."""
        if not 0 <= row < self.rows:
            raise IndexError(f"row {row} of {self.rows}")
        return self._context.logits_row(self._ticket, self._first + row)


class LlamaContext:
    """One cache and its text. Not thread-safe: one caller at a time."""

    def __init__(self, model: LlamaModel, settings: ContextSettings) -> None:
        """Make a context and find out how its memory forgets. Raises `LoadError` with llama.cpp's reason."""
        if settings.kv_type != "f16" and settings.flash_attn == "off":
            raise LoadError(
                f"a {settings.kv_type} cache needs flash attention, which is off",
                hint="Use --flash-attn auto, or --kv-type f16.",
            )
        self.model = model
        self.settings = settings
        self.vocab_size = model.vocab.size
        self.busy_s = 0.0
        self.evaluated = 0
        self._handle: Any = None
        self._length = 0
        self._last_pass = 0
        self._open = False
        self._torn = False  # forgetting was broken off: nobody knows what the cache holds, so it counts as empty
        self._draft = EMPTY
        self._grown = False
        self._ticket = 0
        self._rows_at: int | None = None
        self._rows: list[Row] = []
        self._tap: Tap | None = None
        self.dependants = 0
        """Other native contexts that point at this one, which must not be made anew meanwhile."""
        self._create()

    def _create(self) -> None:
        settings, model = self.settings, self.model
        params = lib.llama_context_default_params()
        rows = settings.draft_room + 1
        params.n_ctx = settings.capacity
        # One more than a round needs: llama.cpp aborts when all of a micro-batch would be kept as snapshots.
        params.n_batch = params.n_ubatch = max(settings.batch, rows + 1)
        params.n_seq_max = 1 + settings.leaves
        params.n_outputs_max = rows
        params.n_rs_seq = min(settings.draft_room, _SNAPSHOTS) if model.is_recurrent and settings.snapshots else 0
        params.n_threads = params.n_threads_batch = settings.threads
        params.type_k = params.type_v = CACHE_TYPES[settings.kv_type]
        params.flash_attn_type = FLASH[settings.flash_attn]
        params.kv_unified = True
        params.swa_full = False
        params.no_perf = True
        if self._tap:
            params.cb_eval = self._tap.callback
        with native.heard():
            self._handle = lib.llama_init_from_model(model.handle, params)
        if not self._handle:
            raise LoadError(
                f"llama.cpp could not make a context of {settings.capacity} tokens for {model.path.name}: "
                f"{native.complaint() or 'no reason was given'}",
                hint="Try a smaller --ctx-size, fewer --gpu-layers or another --kv-type.",
            )
        self._outputs = rows
        self._abort = Watch(self._handle)
        self._batch = TokenBatch(params.n_batch, 1 + settings.leaves)
        hidden = HiddenRows(self._handle, width=model.width, layers=model.layers, batch=params.n_batch, tap=self._tap)
        self._listening = Listening(hidden, batch=params.n_batch, outputs=rows)
        self._memory_handle = lib.llama_get_memory(self._handle)
        self._branches = Branches(self._memory_handle)
        self.capacity = min(settings.capacity, int(lib.llama_n_ctx_seq(self._handle)))
        self.draft_room = settings.draft_room
        self._tokens: Ids = np.empty(self.capacity, dtype=np.int32)
        self.memory: Memory = Truncation(self._memory_handle, model.window)
        try:
            self._choose_memory()
        except BaseException:
            self._free()
            raise
        if isinstance(self.memory, Snapshots):
            self.draft_room = min(self.draft_room, self.memory.depth)

    @property
    def native_handle(self) -> Any:
        """The llama_context pointer, for the other files of this folder."""
        self._check_open()
        return self._handle

    @property
    def is_watched(self) -> bool:
        """True when hidden rows are had by a callback for every tensor, also while nobody listens."""
        return self._tap is not None

    @property
    def has_trees(self) -> bool:
        """True when drafts may branch.

        Never on a sliding window: llama.cpp reuses an old cell of it only while one sequence owns it, so a prefix
        shared by the leaves of a tree would leave no room in the window's cache.
        """
        return self.settings.leaves > 0 and isinstance(self.memory, Truncation) and not self.model.window

    @property
    def leaves(self) -> int:
        """Most leaf paths of one draft; 1 when only chains are possible."""
        return self.settings.leaves if self.has_trees else 1

    @property
    def length(self) -> int:
        return 0 if self._torn else self._length

    @property
    def tokens(self) -> Ids:
        return self._tokens[: self.length]

    # -- reading ahead ------------------------------------------------------------------------------------------------

    def prefill(
        self,
        tokens: Sequence[int] | Ids,
        *,
        logits: bool = True,
        progress: Progress | None = None,
        cancelled: Cancelled | None = None,
    ) -> LlamaPass | None:
        """See `engine.base.Context.prefill`. Raises `ContextFullError`, `DecodeError`."""
        self._check_open()
        wanted = np.asarray(tokens, dtype=np.int32)
        assert len(wanted) or not logits, "no row follows an empty text"
        if len(wanted) > self.capacity:
            raise ContextFullError(
                f"{len(wanted)} tokens do not fit a context of {self.capacity}",
                hint="Use a larger --ctx-size or a shorter text.",
            )
        keep = common_prefix(self.tokens, wanted)
        if logits and keep and keep == len(wanted):
            keep -= 1  # the last token has to be evaluated again for its row
        keep = self._listening.missing_from(keep, len(wanted))
        if keep < self._length or self._open:
            self._retreat(keep)
        return self._extend(wanted, logits=logits, progress=progress, cancelled=cancelled)

    def _extend(
        self, wanted: Ids, *, logits: bool, progress: Progress | None = None, cancelled: Cancelled | None = None
    ) -> LlamaPass | None:
        """Evaluate what `wanted` holds beyond the cache, in pieces of the batch size."""
        total, first = len(wanted) - self._length, self._length
        with self._abort.over(cancelled if total > _LONG_PREFILL else None):
            while self._length < len(wanted):
                if cancelled and cancelled():
                    return None
                piece = wanted[self._length : self._listening.before_piece(self._length, len(wanted))]
                last = self._length + len(piece) == len(wanted)
                code = self._take_in(piece, last_row=logits and last)
                if code == _ABORTED and cancelled and cancelled():
                    return None
                self._check(code)
                if progress:
                    progress(self._length - first, total)
        if not logits:
            return None
        self.memory.before(self._length)  # a draft may follow, token by token
        return LlamaPass(self, self._ticket, 1, first=len(piece) - 1 if self._listening.all_rows else 0)

    def _take_in(self, piece: Ids, *, last_row: bool) -> int:
        """Evaluate a piece and make it part of the text; returns llama.cpp's code.

        After an abort or an interrupt part of it may be in the cache: that is forgotten, and nothing is evaluated again
        here, because someone may be waiting.
        """
        rows: Literal["all", "last", "none"] = "last" if last_row else "none"
        reached = self._length + len(piece)
        try:
            code = self._decode(self._batch.fill(piece, self._length, rows="all" if self._listening.all_rows else rows))
            if code == 0:
                self._listening.keep(self._length, slice(0, len(piece)))
                self._append(piece)
            elif code == _ABORTED or code < _REFUSED:
                self._forget(self._length, reached)
        except BaseException:
            self._forget(self._length, reached)
            raise
        return code

    # -- one round ----------------------------------------------------------------------------------------------------

    def evaluate(self, pending: int, draft: Draft) -> LlamaPass:
        """See `engine.base.Context.evaluate`. Raises `DecodeError`, with the cache put back."""
        self._check_open()
        assert not self._open, "evaluate before the last one was committed"
        count = 1 + len(draft)
        if self._length + count > self.capacity or count > self.draft_room + 1:
            raise ContextFullError(f"a draft of {count - 1} does not fit: {self._length} of {self.capacity} are used")
        if not draft.is_chain and draft.leaves > self.leaves:
            raise DecodeError(f"a draft with {draft.leaves} leaves, the context has sequences for {self.leaves}")
        if count > 1:
            self.memory.before(self._length)
        self._open, self._grown, self._draft = True, False, draft
        self._pending = pending
        if self._listening.captures:
            self._listening.before_round()
        if draft.is_chain:
            batch = self._batch.fill_chain(pending, draft.tokens, self._length)
        else:
            batch = self._spread(pending, draft)
        code = self._decode(batch)
        if code:
            self.rewind(self._length)
        self._check(code)
        return LlamaPass(self, self._ticket, count)

    def _spread(self, pending: int, draft: Draft) -> Any:
        """Give every leaf path a sequence that shares the committed prefix."""
        sequences = self._branches.spread(draft)
        tokens = np.concatenate(((pending,), draft.tokens))
        positions = np.concatenate(((self._length,), self._length + draft.depths))
        return self._batch.fill_tree(tokens, positions, sequences)

    def grow(self, tokens: Ids, parents: Ids) -> LlamaPass:
        """See `engine.base.Context.grow`. Raises `ContextFullError`, `DecodeError`; the text is put back."""
        self._check_open()
        assert not self._open or self._grown, "grow inside an evaluate"
        if not self.has_trees:
            raise DecodeError("this context takes chains only: no tree can grow in it")
        if not self._open:
            self._open, self._grown, self._draft = True, True, EMPTY
        try:
            self._check(self._decode(self._spread_layer(tokens, parents)))
        except LocalspecError:
            self.rewind(self._length)
            raise
        return LlamaPass(self, self._ticket, len(tokens))

    def _spread_layer(self, tokens: Ids, parents: Ids) -> Any:
        """Add new nodes to the open tree, each in one sequence that holds the path down to it."""
        old = self._draft
        draft = Draft(np.concatenate([old.tokens, tokens]), np.concatenate([old.parents, parents]))
        if len(draft) > self.draft_room or self._length + len(draft) > self.capacity:
            raise ContextFullError(
                f"a tree of {len(draft)} nodes does not fit: {self._length} of {self.capacity} are used"
            )
        if draft.leaves > self.leaves:
            raise DecodeError(f"a draft with {draft.leaves} leaves, the context has sequences for {self.leaves}")
        self._draft = draft
        positions = self._length - 1 + draft.depths[len(old) :]
        sequences = self._branches.extend(draft, first=len(old), base=self._length)
        return self._batch.fill_tree(tokens, positions, sequences)

    def commit(self, path: Sequence[int]) -> None:
        """See `engine.base.Context.commit`."""
        self._check_open()
        assert self._open, "commit without an evaluate"
        start, evaluated = self._length, self._evaluated
        if not self._grown:
            if self._listening.captures:
                self._listening.keep(start, [0, *(node + 1 for node in path)])
            self._tokens[self._length] = self._pending
            self._length += 1
        if path:
            self._append(self._draft.tokens[list(path)])
        if self._branches:
            if path:
                self._branches.gather(path[-1], first=self._length - len(path), end=self._length)
            self._return_sequences()
        elif self._length < start + evaluated:
            self._fall_back_to(self._length, reached=start + evaluated)
        self._open = False  # last: an interrupt before leaves it to `rewind` to forget all of it

    @property
    def _evaluated(self) -> int:
        """Tokens in the open transaction."""
        return len(self._draft) + (not self._grown)

    def _return_sequences(self) -> None:
        self._branches.take_back()
        self._grown = False

    def rewind(self, length: int) -> None:
        """See `engine.base.Context.rewind`."""
        was_torn = self._torn
        self._check_open()
        if was_torn:  # now it is empty, and nothing is evaluated again: someone may be waiting
            return
        if length > self._length:
            raise DecodeError(f"cannot rewind to {length}: the cache holds {self._length} tokens")
        if self._open or length < self._length:
            kept = self._tokens[:length].copy()
            self._retreat(length)
            self._extend(kept, logits=False)

    # -- forgetting ---------------------------------------------------------------------------------------------------

    def _retreat(self, length: int) -> None:
        """Forget from `length` on, or from earlier when the memory cannot do better; closes an open transaction."""
        reached = self._length + (self._evaluated if self._open else 0)
        self._return_sequences()
        if length < reached:
            self._forget(length, reached)
        self._open = False

    def _fall_back_to(self, length: int, *, reached: int) -> None:
        """The text is `tokens[:length]` and the cache holds `reached`: forget, and evaluate again what went too far."""
        text = self._tokens[:length].copy()
        self._forget(length, reached)
        if self._length < length:
            self._extend(text, logits=False)

    def _forget(self, length: int, reached: int) -> None:
        """Go back from `reached` tokens to `length`, or to where the memory can."""
        self._torn = True
        self._shrink(self.memory.retreat(length, reached=reached, last_pass=self._last_pass))
        self._torn = False

    def _choose_memory(self) -> None:
        """Try each strategy on four tokens: forget two, evaluate another in their place, compare with a fresh cache."""
        candidates: list[Memory] = [Truncation(self._memory_handle, self.model.window)]
        if self.model.is_recurrent:
            # Plain removal also works where there are snapshots, but only within the last pass: not a candidate here.
            depth = int(lib.llama_n_rs_seq(self._handle))
            candidates = [Snapshots(self._memory_handle, depth)] if depth else []
            candidates += [StateCopy(self._memory_handle, self._handle)]
        ids = np.arange(4, dtype=np.int32) % self.vocab_size
        expected = self._fresh_row(ids[:3])
        for memory in candidates:
            self.memory = memory
            if self._forgets_well(ids, expected):
                break
        else:
            raise LoadError(
                f"{self.model.path.name} ({self.model.architecture}) cannot forget rejected tokens: "
                "no rollback of its memory restores its state",
                hint="Please report the architecture; plain llama.cpp programs can run it.",
            )
        self._start_fresh()
        self.busy_s, self.evaluated = 0.0, 0

    def _fresh_row(self, ids: Ids) -> Row:
        result = self._extend(ids, logits=True)
        assert result is not None
        row = result.logits(0).copy()
        self._start_fresh()
        if not np.isfinite(row).all():
            raise LoadError(
                f"{self.model.path.name} computes logits that are no numbers: its weights are damaged",
                hint="Fetch the file again, or choose another quantisation.",
            )
        return row

    def _forgets_well(self, ids: Ids, expected: Row) -> bool:
        """True when the third token, after a rejected draft, gets the row it gets in a fresh cache."""
        self._extend(ids[:1], logits=False)
        self.evaluate(int(ids[1]), Draft.chain(ids[3:4]))
        self._open = False
        self._forget(2, reached=3)
        if self._length == 0:
            return False
        try:
            result = self._extend(ids[:3], logits=True)
        except DecodeError:  # it said that it forgot, and what follows does not fit what it still holds
            self._start_fresh()
            return False
        assert result is not None
        difference = float(np.abs(result.logits(0) - expected).max())
        self._start_fresh()
        return difference <= 0.1 * float(np.abs(expected).max() or 1.0)

    def _start_fresh(self) -> None:
        lib.llama_memory_clear(self._memory_handle, True)
        self.memory.forget()
        self._shrink(0)
        self._last_pass, self._open, self._torn = 0, False, False

    def _shrink(self, length: int) -> None:
        """The cache holds `length` tokens, at most as many as before."""
        self._length = length
        self._listening.truncate(length)

    # -- hidden rows --------------------------------------------------------------------------------------------------

    def capture(self, spec: FeatureSpec, *, reduce: Reduce | None = None, width: int | None = None) -> Capture:
        """Keep the hidden rows of the text from now on; what is in the cache gets them at the next prefill.

        Only what the captures that are on ask for is computed and copied. An architecture that does not give the
        inputs of its layers needs a context that watches its evaluation: it is made anew, empty.
        Raises `LoadError` when the model does not give what is asked for.
        """
        self._check_open()
        check(spec, layers=self.model.layers, name=self.model.path.name)
        if spec.final:
            check_final(self.model)
        inner = sorted(layer for layer in spec.layers if layer < self.model.layers)
        if inner and not gives_layer_inputs(self.model, inner):
            self._watch(inner)
        if self.model.layers in spec.layers:
            check_last_layer(self.model, watched=self._tap is not None)
        capture = Capture(
            spec,
            raw_width=self.model.width * (len(spec.layers) + spec.final),
            capacity=self.capacity,
            batch=self._batch.capacity,
            reduce=reduce,
            width=width,
        )
        self._listening.add(capture)
        return capture

    def release(self, capture: Capture) -> None:
        """Forget the rows of `capture`, and stop computing what only it asked for. Once is enough."""
        if self._handle:
            self._listening.remove(capture)

    def listen(self) -> None:
        """To be called after a capture was switched on or off."""
        self._check_open()
        self._listening.refresh()

    def _watch(self, layers: list[int]) -> None:
        """Make the native context anew, with a callback that sees the inputs of `layers` pass."""
        if layers[0] == 0 or self.dependants or (self._tap and not set(layers) <= set(self._tap.rows)):
            raise LoadError(
                f"llama.cpp does not give the hidden states of {self.model.architecture}, and watching it compute "
                f"layers {layers} is not possible here",
                hint="Choose a drafter that needs none, like ngram or model.",
            )
        if self._tap:
            return
        tap = Tap(layers, width=self.model.width, batch=self._batch.capacity)
        tap.on = True
        self._create_anew(tap)
        unseen = sorted(set(layers) - tap.seen)
        if unseen:
            self._create_anew(None)
            raise LoadError(
                f"llama.cpp does not give the hidden states of {self.model.architecture}, and no tensor of its graph "
                f"is known as the input of layer {unseen[0]}",
                hint="Choose a drafter that needs none, like ngram or model.",
            )

    # -- llama.cpp ----------------------------------------------------------------------------------------------------

    def _decode(self, batch: Any) -> int:
        started = time.perf_counter()
        self._ticket += 1
        # Before the work: an interrupt comes right behind it, and a wrong size would be trusted with snapshots.
        self._last_pass = int(batch.n_tokens)
        code = int(lib.llama_decode(self._handle, batch))
        address = native.logits_address(self._handle)
        self.busy_s += time.perf_counter() - started
        if address != self._rows_at:
            self._map_rows(address)
        self.evaluated += self._last_pass
        return code

    def _check(self, code: int) -> None:
        if code:
            raise DecodeError(
                f"llama.cpp could not evaluate tokens after position {self._length} of {self.capacity}: "
                f"{CODES.get(code, 'fatal error')} (code {code})",
                hint="Set LOCALSPEC_DEBUG=1 to see llama.cpp's log.",
            )

    def _map_rows(self, address: int | None) -> None:
        """Views of the rows in llama.cpp's output buffer, made anew only when the buffer moves."""
        self._rows_at = address
        self._rows = list(native.floats(address, self._outputs, self.vocab_size)) if address else []

    def logits_row(self, ticket: int, index: int) -> Row:
        """Kept row `index` of the evaluation with this ticket."""
        assert ticket == self._ticket, "a row was read after the next evaluation"
        if not self._rows:
            raise DecodeError("llama.cpp kept no logits of the last evaluation")
        return self._rows[index]

    def _append(self, tokens: Ids) -> None:
        self._tokens[self._length : self._length + len(tokens)] = tokens
        self._length += len(tokens)

    def _check_open(self) -> None:
        """Raises `DecodeError` when it is closed; what an interrupt has left half done is put in order."""
        if not self._handle:
            raise DecodeError("this context has been closed", hint="Load the model again.")
        self._abort.end()
        if self._torn:
            self._start_fresh()

    def _create_anew(self, tap: Tap | None) -> None:
        assert not self._open, "made anew in the middle of a round"
        listening = self._listening
        self._shrink(0)
        self._free()
        self._tap, self._rows_at, self._last_pass = tap, None, 0
        self._create()
        for capture in listening.captures:
            self._listening.add(capture)

    def close(self) -> None:
        self._free()

    def _free(self) -> None:
        if self._handle:
            lib.llama_free(self._handle)
            self._batch.free()
            self._handle, self._rows = None, []

    def __enter__(self) -> LlamaContext:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def common_prefix(left: Ids, right: Ids) -> int:
    """How many leading ids agree."""
    count = min(len(left), len(right))
    left, right = left[:count], right[:count]
    if left.tobytes() == right.tobytes():  # as after each round, and quicker than a comparison of arrays
        return count
    return int((left != right).argmax())
