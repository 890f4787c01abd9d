"""Numbers out of quantised tensor bytes, by the routines of the libggml that llama.cpp brings. Knows no files."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from localspec.engine import ggml
from localspec.errors import LoadError


def dequantise(data: bytes, kind: int, count: int) -> npt.NDArray[np.float32]:
    """The `count` numbers that a tensor of ggml type `kind` stands for. Raises `LoadError` where there are none."""
    if kind == ggml.F32 and 4 * count <= len(data):
        return np.frombuffer(data, dtype=np.float32, count=count).copy()
    traits = ggml.lib().get_type_traits(kind).contents
    if not traits.to_float or traits.block_bytes * (count // traits.block) > len(data):
        raise LoadError(f"tensors of ggml type {kind} cannot be read as numbers", hint="Use another quantisation.")
    values = np.empty(count, dtype=np.float32)
    traits.to_float(data, values.ctypes.data, count)
    return values
