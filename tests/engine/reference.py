"""A fresh look at a text: the logits llama.cpp gives when the cache holds nothing but this text, evaluated at once.

Written against llama_cpp alone, so that it shares no line with the engine it checks.
"""

from __future__ import annotations

from collections.abc import Sequence

import llama_cpp.llama_cpp as lib
import numpy as np
import numpy.typing as npt

from localspec.engine.context import ContextSettings
from localspec.engine.model import LlamaModel

Rows = npt.NDArray[np.float32]
CACHE_TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}
FLASH = {"auto": -1, "off": 0, "on": 1}


class Reference:
    """One context of the same settings whose cache is emptied before each question."""

    def __init__(self, model: LlamaModel, settings: ContextSettings) -> None:
        self.vocab_size = model.vocab.size
        self.piece = 64
        params = lib.llama_context_default_params()
        params.n_ctx = settings.capacity
        params.n_batch = params.n_ubatch = self.piece
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = CACHE_TYPES[settings.kv_type]
        params.flash_attn_type = FLASH[settings.flash_attn]
        self.handle = lib.llama_init_from_model(model.handle, params)
        assert self.handle

    def rows(self, tokens: Sequence[int], count: int = 1) -> Rows:
        """(count, V): the rows after the last `count` tokens."""
        lib.llama_memory_clear(lib.llama_get_memory(self.handle), True)
        found: list[Rows] = []
        for start in range(0, len(tokens), self.piece):
            found.extend(self._decode(tokens[start : start + self.piece], start))
        return np.array(found[-count:])

    def _decode(self, tokens: Sequence[int], start: int) -> list[Rows]:
        batch = lib.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, start + i, 1, 1
            batch.seq_id[i][0] = 0
        code = lib.llama_decode(self.handle, batch)
        lib.llama_batch_free(batch)
        assert code == 0
        row = lib.llama_get_logits_ith
        size = (self.vocab_size,)
        return [np.ctypeslib.as_array(row(self.handle, i), size).copy() for i in range(len(tokens))]

    def __enter__(self) -> Reference:
        return self

    def __exit__(self, *_: object) -> None:
        lib.llama_free(self.handle)
