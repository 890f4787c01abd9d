"""Writing small GGUF files: what training and conversion export. The counterpart of `gguf`, as little as heads need.

The `gguf` package could do it, but it would be one more dependency for two hundred bytes of format, and it knows
neither our keys nor how to copy a tokenizer unread.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from localspec.catalog.gguf import Raw
from localspec.catalog.quantisation import TENSOR_TYPES

Value = str | bool | int | float | Sequence[str] | Sequence[int] | Sequence[float] | Raw
ALIGNMENT = 32
BLOCK = 32
"""Weights that share a scale in Q8_0 and Q4_0."""
_NUMBERS = {name: number for number, (name, _, _) in TENSOR_TYPES.items()}
_U32, _I32, _F32, _BOOL, _TEXT, _ARRAY = 4, 5, 6, 7, 8, 9


@dataclass(frozen=True)
class Encoded:
    """A tensor ready for a file. shape as numpy counts, (out, in)."""

    shape: tuple[int, ...]
    kind: int
    data: bytes


def encode(values: npt.ArrayLike, kind: str) -> Encoded:
    """`values` as tensor of type "F32", "F16", "Q8_0", "Q4_0" or "I64"; quantised rows are multiples of 32."""
    array = np.asarray(values)
    if kind in ("Q8_0", "Q4_0"):
        if array.ndim == 0 or array.shape[-1] % BLOCK:
            raise ValueError(f"{kind} takes rows of a multiple of {BLOCK} weights, not {array.shape}")
        blocks = np.ascontiguousarray(array, dtype=np.float32).reshape(-1, BLOCK)
        data = (_q8_0 if kind == "Q8_0" else _q4_0)(blocks)
    else:
        dtype = {"F32": "<f4", "F16": "<f2", "I64": "<i8"}[kind]
        data = np.ascontiguousarray(array, dtype=dtype).tobytes()
    return Encoded(array.shape, _NUMBERS[kind], data)


def _q8_0(blocks: npt.NDArray[np.float32]) -> bytes:
    """One scale and 32 whole numbers -127 .. 127 per block, as ggml rounds them."""
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    scaled = blocks * _inverse(scale)
    numbers = np.trunc(scaled + np.copysign(np.float32(0.5), scaled)).astype(np.int8)
    return np.concatenate([scale.astype("<f2").view(np.uint8), numbers.view(np.uint8)], axis=1).tobytes()


def _q4_0(blocks: npt.NDArray[np.float32]) -> bytes:
    """One scale and 32 numbers 0 .. 15 per block; the largest weight becomes 0, which stands for -8."""
    at = np.abs(blocks).argmax(axis=1)[:, None]
    scale = np.take_along_axis(blocks, at, axis=1) / np.float32(-8)
    numbers = np.clip(np.trunc(blocks * _inverse(scale) + np.float32(8.5)), 0, 15).astype(np.uint8)
    halves = numbers[:, : BLOCK // 2] | numbers[:, BLOCK // 2 :] << 4
    return np.concatenate([scale.astype("<f2").view(np.uint8), halves], axis=1).tobytes()


def _inverse(scale: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """1 / scale, 0 for blocks of zeros."""
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)


def write_gguf(path: Path, keys: Mapping[str, Value], tensors: Mapping[str, Encoded]) -> None:
    """The file at `path`, under its name only when it is whole. Whole numbers become u32, in lists i32; floats f32."""
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(keys))]
    for key, value in keys.items():
        head += [_text(key), value.bytes if isinstance(value, Raw) else _value(value)]
    offset = 0
    for name, tensor in tensors.items():
        sizes = tensor.shape[::-1]
        head += [_text(name), struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, tensor.kind, offset)]
        offset += _padded(len(tensor.data))
    start = b"".join(head)
    partial = path.with_name(f"{path.name}.part")
    try:
        with partial.open("wb") as file:
            file.write(start.ljust(_padded(len(start)), b"\0"))
            for tensor in tensors.values():
                file.write(tensor.data.ljust(_padded(len(tensor.data)), b"\0"))
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> bytes:
    kind, data = _scalar(value) if isinstance(value, str | bool | int | float) else _list(value)
    return struct.pack("<I", kind) + data


def _scalar(value: str | bool | float) -> tuple[int, bytes]:
    if isinstance(value, str):
        return _TEXT, _text(value)
    if isinstance(value, bool):
        return _BOOL, struct.pack("<?", value)
    if isinstance(value, int):
        return _U32, struct.pack("<I", value)
    return _F32, struct.pack("<f", value)


def _list(values: Sequence[str] | Sequence[int] | Sequence[float] | Raw) -> tuple[int, bytes]:
    assert not isinstance(values, Raw)
    if all(isinstance(value, str) for value in values):
        kind, data = _TEXT, b"".join(_text(str(value)) for value in values)
    elif all(isinstance(value, int) for value in values):
        kind, data = _I32, struct.pack(f"<{len(values)}i", *values)
    else:
        kind, data = _F32, struct.pack(f"<{len(values)}f", *values)
    return _ARRAY, struct.pack("<IQ", kind, len(values)) + data
