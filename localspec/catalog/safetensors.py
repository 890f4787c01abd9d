"""Tensors of one `.safetensors` file, read without a library and without trusting a number in it.

The format is eight bytes of length, a JSON object of names, types and offsets, and the data
(https://github.com/huggingface/safetensors). Knows names, shapes and numbers; not what they mean.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.errors import ModelFileError

Array = npt.NDArray[Any]

MOST_HEADER = 100 * 2**20
AGAIN = "Fetch the file again, or another copy of the checkpoint."
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
          "U8": "u1", "BOOL": "?"}  # fmt: skip


@dataclass(frozen=True)
class Stored:
    """Where a tensor lies in its file; offset and bytes count from the beginning of the file."""

    path: Path
    kind: str
    shape: tuple[int, ...]
    offset: int
    bytes: int

    def read(self) -> Array:
        """The numbers; BF16 as float32. Raises `ModelFileError` for a type that has no numbers here."""
        if self.kind not in _TYPES:
            raise ModelFileError(
                f"{self.path.name} holds weights of type {self.kind}, which cannot be read.",
                hint="Use the F16, BF16 or F32 checkpoint of the head.",
            )
        with self.path.open("rb") as file:
            file.seek(self.offset)
            data = file.read(self.bytes)
        array = np.frombuffer(data, dtype=_TYPES[self.kind]).reshape(self.shape)
        return widened(array) if self.kind == "BF16" else array


def widened(halves: Array) -> Array:
    """bfloat16, as unsigned numbers of 16 bits, to float32."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


def read_tensors(path: Path) -> dict[str, Stored]:
    """The tensors of `path` by name. Raises `ModelFileError` for what is no such file or is cut short."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if len(start) < 8 or not 2 <= length <= min(size - 8, MOST_HEADER):
                raise _broken(path, "it does not begin like a safetensors file, or is cut short")
            header = json.loads(file.read(length))
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}.", hint="Check the path.") from error
    except (ValueError, RecursionError) as error:
        raise _broken(path, "its header is no JSON") from error
    if not isinstance(header, dict):
        raise _broken(path, "its header is no JSON object")
    found = {name: entry for name, entry in header.items() if name != "__metadata__"}
    return {name: _stored(path, name, entry, start=8 + length, size=size) for name, entry in found.items()}


def _stored(path: Path, name: str, entry: Any, *, start: int, size: int) -> Stored:
    try:
        kind, shape = str(entry["dtype"]), tuple(int(length) for length in entry["shape"])
        first, last = (int(offset) for offset in entry["data_offsets"])
    except (TypeError, KeyError, ValueError):
        raise _broken(path, f"the entry of {name[:80]!r} cannot be understood") from None
    if not 0 <= first <= last or any(length < 0 for length in shape):
        raise _broken(path, f"the entry of {name[:80]!r} makes no sense")
    if start + last > size:
        raise _broken(
            path, f"it is cut short: {name[:80]!r} ends after {start + last:,} bytes, the file after {size:,}"
        )
    if kind in _TYPES and math.prod(shape) * np.dtype(_TYPES[kind]).itemsize != last - first:
        raise _broken(path, f"{name[:80]!r} has another size than its shape")
    return Stored(path, kind, shape, start + first, last - first)


def _broken(path: Path, why: str) -> ModelFileError:
    return ModelFileError(f"{path} cannot be read: {why}.", hint=AGAIN)
