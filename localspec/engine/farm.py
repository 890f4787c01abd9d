"""Many texts in one context, token by token side by side: how training data is made.

A farm has a fixed number of plots, each with a text of its own. It hands out logits where they are wanted and the
hidden rows of every token: the inputs of chosen layers, and the last row (after the final norm). It knows nothing of
drafts and never rolls back; `LlamaContext` does that for one text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.core.draft import Ids
from localspec.engine import native
from localspec.engine.asking import gives_layer_inputs
from localspec.engine.batch import TokenBatch
from localspec.engine.hidden import check_final
from localspec.engine.model import LlamaModel
from localspec.engine.native import lib
from localspec.errors import DecodeError, LoadError

Floats = npt.NDArray[np.float32]
BATCH = 512  # tokens of a prompt evaluated at once


@dataclass(frozen=True)
class FarmSettings:
    """plots: texts side by side; capacity: tokens of each; layers: whose inputs are wanted."""

    plots: int = 16
    capacity: int = 768
    layers: tuple[int, ...] = ()
    threads: int = 1


@dataclass(frozen=True)
class Crop:
    """What one evaluation of n tokens gave.

    logits  (k, V) view, valid until the next evaluation: after the last token of a text that was read, after each
            token of a step
    layers  (n, L, D): inputs of the chosen layers
    last    (n, D): after the final norm
    """

    logits: Floats
    layers: Floats
    last: Floats


class Farm:
    """A context of many texts. `close()` (or `with`) frees it; the model stays."""

    def __init__(self, model: LlamaModel, settings: FarmSettings) -> None:
        """Raises `LoadError`: no context of this size, or no hidden rows from this model."""
        _check(model, settings.layers)
        self.model = model
        self.settings = settings
        self.width = int(lib.llama_model_n_embd(model.handle))
        self._size = model.vocab.size
        self._lengths = [0] * settings.plots
        params = lib.llama_context_default_params()
        params.n_ctx = settings.capacity * settings.plots
        params.n_batch = params.n_ubatch = max(BATCH, settings.plots)
        params.n_seq_max = settings.plots
        params.n_threads = params.n_threads_batch = settings.threads
        params.embeddings = True
        params.kv_unified = False  # each text attends to itself only, at its own cost
        params.no_perf = True
        with native.heard():
            self._handle: Any = lib.llama_init_from_model(model.handle, params)
        if not self._handle:
            raise LoadError(
                f"llama.cpp could not make a context of {settings.plots} texts of {settings.capacity} tokens for "
                f"{model.path.name}: {native.complaint() or 'no reason was given'}",
                hint="Make fewer texts at a time: --parallel 4.",
            )
        self._memory = lib.llama_get_memory(self._handle)
        self._batch = TokenBatch(params.n_batch, 1)
        for layer in settings.layers:
            native.set_layer_input(self._handle, layer, True)

    def clear(self, plot: int) -> None:
        """Forget the text of a plot."""
        lib.llama_memory_seq_rm(self._memory, plot, -1, -1)
        self._lengths[plot] = 0

    def read(self, plot: int, tokens: Sequence[int] | Ids) -> Crop:
        """Go on with `tokens` in one plot; logits after the last one."""
        ids = np.asarray(tokens, dtype=np.int32)
        crops = []
        for first in range(0, len(ids), self._batch.capacity):
            piece = ids[first : first + self._batch.capacity]
            start = self._lengths[plot]
            positions = np.arange(start, start + len(piece), dtype=np.int32)
            crops.append(self._evaluate(piece, positions, [plot] * len(piece), last_only=True))
        return Crop(
            crops[-1].logits,
            np.concatenate([crop.layers for crop in crops]),
            np.concatenate([crop.last for crop in crops]),
        )

    def step(self, plots: Sequence[int], tokens: Sequence[int]) -> Crop:
        """One more token in each of these plots (ascending); logits after each."""
        positions = np.array([self._lengths[plot] for plot in plots], dtype=np.int32)
        return self._evaluate(np.asarray(tokens, dtype=np.int32), positions, plots, last_only=False)

    def _evaluate(
        self, tokens: Ids, positions: npt.NDArray[np.int32], plots: Sequence[int], *, last_only: bool
    ) -> Crop:
        count = len(tokens)
        if max(int(position) for position in positions) >= self.settings.capacity:
            raise DecodeError(
                f"a text of the farm is longer than {self.settings.capacity} tokens",
                hint="Make shorter ones: --answer-tokens.",
            )
        batch = self._batch.fill_tree(tokens, positions, [(plot,) for plot in plots])
        code = int(lib.llama_decode(self._handle, batch))
        if code:
            raise DecodeError(
                f"llama.cpp could not evaluate {count} tokens (code {code})",
                hint="Make fewer texts at a time: --parallel 4.",
            )
        for plot in plots:
            self._lengths[plot] += 1
        logits = self._view(native.logits_address(self._handle), count, self._size)
        layers = np.empty((count, len(self.settings.layers), self.width), dtype=np.float32)
        for place, layer in enumerate(self.settings.layers):
            layers[:, place] = self._view(native.layer_input_address(self._handle, layer), count, self.width)
        last = self._view(native.embeddings_address(self._handle), count, self.width)
        return Crop(logits[-1:] if last_only else logits, layers, last.copy())

    def _view(self, address: int | None, rows: int, width: int) -> Floats:
        if not address:
            raise DecodeError(
                "llama.cpp kept no hidden rows of the last evaluation",
                hint="Another release of llama-cpp-python may keep them; `localspec doctor` names this one.",
            )
        return native.floats(address, rows, width)

    def close(self) -> None:
        if self._handle:
            lib.llama_free(self._handle)
            self._batch.free()
            self._handle = None

    def __enter__(self) -> Farm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check(model: LlamaModel, layers: Sequence[int]) -> None:
    """Raises `LoadError` for what llama.cpp would end the process over, or answer with old numbers."""
    for layer in layers:
        if not 0 <= layer < model.layers:
            raise LoadError(
                f"layer {layer} does not exist: {model.path.name} has layers 0 to {model.layers - 1}",
                hint="Choose others with --layers.",
            )
    if layers and not gives_layer_inputs(model, layers):
        raise LoadError(
            f"llama.cpp does not give the hidden states between the layers of {model.architecture}",
            hint="Train a head for another verifier, like a llama or qwen3 model.",
        )
    check_final(model)
