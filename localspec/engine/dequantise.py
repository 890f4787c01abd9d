"""Numbers out of quantised tensor bytes, by the routines of the libggml that llama.cpp brings. Knows no files."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from localspec.engine import native
from localspec.errors import LoadError

_TO_FLOAT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_FLOAT32 = 0


class _Traits(ctypes.Structure):
    """`ggml_type_traits` as far as it is read."""

    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("block", ctypes.c_int64),
        ("interleaved", ctypes.c_int64),
        ("size", ctypes.c_size_t),
        ("is_quantised", ctypes.c_bool),
        ("to_float", _TO_FLOAT),
    )


def dequantise(data: bytes, kind: int, count: int) -> npt.NDArray[np.float32]:
    """The `count` numbers that a tensor of ggml type `kind` stands for. Raises `LoadError` for a type without any."""
    if kind == _FLOAT32:
        return np.frombuffer(data, dtype=np.float32, count=count).copy()
    ask = native.ggml_base().ggml_get_type_traits
    ask.restype, ask.argtypes = ctypes.POINTER(_Traits), (ctypes.c_int,)
    traits = ask(kind).contents
    if not traits.to_float or traits.size * (count // traits.block) > len(data):
        raise LoadError(f"tensors of ggml type {kind} cannot be read as numbers", hint="Use another quantisation.")
    values = np.empty(count, dtype=np.float32)
    traits.to_float(data, values.ctypes.data, count)
    return values
