"""Training data on disk: numbered shards of whole texts and a manifest that lists them.

    manifest.json     verifier, settings, and for each shard its texts, tokens and answer tokens
    shard-00000.npz   arrays of some dozen texts, one after the other

A shard appears under its name when it is whole and is listed after that, so a kill loses what was in flight and nothing
else. What a text holds is in `Text`; reading checks every byte against the sums in the file.
Knows nothing of how texts are made or used.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.errors import UsageError

SCHEMA = "localspec.train-data/1"
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Text:
    """One prompt with its answer, as the verifier read and wrote it.

    index        of the text in the making; tells held-out texts apart
    asked        digest of the prompt
    temperature  of the answer
    tokens       (m + n,): m of the prompt, n of the answer
    start        m
    top_ids      (n, k): likeliest tokens of the row that answer token i was drawn from
    top_logs     (n, k): their log-probabilities at temperature 1
    layers       (m + n - 1, L, D): inputs of the stored layers, or None; the last token was never evaluated
    last         (m + n - 1, D): last hidden row, after the final norm, or None
    """

    index: int
    asked: int
    temperature: float
    tokens: npt.NDArray[np.int32]
    start: int
    top_ids: npt.NDArray[np.int32]
    top_logs: npt.NDArray[np.float16]
    layers: npt.NDArray[np.float16] | None = None
    last: npt.NDArray[np.float16] | None = None

    @property
    def answer(self) -> int:
        """Tokens of the answer."""
        return len(self.tokens) - self.start


@dataclass(frozen=True)
class Listed:
    """A shard as the manifest lists it."""

    file: str
    texts: int
    tokens: int
    answer_tokens: int
    first: int
    last: int


@dataclass
class Manifest:
    """What a folder of training data says about itself."""

    verifier: dict[str, Any]
    settings: dict[str, Any]
    shards: list[Listed] = field(default_factory=list)
    schema: str = SCHEMA

    @property
    def answer_tokens(self) -> int:
        return sum(shard.answer_tokens for shard in self.shards)

    @property
    def texts(self) -> int:
        return sum(shard.texts for shard in self.shards)


class Store:
    """A folder of training data: texts are added, shards are read."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    @classmethod
    def create(cls, folder: Path, manifest: Manifest) -> Store:
        """Start a folder. Raises `UsageError` where it cannot be written."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            store = cls(folder, manifest)
            store._write_manifest()
        except OSError as error:
            raise UsageError(f"{folder} cannot be written: {error.strerror}", hint="Name another folder.") from error
        return store

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Read the manifest. Raises `UsageError`: not there, or not one of ours."""
        path = folder / MANIFEST
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(found, dict) or found.get("schema") != SCHEMA:
                raise UsageError(
                    f"{path} does not describe training data of this version of localspec",
                    hint="Make it again with `localspec train data`.",
                )
            shards = [Listed(**shard) for shard in found["shards"]]
            return cls(folder, Manifest(found["verifier"], found["settings"], shards))
        except OSError as error:
            raise UsageError(
                f"there is no training data in {folder}: {MANIFEST} cannot be read ({error.strerror})",
                hint="Make it with `localspec train data`.",
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{path} is damaged ({error})", hint="Make the data again with `localspec train data`."
            ) from error

    def add(self, texts: Sequence[Text]) -> None:
        """Write `texts` as one more shard and list it."""
        if not texts:
            return
        name = f"shard-{len(self.manifest.shards):05}.npz"
        unfinished = self.folder / f"{name}.part"
        arrays: Any = _pack(texts)
        with unfinished.open("wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self.folder / name)
        self.manifest.shards.append(
            Listed(
                name,
                len(texts),
                sum(len(text.tokens) for text in texts),
                sum(text.answer for text in texts),
                min(text.index for text in texts),
                max(text.index for text in texts),
            )
        )
        self._write_manifest()

    def read(self, shard: Listed) -> list[Text]:
        """The texts of a shard. Raises `UsageError` when it is damaged or gone."""
        path = self.folder / shard.file
        try:
            with path.open("rb") as file, np.load(file) as arrays:
                return list(_unpack({name: arrays[name] for name in arrays.files}))
        except (OSError, ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise UsageError(
                f"{path} is damaged or missing ({error})",
                hint="`localspec train data` with the same folder drops it and makes its texts again.",
            ) from error

    def column(self, shard: Listed, name: str) -> npt.NDArray[Any]:
        """One array of a shard without reading the others. Raises `UsageError` like `read`."""
        path = self.folder / shard.file
        try:
            with path.open("rb") as file, np.load(file) as arrays:
                found: npt.NDArray[Any] = arrays[name]
                return found
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise UsageError(f"{path} is damaged or missing ({error})", hint="Make it again.") from error

    def drop_damaged(self) -> list[str]:
        """Take shards that cannot be read out of the list; returns their names."""
        damaged = [shard for shard in self.manifest.shards if not self._is_whole(shard)]
        if damaged:
            self.manifest.shards = [shard for shard in self.manifest.shards if shard not in damaged]
            self._renumber()
        return [shard.file for shard in damaged]

    def _is_whole(self, shard: Listed) -> bool:
        """True when all its bytes agree with the sums in the file."""
        try:
            with zipfile.ZipFile(self.folder / shard.file) as archive:
                return archive.testzip() is None
        except (OSError, zipfile.BadZipFile, zlib.error):
            return False

    def _renumber(self) -> None:
        """Names follow the list again, so that the next shard overwrites none that is whole."""
        for place, shard in enumerate(self.manifest.shards):
            name = f"shard-{place:05}.npz"
            if shard.file != name:
                (self.folder / shard.file).replace(self.folder / name)
                self.manifest.shards[place] = Listed(**{**asdict(shard), "file": name})
        self._write_manifest()

    def _write_manifest(self) -> None:
        unfinished = self.folder / f"{MANIFEST}.part"
        unfinished.write_text(json.dumps(asdict(self.manifest), indent=1) + "\n", encoding="utf-8")
        unfinished.replace(self.folder / MANIFEST)


def _pack(texts: Sequence[Text]) -> dict[str, npt.NDArray[Any]]:
    narrow = all(int(text.tokens.max()) < 65536 and int(text.top_ids.max()) < 65536 for text in texts)
    ids = np.uint16 if narrow else np.int32
    arrays: dict[str, npt.NDArray[Any]] = {
        "index": np.array([text.index for text in texts]),
        "asked": np.array([text.asked for text in texts]),
        "temperature": np.array([text.temperature for text in texts], dtype=np.float32),
        "lengths": np.array([len(text.tokens) for text in texts]),
        "starts": np.array([text.start for text in texts]),
        "tokens": np.concatenate([text.tokens for text in texts]).astype(ids),
        "top_ids": np.concatenate([text.top_ids for text in texts]).astype(ids),
        "top_logs": np.concatenate([text.top_logs for text in texts]).astype(np.float16),
    }
    for name in ("layers", "last"):
        parts = [getattr(text, name) for text in texts]
        if all(part is not None for part in parts):
            arrays[name] = np.concatenate(parts)
    return arrays


def _unpack(arrays: dict[str, npt.NDArray[Any]]) -> Iterator[Text]:
    token = row = top = 0
    for place, (length, start) in enumerate(zip(arrays["lengths"], arrays["starts"], strict=True)):
        rows, answer = slice(row, row + length - 1), slice(top, top + length - start)
        yield Text(
            int(arrays["index"][place]),
            int(arrays["asked"][place]),
            float(arrays["temperature"][place]),
            arrays["tokens"][token : token + length].astype(np.int32),
            int(start),
            arrays["top_ids"][answer].astype(np.int32),
            arrays["top_logs"][answer],
            arrays["layers"][rows] if "layers" in arrays else None,
            arrays["last"][rows] if "last" in arrays else None,
        )
        token, row, top = token + length, row + length - 1, top + length - start
