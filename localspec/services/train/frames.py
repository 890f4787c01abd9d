"""From texts on disk to batches: held-out texts apart, texts of like length together, laws in the head's vocabulary.

Imports torch: load it inside functions only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from localspec.services.train.folders import Extent, Folders, Shard
from localspec.services.train.nets import Batch
from localspec.services.train.shards import Text
from localspec.services.train.vocabulary import DraftVocabulary

HELD_OUT = 25
"""Every so many texts one is held out of training."""
TOGETHER = 6
"""Shards that are in memory at a time: batches mix their texts."""


@dataclass(frozen=True)
class Laws:
    """The verifier's laws of a batch, row by row.

    ids      (B, L + 1, k): places in the head's vocabulary, 0 where it has no such token
    weights  (B, L + 1, k): probabilities at temperature 1, 0 where the head has no such token
    best     (B, L + 1): the likeliest token as a place, -1 where the head has none or there is no law
    """

    ids: Tensor
    weights: Tensor
    best: Tensor


@dataclass(frozen=True)
class Frame:
    """A batch with its laws; greedy (B,): answers at temperature 0."""

    batch: Batch
    laws: Laws
    greedy: Tensor

    @property
    def answer_tokens(self) -> int:
        return int((self.batch.stop - self.batch.start).sum())


Fill = Callable[[Text], Text]
"""Adds hidden rows to a text that was stored without."""


class Frames:
    """Reads folders in batches of about `tokens` rows. columns: which of the stored layers the head takes."""

    def __init__(
        self,
        folders: Folders,
        vocabulary: DraftVocabulary,
        *,
        columns: Sequence[int],
        last: bool,
        tokens: int,
        fill: Fill | None = None,
    ) -> None:
        self.folders = folders
        self._vocabulary = vocabulary
        self._columns = list(columns)
        self._last = last
        self._tokens = tokens
        self._fill = fill

    def held_out(self, limit: int) -> list[Frame]:
        """Batches of held-out texts with about `limit` answer tokens, of each folder as many.

        So they stay the same when folders grow.
        """
        parts = self.folders.parts()
        texts = [text for shards in parts for text in held_out_of(shards, limit / len(parts))]
        return [self.frame(group) for group in self._groups(texts)]

    def epoch(self, extent: Extent, seed: Sequence[int], *, skip: int = 0) -> Iterator[Frame]:
        """All texts of `extent` that are not held out, in an order that follows from `seed`; from batch `skip` on.

        The folders are shuffled together.
        """
        shards = self.folders.shards(extent)
        rng = np.random.default_rng(list(seed))
        order = rng.permutation(len(shards))
        number = 0
        for first in range(0, len(order), TOGETHER):
            texts = [
                text
                for place in order[first : first + TOGETHER]
                for text in shards[int(place)].read()
                if not is_held_out(text.index)
            ]
            groups = self._groups(texts)
            for place in rng.permutation(len(groups)):
                if number >= skip:
                    yield self.frame(groups[int(place)])
                number += 1

    def _groups(self, texts: Sequence[Text]) -> list[list[Text]]:
        """Texts of like length together, each group about as large as a batch may be."""
        groups: list[list[Text]] = []
        current: list[Text] = []
        for text in sorted(texts, key=lambda text: len(text.tokens)):
            if text.answer < 2:
                continue
            if current and len(text.tokens) * (len(current) + 1) > self._tokens:
                groups.append(current)
                current = []
            current.append(text)
        return [*groups, current] if current else groups

    def frame(self, texts: Sequence[Text]) -> Frame:
        """One batch."""
        filled = [self._filled(text) for text in texts]
        length = max(len(text.tokens) for text in filled) - 1
        tokens = np.zeros((len(filled), length + 1), dtype=np.int64)
        kept = filled[0].top_ids.shape[1]
        ids = np.zeros((len(filled), length + 1, kept), dtype=np.int64)
        weights = np.zeros((len(filled), length + 1, kept), dtype=np.float32)
        best = np.full((len(filled), length + 1), -1, dtype=np.int64)
        for place, text in enumerate(filled):
            tokens[place, : len(text.tokens)] = text.tokens
            rows = slice(text.start - 1, len(text.tokens) - 1)
            found = self._vocabulary.places[text.top_ids]
            ids[place, rows] = np.maximum(found, 0)
            weights[place, rows] = np.where(found >= 0, np.exp(text.top_logs.astype(np.float32)), 0.0)
            best[place, rows] = found[:, 0]
        batch = Batch(
            torch.from_numpy(tokens),
            self._stack([self._layers(text) for text in filled], length) if self._columns else None,
            self._stack([text.last for text in filled], length) if self._last else None,
            torch.tensor([text.start - 1 for text in filled]),
            torch.tensor([len(text.tokens) - 1 for text in filled]),
        )
        laws = Laws(torch.from_numpy(ids), torch.from_numpy(weights), torch.from_numpy(best))
        return Frame(batch, laws, torch.tensor([text.temperature == 0.0 for text in filled]))

    def _filled(self, text: Text) -> Text:
        if text.last is not None:
            return text
        assert self._fill is not None
        return self._fill(text)

    def _layers(self, text: Text) -> npt.NDArray[np.float16]:
        assert text.layers is not None
        return text.layers[:, self._columns].reshape(len(text.layers), -1)

    def _stack(self, parts: Sequence[npt.NDArray[np.float16] | None], length: int) -> Tensor:
        """(B, L, F) float32, zero where a text has ended."""
        assert parts[0] is not None
        stacked = np.zeros((len(parts), length, parts[0].shape[1]), dtype=np.float32)
        for place, part in enumerate(parts):
            assert part is not None
            stacked[place, : len(part)] = part
        return torch.from_numpy(stacked)


def held_out_of(shards: Sequence[Shard], limit: float) -> Iterator[Text]:
    """The first held-out texts, with at least `limit` answer tokens if there are so many."""
    count = 0
    for shard in shards:
        for text in shard.read():
            if is_held_out(text.index):
                yield text
                count += text.answer
                if count >= limit:
                    return


def is_held_out(index: int) -> bool:
    return index % HELD_OUT == 0
