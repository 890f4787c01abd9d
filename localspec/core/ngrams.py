"""An index of the n-grams of one text: where has the end of this text been seen before, and what came next?

For every size it keeps the last position of each n-gram and, per position, the one before it, so that adding a token,
taking one back and stepping to an older occurrence are all O(1). Nothing is hashed away and nothing is dropped, so an
index that followed edits equals one built afresh; it grows by some 100 bytes per token and size, as the text itself is
bounded by the context. Knows nothing about drafts or about how likely a continuation is.
"""

from __future__ import annotations

from array import array
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from localspec.core.draft import Ids

ID_BITS = 32  # one token id in a packed n-gram


class Match(NamedTuple):
    """An earlier place where the text read as it reads at its end.

    length  how many tokens agree, counted backwards from the end (up to the limit asked for)
    after   index of the token that followed there
    """

    length: int
    after: int


class NgramIndex:
    """N-grams of `min_size` to `max_size` tokens of a text that is followed by `follow`."""

    def __init__(self, min_size: int, max_size: int) -> None:
        self.sizes = range(min_size, max_size + 1)
        self.text = array("i")
        """The text, to be read only."""
        self._last: dict[int, dict[int, int]] = {
            size: {} for size in self.sizes
        }  # packed n-gram -> where it ended last
        self._older: dict[int, array[int]] = {size: array("i") for size in self.sizes}  # position -> the one before, -1

    def __len__(self) -> int:
        return len(self.text)

    def follow(self, tokens: Ids) -> int:
        """Make `tokens` the text; returns the length of what it has in common with the text before."""
        kept = self._common(tokens)
        if kept < len(self.text):
            self._rewind(kept)
        for token in tokens[kept:].tolist():
            self._append(token)
        return kept

    def recurs(self, tokens: Ids, size: int) -> bool:
        """Has the n-gram of this size at the end of `tokens` stood in them before?

        They are the text and more, which is not followed: of a few new tokens that is known for less.
        """
        new = tokens[max(0, len(self.text) - size + 1) :].tolist()
        end = new[-size:]
        gram = 0
        for token in end:
            gram = gram << ID_BITS | token
        return gram in self._last[size] or any(
            new[at] == end[0] and new[at : at + size] == end for at in range(len(new) - size)
        )

    def matches(self, count: int, *, longest: int) -> list[Match]:
        """Up to `count` earlier places that read like the end of the text, longest first, then most recent first.

        Looks at the `count` most recent places of each size and counts up to `longest` tokens of agreement.
        """
        if not self.text:
            return []
        ends: list[int] = []
        for size in reversed(self.sizes):
            older = self._older[size]
            end, left = older[-1], count
            while end >= 0 and left and len(ends) < count:
                if end not in ends:
                    ends.append(end)
                end, left = older[end], left - 1
        found = [Match(self._agreement(end, longest), end + 1) for end in ends]
        found.sort(key=itemgetter(0), reverse=True)  # and stays in order where two are as long
        return found

    def _common(self, tokens: Ids) -> int:
        """Length of the common prefix of `tokens` and the text."""
        size = min(len(tokens), len(self.text))
        if tokens[:size].tobytes() == self.text[:size].tobytes():
            return size
        return int((np.frombuffer(self.text, dtype=np.int32, count=size) == tokens[:size]).argmin())

    def _agreement(self, end: int, longest: int) -> int:
        """How many tokens up to `end` equal the tokens up to the end of the text."""
        text, last, length = self.text, len(self.text) - 1, 0
        while length < longest and length <= end and text[end - length] == text[last - length]:
            length += 1
        return length

    def _grams(self, at: int) -> list[tuple[int, int]]:
        """(size, packed n-gram) of every n-gram that ends at `at`."""
        packed, grams = 0, []
        for size in range(1, min(self.sizes.stop - 1, at + 1) + 1):
            packed |= self.text[at - size + 1] << ID_BITS * (size - 1)
            if size >= self.sizes.start:
                grams.append((size, packed))
        return grams

    def _append(self, token: int) -> None:
        at = len(self.text)
        self.text.append(token)
        grams = self._grams(at)
        for size, gram in grams:
            last = self._last[size]
            self._older[size].append(last.get(gram, -1))
            last[gram] = at
        for size in self.sizes[len(grams) :]:
            self._older[size].append(-1)

    def _rewind(self, length: int) -> None:
        """Take back all tokens from `length` on, the last one first."""
        for at in range(len(self.text) - 1, length - 1, -1):
            for size, gram in self._grams(at):
                older = self._older[size][at]
                if older < 0:
                    del self._last[size][gram]
                else:
                    self._last[size][gram] = older
        del self.text[length:]
        for older_of_size in self._older.values():
            del older_of_size[length:]
