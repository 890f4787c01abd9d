"""The ids that spell a conversation, kept from turn to turn so that old text is never evaluated twice.

The ids a model sampled need not be the ids its text would be encoded to, so an answer keeps its own ids for as long as
the template renders it byte for byte. Knows text, ids and a vocabulary; neither messages nor caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from localspec.services.chat.template import chat_ids

if TYPE_CHECKING:
    from localspec.engine.base import Vocab


@dataclass(frozen=True)
class Stretch:
    """Some bytes of the conversation and the ids that spell them; `sampled` says that a model wrote them."""

    data: bytes
    ids: tuple[int, ...]
    sampled: bool = False


@dataclass(frozen=True)
class Transcript:
    """What the verifier has read and written so far. A value: reading on makes a new one."""

    vocab: Vocab
    bos: str
    stretches: tuple[Stretch, ...] = ()

    @property
    def ids(self) -> list[int]:
        """The whole conversation as ids."""
        return list(chain.from_iterable(stretch.ids for stretch in self.stretches))

    def read(self, rendering: str) -> Transcript:
        """The transcript of `rendering`, with the settled ids of everything before its first change."""
        data = encoded(rendering)
        kept: list[Stretch] = []
        at = 0
        for stretch in self.stretches:
            if not data.startswith(stretch.data, at):
                break
            kept.append(stretch)
            at += len(stretch.data)
        while kept and at < len(data):
            rest = data[at:]
            ids = self.vocab.tokenize(rest.decode("utf-8", "surrogatepass"), add_special=False, parse_special=True)
            if self._joins(kept[-1], rest, ids):
                return replace(self, stretches=(*kept, Stretch(rest, tuple(ids))))
            at -= len(kept.pop().data)
        if not kept:
            kept = [Stretch(data, tuple(chat_ids(rendering, self.vocab, self.bos)))]
        return replace(self, stretches=tuple(kept))

    def wrote(self, text: str, ids: Sequence[int]) -> Transcript:
        """The transcript after the model's answer; ids that do not spell the text exactly are forgotten."""
        # The template writes the end of the turn itself, so the end token is read with what follows.
        spoken = tuple(token for at, token in enumerate(ids) if at < len(ids) - 1 or not self.vocab.is_end(token))
        data = encoded(text)
        known = all(0 <= token < self.vocab.size for token in spoken)  # a file may bring another model's
        if not spoken or not known or self._spelled(spoken) != data:
            return self
        return replace(self, stretches=(*self.stretches, Stretch(data, spoken, sampled=True)))

    def _joins(self, before: Stretch, rest: bytes, ids: Sequence[int]) -> bool:
        """May `rest`, tokenised by itself, follow `before`?

        A tokenizer cuts its text at control tokens first, so there the parts give the same ids as the whole. Behind an
        answer any text may follow whose ids spell it; between two texts ids could have merged.
        """
        return bool(ids) and (self._is_control(ids[0]) or (before.sampled and self._spelled(ids) == rest))

    def _is_control(self, token: int) -> bool:
        return not self.vocab.piece(token) and bool(self.vocab.piece(token, special=True))

    def _spelled(self, ids: Sequence[int]) -> bytes:
        return b"".join(self.vocab.piece(token, special=True) for token in ids)


def encoded(text: str) -> bytes:
    """UTF-8, also of the halves of code points that a terminal may deliver."""
    return text.encode("utf-8", "surrogatepass")
