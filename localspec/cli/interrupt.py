"""The keyboard while an answer is being made: the first Ctrl-C asks for an orderly end, the second insists, and what
is typed meanwhile waits for the next prompt instead of standing in the answer.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from localspec.cli.streams import is_terminal


@contextmanager
def ended_in_order() -> Iterator[None]:
    """A request to end (SIGTERM) and a terminal that is gone (SIGHUP) leave by the usual way: the keyboard is put
    right again, models are closed, files are whole. What was switched off (nohup) stays so.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)  # who is asked twice goes at once
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler == signal.SIG_DFL:
            signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


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
        with unechoed():
            yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def unechoed() -> Iterator[None]:
    """Keys are read later and do not show now, where the terminal can do that."""
    try:
        import termios
    except ImportError:  # Windows
        yield
        return
    if not is_terminal(sys.stdin):
        yield
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    quiet = list(before)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(keyboard, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
