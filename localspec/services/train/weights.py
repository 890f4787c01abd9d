"""What a head takes over from its verifier's file: sizes, embedding, output matrix, the first and the last layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from localspec.catalog.gguf import Header, read_header
from localspec.catalog.modelfile import ModelFile
from localspec.errors import ModelFileError

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Verifier:
    """The numbers of a verifier that its heads are shaped by; read tensor by tensor when asked."""

    file: ModelFile
    headers: tuple[Header, ...]

    @classmethod
    def read(cls, file: ModelFile) -> Verifier:
        return cls(file, tuple(read_header(part) for part in file.parts))

    def number(self, key: str, default: float | None = None) -> float:
        """A number of the architecture, like `attention.head_count`. Raises `ModelFileError` when it must be there."""
        value = self.headers[0].values.get(f"{self.file.architecture}.{key}", default)
        if not isinstance(value, int | float):
            raise ModelFileError(
                f"{self.file.path.name} does not say its {key}: no head can be shaped by it",
                hint="Choose a verifier whose layers are all alike.",
            )
        return value

    def has(self, name: str) -> bool:
        return any(name in header.table for header in self.headers)

    def tensor(self, name: str) -> Matrix:
        """A tensor as float32, (out, in). Raises `ModelFileError` when the file has none of this name."""
        from localspec.engine.dequantise import dequantise

        for path, header in zip(self.file.parts, self.headers, strict=True):
            info = header.table.get(name)
            if info is not None and info.size is not None:
                with path.open("rb") as file:
                    file.seek(info.offset)
                    data = file.read(info.size)
                return dequantise(data, info.kind, int(np.prod(info.shape))).reshape(info.shape[::-1])
        raise ModelFileError(f"{self.file.path.name} has no tensor {name}", hint="Choose another verifier.")

    @property
    def width(self) -> int:
        return int(self.number("embedding_length"))

    def embedding(self) -> Matrix:
        """(V, D)."""
        return self.tensor("token_embd.weight")

    def output(self) -> Matrix:
        """(V, D): the embedding where they are one."""
        return self.tensor("output.weight" if self.has("output.weight") else "token_embd.weight")
