"""The same weights in a wider format: a quantised file decoded once, so that large batches go faster.

On a CPU without fast kernels for a quantisation, batches of dozens of tokens are bound by arithmetic: BF16 was three
times as fast as Q4_1 (docs/training.md). The weights are the quantised ones, their rounding to BF16 apart; what differs
more is that activations are no longer quantised.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from localspec.engine import native
from localspec.engine.native import lib
from localspec.errors import LoadError

FORMATS = {"f32": 0, "f16": 1, "bf16": 32}


def expand(source: Path, target: Path, format_name: str, *, threads: int) -> None:
    """Write `source` as `target`, which appears when it is whole. Raises `LoadError` with llama.cpp's reason."""
    wanted = lib.llama_model_quantize_default_params()
    wanted.ftype = FORMATS[format_name]
    wanted.allow_requantize = True
    wanted.nthread = threads
    unfinished = target.with_name(f"{target.name}.part")
    try:
        with native.heard():
            code = int(lib.llama_model_quantize(os.fsencode(source), os.fsencode(unfinished), ctypes.byref(wanted)))
        if code:
            raise LoadError(
                f"llama.cpp could not write {source.name} as {format_name}: {native.complaint() or f'code {code}'}",
                hint="Use --hold as-is.",
            )
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
