"""How a cache forgets: three strategies, one chosen per context by a trial at load.

* `Truncation`  attention caches drop their tail; a sliding window only while it still covers what stays.
* `Snapshots`   recurrent states that llama.cpp keeps per token of the last pass (`n_rs_seq`).
* `StateCopy`   the recurrent state is copied out before a draft is evaluated and put back after a rejection.

Each answers `retreat` with the length it really reached, at most what was asked; the context evaluates the rest again.
llama.cpp often says yes where it should not (measured), so each checks for itself what can be forgotten exactly.
"""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import numpy as np

from localspec.engine.native import lib

_RECURRENT_PART = 1  # LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY


class Memory(Protocol):
    """A way to forget the tail of sequence 0."""

    name: str

    def before(self, length: int) -> None:
        """A draft is about to be evaluated on top of `length` tokens."""
        ...

    def retreat(self, length: int, *, reached: int, last_pass: int) -> int:
        """Go back from `reached` tokens to `length`, or to the nearest earlier length that is possible.

        `last_pass` is how many tokens the last evaluation held.
        """
        ...

    def forget(self) -> None:
        """The cache was emptied: what was kept belongs to another text."""
        ...


class Truncation:
    """Remove the tail; with a sliding window, start over when the window behind the new end is already gone."""

    name = "truncation"

    def __init__(self, handle: Any, window: int) -> None:
        self._memory = handle
        self._window = window

    def before(self, length: int) -> None:
        return None

    def forget(self) -> None:
        return None

    def retreat(self, length: int, *, reached: int, last_pass: int) -> int:
        if self._window and length:
            # llama.cpp removes the tail of a sliding window whether or not the window before it is still there.
            oldest = lib.llama_memory_seq_pos_min(self._memory, 0)
            if oldest > max(0, length - self._window + 1):
                return _start_over(self._memory)
        return length if lib.llama_memory_seq_rm(self._memory, 0, length, -1) else _start_over(self._memory)


class Snapshots:
    """Ask llama.cpp for the recurrent state as it was a few tokens ago: once after each pass, within that pass."""

    name = "snapshots"

    def __init__(self, handle: Any, depth: int) -> None:
        self._memory = handle
        self.depth = depth

    def before(self, length: int) -> None:
        return None

    def forget(self) -> None:
        return None

    def retreat(self, length: int, *, reached: int, last_pass: int) -> int:
        # Further back llama.cpp still says yes but restores a state that was never saved.
        within = reached - length <= min(self.depth, last_pass - 1)
        if length and within and lib.llama_memory_seq_rm(self._memory, 0, length, -1):
            return length
        return _start_over(self._memory)


class StateCopy:
    """Keep the recurrent state of the last draft's root; attention layers of a hybrid are truncated as usual."""

    name = "state copy"

    def __init__(self, handle: Any, context: Any) -> None:
        self._memory = handle
        self._context = context
        self._buffer = np.empty(0, dtype=np.uint8)
        self._used = 0
        self._kept: int | None = None

    def before(self, length: int) -> None:
        size = lib.llama_state_seq_get_size_ext(self._context, 0, _RECURRENT_PART)
        if size > len(self._buffer):
            self._buffer = np.empty(size, dtype=np.uint8)
        self._used = lib.llama_state_seq_get_data_ext(self._context, self._pointer(), size, 0, _RECURRENT_PART)
        self._kept = length if self._used and length else None

    def retreat(self, length: int, *, reached: int, last_pass: int) -> int:
        kept, self._kept = self._kept, None
        if (
            kept is not None
            and kept <= length
            and lib.llama_state_seq_set_data_ext(self._context, self._pointer(), self._used, 0, _RECURRENT_PART)
            and lib.llama_memory_seq_rm(self._memory, 0, kept, -1)
        ):
            self._kept = kept
            return kept
        return _start_over(self._memory)

    def forget(self) -> None:
        self._kept = None

    def _pointer(self) -> Any:
        return self._buffer.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


def _start_over(memory: Any) -> int:
    lib.llama_memory_clear(memory, False)
    return 0
