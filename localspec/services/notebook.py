"""What drafters remember of a pair between runs: one file of token ids for each, in the cache folder.

Prompts and answers can be read back out of these files with the model's vocabulary, so nothing is written unless the
user asked for it, and only the user may read them. Knows nothing about drafting.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from pathlib import Path

import numpy as np

from localspec.catalog.modelfile import ModelFile
from localspec.catalog.store import cache_folder
from localspec.core.corpus import SEPARATOR
from localspec.core.draft import Ids
from localspec.services.report import Report

MAGIC = b"localspec memory 1\n"
CHECK_BYTES = 4
MOST = 200_000
"""Tokens that are kept; the oldest texts go first."""


class Notebook:
    """The memory of one verifier. Two processes may write at once: each file is whole, and the last one stays."""

    def __init__(self, verifier: ModelFile, vocab_size: int, report: Report) -> None:
        where = f"{verifier.path.resolve()} {verifier.bytes} {vocab_size}"
        self._stem = f"{verifier.path.stem}-{hashlib.sha256(where.encode()).hexdigest()[:12]}"
        self._vocab_size = vocab_size
        self._report = report

    def path(self, name: str) -> Path:
        """The file of the drafter called `name`."""
        return cache_folder() / "memory" / f"{self._stem}-{name}.ids"

    def read(self, name: str) -> Ids:
        """The texts so far, oldest first, `SEPARATOR` between them; none when there is no file or it is damaged."""
        try:
            return self._parse(self.path(name).read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            self._report.warn(f"What {name} remembers in {self.path(name)} cannot be used and is left out: {error}.")
        return np.empty(0, dtype=np.int32)

    def add(self, name: str, text: Ids) -> None:
        """Keep one more text; when that fails, a warning is all that happens."""
        texts = {one.tobytes(): one for one in _split(self.read(name))}
        new = text[-MOST:].astype(np.int32)
        texts.pop(new.tobytes(), None)
        kept, room = [new], MOST - len(new)
        for one in reversed(texts.values()):
            room -= len(one) + 1
            if room < 0:
                break
            kept += [np.array([SEPARATOR], dtype=np.int32), one]
        try:
            self._write(self.path(name), np.concatenate(kept[::-1]))
        except OSError as error:
            self._report.warn(f"{name} could not write what it remembers: {error}.")

    def _write(self, path: Path, tokens: Ids) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        body = tokens.astype("<i4").tobytes()
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.stem}.", delete=False) as file:
            try:
                file.write(MAGIC + zlib.crc32(body).to_bytes(CHECK_BYTES, "little") + body)
                file.close()
                os.replace(file.name, path)
            except BaseException:
                file.close()
                Path(file.name).unlink(missing_ok=True)
                raise

    def _parse(self, data: bytes) -> Ids:
        """Raises `ValueError` that says what is wrong."""
        body = data[len(MAGIC) + CHECK_BYTES :]
        if not data.startswith(MAGIC) or len(body) % 4:
            raise ValueError("it is no such file")
        if zlib.crc32(body).to_bytes(CHECK_BYTES, "little") != data[len(MAGIC) : len(MAGIC) + CHECK_BYTES]:
            raise ValueError("its checksum is wrong")
        tokens = np.frombuffer(body, dtype="<i4").astype(np.int32)
        if len(tokens) > MOST or (tokens < SEPARATOR).any() or (tokens >= self._vocab_size).any():
            raise ValueError("it does not belong to this model")
        return tokens


def _split(tokens: Ids) -> list[Ids]:
    """The texts between the separators."""
    ends = np.flatnonzero(tokens == SEPARATOR)
    parts = np.split(tokens, ends)
    return [part[part != SEPARATOR] for part in parts if len(part) > (part[:1] == SEPARATOR).sum()]
