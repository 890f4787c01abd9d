"""Notes, warnings and progress of services, shown on standard error.

On a terminal progress moves, with speed and time left; elsewhere it is a plain line now and then. Knows only the
`Report` protocol.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from localspec.cli import streams, units

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.text import Text

    from localspec.services.report import Unit

PATIENCE_S = 0.3  # work that is over sooner shows no progress at all
SILENCE_S = 5.0  # between two plain lines


@dataclass
class Work:
    """One thing in progress; times by the monotonic clock."""

    started: float
    first: int
    said: float
    spoke: bool = False
    task: TaskID | None = None


class Terminal:
    """Implements `services.report.Report`; as a context manager it takes its progress off the screen at the end."""

    def __init__(self) -> None:
        self._console = streams.err()
        self._works: dict[str, Work] = {}
        self._warned: set[str] = set()
        self._bars: Progress | None = None

    def note(self, text: str) -> None:
        """One dim line."""
        self._print(text, style="dim", markup=False)

    def warn(self, text: str) -> None:
        """One line; the same warning is shown once."""
        from rich.text import Text

        if text not in self._warned:
            self._warned.add(text)
            self._print(Text.assemble(("warning: ", "yellow"), text))

    def progress(self, what: str, done: int, total: int | None, unit: Unit) -> None:
        """How far `what` has come."""
        now = time.monotonic()
        work = self._works.setdefault(what, Work(now, done, now))
        finished = total is not None and done >= total
        if self._console.is_terminal:
            self._move(what, work, done=done, total=total, unit=unit, now=now)
        elif now - work.said >= SILENCE_S or (finished and work.spoke):
            work.said, work.spoke = now, True
            self._print(line(what, done, total, unit, rate(work, done, now)), markup=False)
        if finished:
            self._finish(what)

    def _print(self, text: str | Text, *, style: str | None = None, markup: bool = True) -> None:
        with suppress(OSError):  # a full disk behind `2>` is no reason to stop the work
            self._console.print(text, style=style, markup=markup)

    def settle(self) -> None:
        """Take progress off the screen: something else will be written now."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
        self._works.clear()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.settle()

    def _move(self, what: str, work: Work, *, done: int, total: int | None, unit: Unit, now: float) -> None:
        figures = amounts(done, total, unit, rate(work, done, now))
        if work.task is None:
            if now - work.started < PATIENCE_S:
                return
            if self._bars is None:
                self._bars = bars(self._console)
                self._bars.start()
            work.task = self._bars.add_task(what, total=total, completed=done, figures=figures)
        elif self._bars is not None:
            self._bars.update(work.task, completed=done, total=total, figures=figures)

    def _finish(self, what: str) -> None:
        work = self._works.pop(what)
        if self._bars is not None and work.task is not None:
            self._bars.remove_task(work.task)
            if not self._bars.tasks:
                self.settle()


def bars(on: Console) -> Progress:
    """A display that leaves no trace when it stops."""
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[figures]}", style="dim", markup=False),
        console=on,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def rate(work: Work, done: int, now: float) -> float:
    """Units per second since the work began here; what an earlier run had done does not count."""
    elapsed = now - work.started
    return (done - work.first) / elapsed if elapsed > 0 else 0.0


def amounts(done: int, total: int | None, unit: Unit, per_second: float) -> str:
    """34.1 of 98.4 MB, 12.0 MB/s, 5 s left."""
    if unit == "bytes":
        parts = [units.size(done) if total is None else f"{units.size(done)} of {units.size(total)}"]
        speed = f"{units.size(per_second)}/s"
    else:
        parts = [f"{done:,} {unit}" if total is None else f"{done:,} of {total:,} {unit}"]
        speed = f"{per_second:.0f} tokens/s" if unit == "tokens" else ""
    if per_second > 0 and speed:
        parts.append(speed)
    if total is not None and 0 < done < total and per_second > 0:
        parts.append(f"{units.duration((total - done) / per_second)} left")
    return ", ".join(parts)


def line(what: str, done: int, total: int | None, unit: Unit, per_second: float) -> str:
    """The same as one plain line."""
    share = f"{100 * done // total} %, " if total else ""
    return f"{what}: {share}{amounts(done, total, unit, per_second)}"
