"""From token bytes to text that may be shown: whole code points, and nothing that could become a stop string.

Knows neither tokens' ids nor models; it counts tokens so that a stop can say how many of them stay.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from localspec.loop.answer import Piece


class TextStream:
    """Push the bytes of one token after the other; get pieces back as soon as they are safe to show."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._rest = b""  # the beginning of a code point
        self._held: list[Piece] = []
        self._shown = 0  # characters given out
        self._decoded = 0  # characters decoded, held ones included
        self._whole: list[tuple[int, int]] = [(0, 0)]  # (tokens, characters) at which no code point was cut
        self._count = 0
        self.stopped = False
        self.kept_tokens = 0
        """After a stop: how many leading tokens lie wholly before it."""

    def push(self, data: bytes, *, drafted: bool) -> list[Piece]:
        """The pieces that can be shown now. After a stop matched (`stopped`) nothing more may be pushed."""
        data = self._rest + data
        text, used = codecs.utf_8_decode(data, "replace")
        self._rest = data[used:]
        if not self._stops:
            return [Piece(text, drafted)] if text else []
        self._count += 1
        self._decoded += len(text)
        if not self._rest:
            self._whole.append((self._count, self._decoded))
        return self._release(text, drafted) if text else []

    def finish(self) -> list[Piece]:
        """What was held back, once it is certain that nothing follows."""
        if self.stopped:
            return []
        rest, self._rest = self._rest.decode(errors="replace"), b""
        pieces, self._held = self._held + ([Piece(rest)] if rest else []), []
        return pieces

    def _release(self, text: str, drafted: bool) -> list[Piece]:
        self._held.append(Piece(text, drafted))
        waiting = "".join(piece.text for piece in self._held)
        matches = [at for at in map(waiting.find, self._stops) if at >= 0]
        if matches:
            self.stopped = True
            return self._stop_at(min(matches))
        return self._take(len(waiting) - self._doubtful(waiting))

    def _doubtful(self, waiting: str) -> int:
        """Length of the longest end of `waiting` that a stop string begins with."""
        longest = max(map(len, self._stops)) - 1
        for size in range(min(longest, len(waiting)), 0, -1):
            if any(stop.startswith(waiting[-size:]) for stop in self._stops):
                return size
        return 0

    def _stop_at(self, at: int) -> list[Piece]:
        stop = self._shown + at
        self.kept_tokens = max(tokens for tokens, characters in self._whole if characters <= stop)
        pieces = self._take(at)
        self._held = []
        return pieces

    def _take(self, size: int) -> list[Piece]:
        """Give out the first `size` held characters."""
        out: list[Piece] = []
        self._shown += size
        while size and self._held:
            piece = self._held.pop(0)
            if len(piece.text) > size:
                self._held.insert(0, Piece(piece.text[size:], piece.drafted))
                piece = Piece(piece.text[:size], piece.drafted)
            size -= len(piece.text)
            out.append(piece)
        return out
