"""Tensors of one file written by `torch.save`, read without torch and without running anything that is in it.

Such a file is a zip archive of raw storages and a pickle that says how tensors lie in them. A pickle may call any
function by name; here it may name six things, all of them ours or harmless, and anything else is an error.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from localspec.catalog.safetensors import AGAIN, Array, widened
from localspec.errors import ModelFileError

MOST_PICKLE = 64 * 2**20
_STORAGES = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "BFloat16Storage": "<u2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}


@dataclass(frozen=True)
class Kind:
    """The element type of a storage, by torch's name."""

    name: str


@dataclass(frozen=True)
class Storage:
    """Raw numbers in the archive: `count` of them in the member `name`."""

    kind: Kind
    name: str
    count: int


@dataclass(frozen=True)
class Stored:
    """A tensor as the pickle describes it; offset and strides in elements."""

    path: Path
    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def read(self) -> Array:
        """The numbers; BF16 as float32. Raises `ModelFileError` when they are not all there."""
        reach = (
            self.offset + sum((length - 1) * step for length, step in zip(self.shape, self.strides, strict=True)) + 1
        )
        if not math.prod(self.shape):
            reach = 0
        if min((*self.strides, *self.shape, self.offset), default=0) < 0 or reach > self.storage.count:
            raise _broken(self.path, "a tensor reaches beyond its storage")
        dtype = np.dtype(_STORAGES[self.storage.kind.name])
        try:
            with zipfile.ZipFile(self.path) as archive:
                member = archive.getinfo(self.storage.name)
                if member.file_size != member.compress_size:  # torch never packs; what is packed may unpack for ever
                    raise _broken(self.path, f"{self.storage.name} is compressed")
                data = archive.read(member)
        except _UNREADABLE as error:
            raise _broken(self.path, f"{self.storage.name} is missing or damaged") from error
        if len(data) < self.storage.count * dtype.itemsize:
            raise _broken(self.path, f"{self.storage.name} is cut short")
        flat = np.frombuffer(data, dtype=dtype)[self.offset :]
        steps = [step * dtype.itemsize for step in self.strides]
        array = np.ascontiguousarray(np.lib.stride_tricks.as_strided(flat, self.shape, steps, writeable=False))
        return widened(array) if self.storage.kind.name == "BFloat16Storage" else array


def read_tensors(path: Path) -> dict[str, Stored]:
    """The tensors of `path` by name. Raises `ModelFileError` for anything but a plain dictionary of tensors."""
    try:
        with zipfile.ZipFile(path) as archive:
            member = next((name for name in archive.namelist() if name.endswith("/data.pkl")), None)
            if member is None or archive.getinfo(member).file_size > MOST_PICKLE:
                raise _broken(path, "it is a zip archive, but not one that torch.save writes")
            root = member.removesuffix("data.pkl")
            if f"{root}byteorder" in archive.namelist() and archive.read(f"{root}byteorder") != b"little":
                raise _broken(path, "its numbers are big-endian")
            content = _Unpickler(archive.read(member), path, root).load()
    except zipfile.BadZipFile:
        raise ModelFileError(
            f"{path} is no checkpoint that can be read safely: it is not in torch's zip format.",
            hint="Write it again as safetensors, or with a torch of this decade.",
        ) from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}.", hint="Check the path.") from error
    except ModelFileError:
        raise
    except Exception as error:  # a hostile or damaged pickle may end in any of them
        raise _broken(path, f"its list of tensors is damaged ({type(error).__name__})") from error
    tensors = content.get("state_dict", content) if isinstance(content, dict) else None
    if not isinstance(tensors, dict):
        raise _broken(path, "it holds no dictionary of tensors")
    return {str(name): value for name, value in tensors.items() if isinstance(value, Stored)}


class _Unpickler(pickle.Unpickler):
    """Knows dictionaries, tensors and storages, and no other name."""

    def __init__(self, data: bytes, path: Path, root: str) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")
        self._path = path
        self._root = root

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self._tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return _parameter
        if (module, name) == ("torch", "Size"):
            return tuple
        if module == "torch" and name in _STORAGES:
            return Kind(name)
        raise ModelFileError(
            f"{self._path} asks for {module}.{name}, which may be code: it is not read.",
            hint="Use the safetensors file of the checkpoint, or a file that holds tensors alone.",
        )

    def persistent_load(self, pid: Any) -> Storage:
        _, kind, name, _, count = pid
        if not isinstance(kind, Kind):
            raise _broken(self._path, "a storage has no type that is known")
        return Storage(kind, f"{self._root}data/{name}", int(count))

    def _tensor(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Stored:
        if not isinstance(storage, Storage) or len(shape) != len(strides):
            raise _broken(self._path, "a tensor is described in a way that is not known")
        return Stored(self._path, storage, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))


# What zipfile raises: missing, damaged, encrypted, packed in a way that it does not know.
_UNREADABLE = (KeyError, zipfile.BadZipFile, OSError, EOFError, RuntimeError, zlib.error)


def _parameter(tensor: Any, *_: Any) -> Any:
    return tensor


def _broken(path: Path, why: str) -> ModelFileError:
    return ModelFileError(f"{path} cannot be read: {why}.", hint=AGAIN)
