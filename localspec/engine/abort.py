"""Leaving a long evaluation early: llama.cpp asks between the nodes of its graph whether it shall go on.

Knows nothing of what is evaluated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from localspec.engine.base import Cancelled
from localspec.engine.native import lib


class Watch:
    """What one context asks. It lives as long as the context: llama.cpp must never call something that is gone."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._callback = lib.ggml_abort_callback(self._ask)
        self._nobody = lib.ggml_abort_callback(0)
        self._cancelled: Cancelled | None = None
        self._raised: list[BaseException] = []
        self._hook: Any = None

    @contextmanager
    def over(self, cancelled: Cancelled | None) -> Iterator[None]:
        """Evaluations inside the block end with code 2 once `cancelled` says so (None: nobody is asked).

        An exception cannot pass through C: what `cancelled` raises, and a Ctrl-C that falls into the question itself,
        ends the evaluation as well and is raised when the block is left. ctypes would print it and go on.
        """
        if cancelled is None:
            yield
            return
        try:
            self._raised, self._cancelled, self._hook = [], cancelled, sys.unraisablehook
            lib.llama_set_abort_callback(self._handle, self._callback, None)
            sys.unraisablehook = self._catch
            yield
        finally:
            self.end()
            if self._raised:
                raise self._raised[0]

    def end(self) -> None:
        """Ask no longer. Also for a block whose own end was broken off by an interrupt."""
        if self._cancelled is None:
            return
        sys.unraisablehook = self._hook
        lib.llama_set_abort_callback(self._handle, self._nobody, None)
        self._cancelled = None

    def _ask(self, _data: Any) -> bool:
        try:
            return bool(self._raised) or (self._cancelled is not None and self._cancelled())
        except BaseException as error:  # noqa: BLE001  it is raised at the end of the block
            self._raised.append(error)
            return True

    def _catch(self, found: Any) -> None:
        """Hears what was raised before `_ask` came to its first line."""
        if isinstance(found.exc_value, KeyboardInterrupt | SystemExit):
            self._raised.append(found.exc_value)
        else:
            self._hook(found)
