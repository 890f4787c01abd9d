"""Hidden rows of a text, kept as the verifier evaluates it: what draft heads read and are trained on.

A `Capture` holds the rows of the committed positions. It follows the cache: rows of an accepted path are added, rows
of what is forgotten go, and where rows are missing because nobody listened for a while, the context evaluates those
tokens again at its next prefill. Pure numpy; knows nothing about llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from localspec.engine.base import FeatureSpec

Rows = npt.NDArray[np.float32]
Reduce = Callable[[Rows], Rows]
"""(n, raw width) rows -> (n, kept width): what is kept of them. The rows are valid during the call only."""


class Capture:
    """Rows `since` .. `end` - 1 of one text. `on`: it listens; what is evaluated meanwhile is missing otherwise."""

    def __init__(
        self,
        spec: FeatureSpec,
        *,
        raw_width: int,
        capacity: int,
        batch: int,
        reduce: Reduce | None = None,
        width: int | None = None,
    ) -> None:
        """Room for the rows of `capacity` positions, which come in pieces of at most `batch`.

        With `reduce` only what it returns, `width` wide, is kept; it is called when rows are asked for or when more
        than a batch has gathered.
        """
        self.spec = spec
        self.raw_width = raw_width
        self.width = width or raw_width
        self.on = True
        self.end = 0
        self._reduce = reduce
        self._start = 0
        self._raw = np.empty((batch if reduce else 0, raw_width), dtype=np.float32)
        self._waiting = 0  # rows in `_raw`: the last ones before `end`
        self._failure: Exception | None = None  # of `reduce`, while the text was evaluated
        # Memory is only touched as the text grows; a window needs room to move in.
        room = capacity if spec.window is None else min(capacity, 2 * spec.window + batch)
        self._rows = np.empty((room, self.width), dtype=np.float32)

    @property
    def bytes(self) -> int:
        """Most memory that the rows will take."""
        return int(self._rows.nbytes + self._raw.nbytes)

    @property
    def since(self) -> int:
        """First position from which all rows up to `end` are there."""
        settled = self.end - self._waiting
        return settled - self._kept(settled - self._start, self._waiting)

    def rows(self, start: int, stop: int) -> Rows:
        """(stop - start, width) view of the rows of these positions, valid until the next evaluation.

        Raises what `reduce` raised, also when that was earlier: whoever reads rows has to hear of it, not whoever
        evaluates a text.
        """
        if self._failure is not None:
            raise self._failure
        self._settle()
        assert self._start <= start <= stop <= self.end, f"rows {start} .. {stop} of {self._start} .. {self.end}"
        return self._rows[start - self._start : stop - self._start]

    def wanted_from(self, length: int) -> int:
        """First position whose row belongs to a text of `length` tokens."""
        return 0 if self.spec.window is None else max(0, length - self.spec.window)

    def missing_from(self, held: int, total: int) -> int:
        """Of a text of `total` tokens whose first `held` are in the cache: the first of these that has to be evaluated
        again for its row; `held` when none has.
        """
        wanted = self.wanted_from(total)
        if wanted >= held:
            return held
        return wanted if wanted < self.since else min(held, max(self.end, wanted))

    def add(self, position: int, rows: Rows) -> None:
        """Rows of the positions from `position` on; they follow what is there, or else a gap stays until it is filled.

        With a window a gap is jumped, because what is before it will be out of sight.
        """
        assert position >= self.end, "rows of a text that was not cut first"
        if position > self.end or not self.end:
            if position and self.spec.window is None:
                return
            self._start = self.end = position
            self._waiting = 0
        if self._reduce is None:
            self._put(rows)
        else:
            if self._waiting + len(rows) > len(self._raw) and not self._settles():
                return
            self._raw[self._waiting : self._waiting + len(rows)] = rows
            self._waiting += len(rows)
        self.end += len(rows)

    def truncate(self, length: int) -> None:
        """The text has been cut to `length` tokens."""
        if length >= self.end:
            return
        if length < self.end - self._waiting:
            self._waiting = 0
        else:
            self._waiting -= self.end - length
        self.end = length
        if length <= self._start:
            self._start = self.end = length if self.spec.window is not None else 0

    def _settles(self) -> bool:
        """Do the waiting rows go where they belong? If not nobody listens any more, and `rows` tells why."""
        try:
            self._settle()
        except Exception as error:  # noqa: BLE001  whatever it is, it is not the business of who evaluates
            self._failure, self.on = error, False
        return self._failure is None

    def _settle(self) -> None:
        """Reduce the rows that wait for it."""
        if self._reduce is not None and self._waiting:
            count, self._waiting = self._waiting, 0
            self.end -= count
            self._put(self._reduce(self._raw[:count]))
            self.end += count

    def _kept(self, count: int, more: int) -> int:
        """How many of `count` rows stay when `more` are stored behind them: all, unless a window has to move on."""
        return count if count + more <= len(self._rows) else min(count, self.spec.window or 0)

    def _put(self, rows: Rows) -> None:
        """Store rows behind position `end`."""
        count = self.end - self._start
        kept = self._kept(count, len(rows))
        if kept < count:
            assert self.spec.window is not None, "more rows than the context holds"
            self._rows[:kept] = self._rows[count - kept : count]
            self._start = self.end - kept
        self._rows[kept : kept + len(rows)] = rows
