"""Several folders of training data, read as one. What they must have in common is checked when they are opened.

A folder may grow at its end while it is learned from. So a part of the data is an extent, shards of each folder counted
from its first: it means the same shards when it is read again. Knows nothing of batches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from localspec.errors import UsageError
from localspec.services.train.shards import Listed, Store, Text

Extent = Sequence[int]
"""How many shards of each folder, from its first."""


@dataclass(frozen=True)
class Shard:
    """A shard that knows its folder. Reading raises `UsageError` when it is damaged or gone."""

    store: Store
    listed: Listed

    def read(self) -> list[Text]:
        return self.store.read(self.listed)

    def column(self, name: str) -> npt.NDArray[Any]:
        return self.store.column(self.listed, name)


class Folders:
    """Read-only; a single folder is the plain case."""

    def __init__(self, stores: Sequence[Store]) -> None:
        """Raises `UsageError` for folders that do not go together, and for an empty one."""
        self._stores = stores
        for store in stores:
            if not store.manifest.shards:
                raise UsageError(f"{store.folder} holds no texts yet", hint="Make some with `localspec train data`.")
        for one, other in itertools.combinations(stores, 2):
            _go_together(one, other)

    @classmethod
    def open(cls, folders: Sequence[Path]) -> Folders:
        return cls([Store.open(folder) for folder in folders])

    @property
    def verifier(self) -> dict[str, Any]:
        """Whose data it is, as the first folder says it."""
        return self._stores[0].manifest.verifier

    @property
    def layers(self) -> list[int]:
        """Layers whose inputs are stored."""
        return [int(layer) for layer in self._stores[0].manifest.settings["layers"]]

    @property
    def without_states(self) -> Folders | None:
        """Those whose hidden rows have to be computed again; they were made with the same weights."""
        bare = [store for store in self._stores if not _has_states(store)]
        return Folders(bare) if bare else None

    @property
    def hold(self) -> Any:
        """Format of the weights that the first folder was made with."""
        return self._stores[0].manifest.settings["hold"]

    @property
    def names(self) -> list[str]:
        return [store.folder.name for store in self._stores]

    @property
    def first(self) -> Path:
        return self._stores[0].folder

    def extent(self, tokens: int | None = None) -> list[int]:
        """The first shards, folder after folder, that hold so many answer tokens together; None: all."""
        wanted = math.inf if tokens is None else tokens
        counts = []
        for store in self._stores:
            count = 0
            for shard in store.manifest.shards:
                if wanted <= 0:
                    break
                wanted -= shard.answer_tokens
                count += 1
            counts.append(count)
        return counts

    def shards(self, extent: Extent | None = None) -> list[Shard]:
        """The shards of a part, None: all of them. A folder behind those that `extent` counts has no part in it."""
        return [shard for part in self.parts(extent) for shard in part]

    def record(self, extent: Extent) -> dict[str, Any]:
        """What was learned from, for the record beside a head: settings in common, sums, and each folder by itself."""
        settings = [store.manifest.settings for store in self._stores]
        common = {key: value for key, value in settings[0].items() if all(one.get(key) == value for one in settings)}
        folders = [
            {"folder": store.folder.name, **store.manifest.settings, **_sums(part)}
            for store, part in zip(self._stores, self.parts(extent), strict=True)
        ]
        return {**common, **_sums(self.shards(extent)), "folders": folders}

    def parts(self, extent: Extent | None = None) -> list[list[Shard]]:
        """The same, folder by folder."""
        counts = self.extent() if extent is None else extent
        return [
            [Shard(store, listed) for listed in store.manifest.shards[:count]]
            for store, count in zip(self._stores, counts, strict=False)
        ]


def _sums(shards: Sequence[Shard]) -> dict[str, int]:
    return {
        "texts": sum(shard.listed.texts for shard in shards),
        "answer_tokens": sum(shard.listed.answer_tokens for shard in shards),
    }


def _has_states(store: Store) -> bool:
    return bool(store.manifest.settings["states"] == "stored")


def _go_together(one: Store, other: Store) -> None:
    """Raises `UsageError` with what two folders differ in, if one head cannot learn from both."""
    if one.folder.resolve() == other.folder.resolve():
        raise UsageError(f"{other.folder} is named twice", hint="Name each folder of data once.")
    theirs = _facts(other)
    for name, value in _facts(one).items():
        if name in theirs and theirs[name] != value:
            raise UsageError(
                f"{one.folder} and {other.folder} cannot be learned from together: "
                f"{name} is {value} in the one and {theirs[name]} in the other",
                hint="Leave one of them out, or make its data anew with what the other was made with.",
            )


def _facts(store: Store) -> dict[str, Any]:
    """What must be the same; the format that the weights were held in only where they are read again."""
    manifest = store.manifest
    verifier = {f"verifier {name}": value for name, value in manifest.verifier.items() if name != "ref"}
    names = ("layers", "top") if _has_states(store) else ("layers", "top", "hold")
    return verifier | {name: manifest.settings.get(name) for name in names}
