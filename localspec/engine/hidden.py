"""Reads the hidden rows of a llama.cpp context's last evaluation.

Three sources: the inputs of layers, which llama.cpp copies out when asked; the row after the last norm, which comes
with the logits; and, for architectures that do not give the inputs of their layers, a look at each tensor as it is
computed (`Tap`), which every evaluation of that context pays for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.engine import native
from localspec.engine.base import FeatureSpec
from localspec.engine.batch import TokenBatch
from localspec.engine.model import LlamaModel
from localspec.engine.native import lib
from localspec.errors import LoadError

Rows = npt.NDArray[np.float32]


class Tap:
    """An evaluation callback that copies the residual stream between layers: `l_out-<i>` is the input of layer i + 1.

    Must be given to a context when it is made. llama.cpp then asks about every node of every graph.
    """

    def __init__(self, layers: Collection[int], *, width: int, batch: int) -> None:
        self.on = False
        self._targets = {
            f"l_out-{layer - 1}".encode(): (layer, np.empty((batch, width), dtype=np.float32)) for layer in layers
        }
        self.rows = dict(self._targets.values())
        self.seen: set[int] = set()
        self._width = width
        base = native.ggml("ggml-base")
        self._name = base.ggml_get_name
        self._name.argtypes, self._name.restype = [ctypes.c_void_p], ctypes.c_char_p
        self._bytes = base.ggml_nbytes
        self._bytes.argtypes, self._bytes.restype = [ctypes.c_void_p], ctypes.c_size_t
        self._copy = base.ggml_backend_tensor_get
        self._copy.argtypes, self._copy.restype = [ctypes.c_void_p] * 2 + [ctypes.c_size_t] * 2, None
        self.callback = lib.ggml_backend_sched_eval_callback(self._look)

    def _look(self, tensor: int, asks: bool, _data: Any) -> bool:
        """True: this tensor, please; and then: go on."""
        target = self._targets.get(self._name(tensor)) if self.on else None
        if asks or target is None:
            return not asks or target is not None
        layer, rows = target
        size = self._bytes(tensor)
        if size <= rows.nbytes and size % (4 * self._width) == 0:
            self._copy(tensor, rows.ctypes.data, 0, size)
            self.seen.add(layer)
        return True


class HiddenRows:
    """What is switched on in one context, and views of what the last evaluation left."""

    def __init__(self, handle: Any, *, width: int, layers: int, batch: int, tap: Tap | None = None) -> None:
        """`width` of the residual stream, `layers` of the model, `batch` tokens per evaluation at most."""
        self.width = width
        self._handle = handle
        self._layers = layers
        self._batch = batch
        self._tap = tap
        self._on: set[int] = set()
        self._final = False
        self._views: dict[int, Rows] = {}  # by address

    @property
    def last_rows(self) -> bool:
        """True while the final rows are switched on: then every token of a batch must be an output."""
        return self._final

    def listen(self, layers: Collection[int]) -> None:
        """Switch on the inputs of exactly these layers."""
        wanted = set(layers)
        if self._tap:
            self._tap.on = bool(wanted)
            self._on = wanted
            return
        for layer in wanted ^ self._on:
            if layer == self._layers:
                native.set_nextn(self._handle, layer in wanted, False)
            else:
                native.set_layer_input(self._handle, layer, layer in wanted)
        self._on = wanted

    def listen_to_final(self, on: bool) -> None:
        """Switch the final rows on or off for the evaluations that follow."""
        if on != self._final:
            lib.llama_set_embeddings(self._handle, on)
            self._final = on

    def read(self, spec: FeatureSpec, rows: slice | Sequence[int]) -> Rows:
        """(n, width of the spec): these rows of the last evaluation, counted in the order of its batch; a copy."""
        parts = [self._layer(layer)[rows] for layer in spec.layers]
        if spec.final:
            parts.append(self._view(native.embeddings_address(self._handle))[rows])
        return np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0].copy()

    def _layer(self, layer: int) -> Rows:
        if self._tap:
            return self._tap.rows[layer]
        if layer == self._layers:
            return self._view(native.nextn_address(self._handle))
        return self._view(native.layer_input_address(self._handle, layer))

    def _view(self, address: int | None) -> Rows:
        assert address, "no hidden rows: they were not switched on"
        known = self._views.get(address)
        if known is None:
            if len(self._views) > 64:  # the buffer has moved often
                self._views.clear()
            known = self._views[address] = native.floats(address, self._batch, self.width)
        return known


def check(spec: FeatureSpec, *, layers: int, name: str) -> None:
    """Raises `LoadError` for layers that a model of so many layers does not have."""
    wrong = [layer for layer in spec.layers if not 0 <= layer <= layers]
    if wrong or not (spec.layers or spec.final):
        raise LoadError(
            f"hidden rows of layer {wrong[0] if wrong else '(none)'} are asked for, and {name} has {layers} layers",
            hint="The head belongs to another verifier: choose one that was trained for this model.",
        )


def check_final(model: LlamaModel) -> None:
    """Raises `LoadError` when the final rows of this architecture cost its logits, as LFM2's do.

    llama.cpp says nothing then and leaves old numbers where the logits were; a context of a few tokens shows it.
    """
    without, with_ = (_logits(model, embeddings=on) for on in (False, True))
    if without is None or with_ is None or np.abs(with_ - without).max() > 0.1 * float(np.abs(without).max() or 1.0):
        raise LoadError(
            f"with its hidden states llama.cpp gives no logits of {model.architecture}",
            hint="Choose a head that reads the inputs of layers only, or another drafter.",
        )


def _logits(model: LlamaModel, *, embeddings: bool) -> Rows | None:
    """(2, V): the rows after the first two tokens of the vocabulary, None when they could not be had."""
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = 32, 4, 4, 1
    handle = lib.llama_init_from_model(model.handle, params)
    if not handle:
        return None
    batch = TokenBatch(4, 1)
    try:
        lib.llama_set_embeddings(handle, embeddings)
        code = lib.llama_decode(handle, batch.fill(np.array([0, 1], dtype=np.int32), 0, rows="all"))
        address = native.logits_address(handle)
        return native.floats(address, 2, model.vocab.size).copy() if code == 0 and address else None
    finally:
        batch.free()
        lib.llama_free(handle)


def check_last_layer(model: LlamaModel, *, watched: bool) -> None:
    """Raises `LoadError` when llama.cpp does not give what leaves the last layer of this architecture.

    It says nothing then and leaves its buffer as it was; so a context of a few tokens shows whether it is written.
    """
    if not watched and native.set_nextn is not None and _writes_last_layer(model):
        return
    raise LoadError(
        f"llama.cpp does not give what leaves the last layer of {model.architecture}",
        hint="Choose a head that reads the inputs of layers only, or another drafter.",
    )


def _writes_last_layer(model: LlamaModel) -> bool:
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = 32, 4, 4, 1
    handle = lib.llama_init_from_model(model.handle, params)
    if not handle:
        return False
    batch = TokenBatch(4, 1)
    try:
        native.set_nextn(handle, True, False)
        rows: Rows = np.empty(0, dtype=np.float32)
        for position in (0, 1):
            rows[:] = np.nan
            token = np.array([position], dtype=np.int32)
            code = lib.llama_decode(handle, batch.fill(token, position, rows="last"))
            address = native.nextn_address(handle)
            if code or not address:
                return False
            rows = native.floats(address, 1, model.width)
        return bool(np.isfinite(rows).all())
    finally:
        batch.free()
        lib.llama_free(handle)
