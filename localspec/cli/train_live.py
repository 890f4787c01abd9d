"""The training as it goes: a table that moves on a terminal, a plain line per measurement elsewhere.

Knows the figures that `services.train` hands over and nothing of how they are made.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from localspec.cli import streams, units

if TYPE_CHECKING:
    from rich.live import Live as RichLive
    from rich.table import Table

    from localspec.services.train.learning import Point, Progress

LINES = 12  # measurements that are shown at a time
PAUSE_S = 0.5


class Live:
    """As a context manager it takes its table off the screen at the end."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._console = streams.err()
        self._told = -1
        self._drawn = 0.0
        self._began: tuple[int, float] | None = None
        self._live: RichLive | None = None

    def show(self, progress: Progress) -> None:
        """Hears of every step."""
        now = time.monotonic()
        if self._began is None:
            self._began = (progress.tokens, now)
        if self._console.is_terminal:
            if now - self._drawn >= PAUSE_S:
                self._drawn = now
                self._draw(progress, now)
        elif progress.points and progress.points[-1].step > self._told:
            self._told = progress.points[-1].step
            self._console.print(line(progress.points[-1], self._steps, self._speed(progress, now)), markup=False)

    def _speed(self, progress: Progress, now: float) -> float:
        assert self._began is not None
        tokens, began = self._began
        return (progress.tokens - tokens) / max(now - began, 1e-9)

    def _draw(self, progress: Progress, now: float) -> None:
        if self._live is None:
            from rich.live import Live as RichLive

            self._live = RichLive(console=self._console, transient=True, auto_refresh=False)
            self._live.start()
        self._live.update(table(progress, self._steps, self._speed(progress, now)), refresh=True)

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def line(point: Point, steps: int, speed: float) -> str:
    """One measurement as plain text."""
    alphas = " ".join(f"{alpha:.3f}" for alpha in point.alpha)
    return (
        f"step {point.step:,} of {steps:,}: loss {point.train_loss:.3f}, held out {point.loss:.3f}, alpha {alphas}, "
        f"{point.tokens_per_pass:.2f} tokens per pass, {point.tokens:,} tokens seen, {speed:.0f} tokens/s"
    )


def table(progress: Progress, steps: int, speed: float) -> Table:
    """The last measurements and where the training stands."""
    from rich.table import Table

    left = (steps - progress.step) * progress.tokens / max(progress.step, 1) / max(speed, 1e-9)
    shown = Table(
        box=None,
        pad_edge=False,
        header_style="bold",
        title=f"step {progress.step:,} of {steps:,}, loss {progress.train_loss:.3f}, {speed:.0f} tokens/s"
        + (f", {units.duration(left)} left" if speed > 0 else ""),
        title_justify="left",
    )
    for name in ("step", "tokens", "loss", "held out", "alpha by position", "tokens per pass"):
        shown.add_column(name, justify="right")
    for point in progress.points[-LINES:]:
        shown.add_row(
            f"{point.step:,}",
            f"{point.tokens:,}",
            f"{point.train_loss:.3f}",
            f"{point.loss:.3f}",
            " ".join(f"{alpha:.2f}" for alpha in point.alpha),
            f"{point.tokens_per_pass:.2f}",
        )
    return shown
