"""A published checkpoint: a folder with config.json and weights in one or several files, or one such file.

Knows where tensors lie and how to read them; not what kind of head they make.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.catalog import safetensors, torchfile
from localspec.errors import ModelFileError, UsageError

_TORCH = (".bin", ".pt", ".pth")


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, unread, and what config.json says ({} where there is none)."""

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, safetensors.Stored | torchfile.Stored]

    @classmethod
    def open(cls, path: Path) -> Checkpoint:
        """Raises `UsageError` when there is nothing to read, `ModelFileError` when it cannot be read."""
        if not path.exists():
            raise UsageError(
                f"There is no checkpoint {path}.",
                hint="Name a folder with config.json and weights, or a .safetensors file.",
            )
        files = list(_files(path)) if path.is_dir() else [path]
        if not files:
            raise UsageError(
                f"{path} holds no weights.",
                hint="Fetch model.safetensors (or pytorch_model.bin) of the checkpoint as well.",
            )
        tensors: dict[str, safetensors.Stored | torchfile.Stored] = {}
        for file in files:
            tensors |= torchfile.read_tensors(file) if file.suffix in _TORCH else safetensors.read_tensors(file)
        return cls(path, _config(path if path.is_dir() else path.parent), tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Raises `ModelFileError` when there is no such tensor."""
        return self._stored(name).shape

    def matrix(self, name: str) -> npt.NDArray[np.float32]:
        """A tensor of weights as float32. Raises `ModelFileError`: missing, unreadable, or not all numbers."""
        array = self._stored(name).read().astype(np.float32)
        if not np.isfinite(array).all():
            raise ModelFileError(
                f"{name} of {self.path} holds numbers that are none (NaN or infinite).", hint=safetensors.AGAIN
            )
        return array

    def numbers(self, name: str) -> npt.NDArray[np.int64]:
        """A tensor of whole numbers."""
        return self._stored(name).read().astype(np.int64)

    def _stored(self, name: str) -> safetensors.Stored | torchfile.Stored:
        if name not in self.tensors:
            raise ModelFileError(
                f"{self.path} has no tensor {name}.",
                hint="The checkpoint is not whole, or of a kind that is not known.",
            )
        return self.tensors[name]

    def renamed(self, names: Mapping[str, str]) -> Checkpoint:
        """The same with other names: old -> new."""
        return Checkpoint(self.path, self.config, {names.get(name, name): kept for name, kept in self.tensors.items()})


def _files(folder: Path) -> Iterator[Path]:
    """The files that hold the weights: safetensors if there are any, all of a split checkpoint."""
    for pattern in ("*.safetensors", "*.bin", "*.pt", "*.pth"):
        found = sorted(file for file in folder.glob(pattern) if file.name not in ("training_args.bin", "optimizer.pt"))
        if found:
            index = next(folder.glob(f"{pattern}.index.json"), None)
            yield from found if index is None else _listed(index)
            return


def _listed(index: Path) -> list[Path]:
    """The parts that an index names. Raises `ModelFileError` when one is missing."""
    try:
        names = sorted({str(name) for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFileError(f"{index} cannot be read.", hint=safetensors.AGAIN) from error
    parts = [index.parent / Path(name).name for name in names]
    for part in parts:
        if not part.is_file():
            raise ModelFileError(
                f"{part.name} is missing from {index.parent}.", hint="Fetch all parts of the checkpoint."
            )
    return parts


def _config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{file} cannot be read as JSON.", hint=safetensors.AGAIN) from error
    if not isinstance(found, dict):
        raise ModelFileError(f"{file} is no JSON object.", hint=safetensors.AGAIN)
    return found
