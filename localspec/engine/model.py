"""A loaded GGUF: weights, vocabulary, facts. Contexts are made from it in `context`."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localspec.engine import native
from localspec.engine.native import lib
from localspec.engine.vocab import LlamaVocab
from localspec.errors import LoadError


class LlamaModel:
    """Weights in memory. `close()` (or `with`) frees them; contexts must be closed first."""

    def __init__(
        self, path: str | os.PathLike[str], *, gpu_layers: int, progress: Callable[[float], None] | None = None
    ) -> None:
        """Load `path` (the first part of a split file) with `gpu_layers` layers on the GPU (negative: all).

        `progress` hears fractions 0..1; an exception in it (Ctrl-C) aborts the load and is raised again.
        Raises `LoadError` with llama.cpp's own reason.
        """
        self.path = Path(path)
        self.gpu_layers = gpu_layers
        params = lib.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        failure: list[BaseException] = []

        def report(fraction: float, _data: Any) -> bool:
            try:
                if progress:
                    progress(fraction)
            except BaseException as error:  # noqa: BLE001  a callback must not unwind through C; the load is stopped
                failure.append(error)
            return not failure

        params.progress_callback = callback = lib.llama_progress_callback(report)
        with native.heard():
            self._handle: Any = lib.llama_model_load_from_file(os.fsencode(self.path), params)
        del callback
        if self._handle:
            self.vocab = LlamaVocab(lib.llama_model_get_vocab(self._handle))
        if failure:
            self.close()
            raise failure[0]
        if not self._handle:
            reason = native.complaint() or "no reason was given"
            raise LoadError(
                f"llama.cpp could not load {self.path.name}: {reason}",
                hint="Check the file with `localspec models show`; a newer llama-cpp-python may know this model.",
            )

    @property
    def handle(self) -> Any:
        """The llama_model pointer, for the other files of this folder."""
        if not self._handle:
            raise LoadError(f"{self.path.name} has been closed", hint="Load it again.")
        return self._handle

    @functools.cached_property
    def architecture(self) -> str:
        return self.meta("general.architecture") or "unknown"

    @functools.cached_property
    def name(self) -> str:
        return self.meta("general.name") or self.path.stem

    @functools.cached_property
    def description(self) -> str:
        """llama.cpp's description: architecture, size class, quantisation."""
        buffer = ctypes.create_string_buffer(256)
        lib.llama_model_desc(self.handle, buffer, 256)
        return buffer.value.decode("utf-8", "replace")

    @functools.cached_property
    def template(self) -> str | None:
        """The chat template stored in the file, None when there is none."""
        text = lib.llama_model_chat_template(self.handle, None)
        return text.decode("utf-8", "replace") if text else None

    @functools.cached_property
    def layers(self) -> int:
        return int(lib.llama_model_n_layer(self.handle))

    @functools.cached_property
    def width(self) -> int:
        """Numbers in a hidden row."""
        return int(lib.llama_model_n_embd(self.handle))

    @functools.cached_property
    def bytes(self) -> int:
        """Size of all tensors."""
        return int(lib.llama_model_size(self.handle))

    @functools.cached_property
    def window(self) -> int:
        """Sliding attention window in tokens, 0 when all attention is full."""
        return int(lib.llama_model_n_swa(self.handle))

    @functools.cached_property
    def is_recurrent(self) -> bool:
        """True when any layer keeps a recurrent state (hybrids included)."""
        return bool(lib.llama_model_is_recurrent(self.handle) or lib.llama_model_is_hybrid(self.handle))

    @functools.cached_property
    def can_decode(self) -> bool:
        """False for encoders and diffusion models, which have no next-token law."""
        return bool(lib.llama_model_has_decoder(self.handle)) and not lib.llama_model_is_diffusion(self.handle)

    def meta(self, key: str) -> str | None:
        """A scalar metadata value as text."""
        buffer = ctypes.create_string_buffer(4096)
        count = lib.llama_model_meta_val_str(self.handle, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace") if count >= 0 else None

    def close(self) -> None:
        if self._handle:
            self.vocab.close()
            lib.llama_model_free(self._handle)
            self._handle = None

    def __enter__(self) -> LlamaModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
