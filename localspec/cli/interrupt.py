"""Ctrl-C while an answer is being made: the first asks for an orderly end, the second insists."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether Ctrl-C was pressed inside the block."""
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # signals reach the main thread only
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
