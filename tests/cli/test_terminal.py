"""Progress, notes and warnings on standard error; sizes and times as people read them."""

from __future__ import annotations

import io
import sys

import pytest

from localspec.cli import terminal, units
from localspec.cli.terminal import Terminal, Work, amounts, rate


class Clock:
    """A monotonic clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(terminal, "time", found)
    return found


class Tty(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_b21_progress_in_a_pipe_is_a_line_now_and_then(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """B21: spinners and carriage returns filled log files."""
    with Terminal() as report:
        for second in range(21):
            clock.now = 100.0 + second
            report.progress("Fetching model.gguf", second * 5_000_000, 100_000_000, "bytes")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "Fetching model.gguf: 25 %, 25.0 MB of 100 MB, 5.0 MB/s, 15 s left",
        "Fetching model.gguf: 50 %, 50.0 MB of 100 MB, 5.0 MB/s, 10 s left",
        "Fetching model.gguf: 75 %, 75.0 MB of 100 MB, 5.0 MB/s, 5 s left",
        "Fetching model.gguf: 100 %, 100 MB of 100 MB, 5.0 MB/s",
    ]


def test_quick_work_shows_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Terminal() as report:
        report.progress("Loading", 1, 2, "bytes")
        clock.now += 0.1
        report.progress("Loading", 2, 2, "bytes")
    assert capsys.readouterr().err == ""


def test_on_a_terminal_progress_moves_and_leaves_no_trace(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Tty()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with Terminal() as report:
        report.progress("Fetching", 0, 100_000_000, "bytes")
        clock.now += 2
        report.progress("Fetching", 40_000_000, 100_000_000, "bytes")
        report.note("a note")
        report.progress("Fetching", 100_000_000, 100_000_000, "bytes")
        assert "Fetching" in stream.getvalue()
        assert "a note" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[2K\x1b[?25h\r")  # the line is wiped and the cursor is back


def test_b70_the_same_warning_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    report = Terminal()
    for _ in range(3):
        report.warn("the draft [b] cannot be used")
    report.warn("another")
    report.note("a [note]")
    assert capsys.readouterr().err == "warning: the draft [b] cannot be used\nwarning: another\na [note]\n"


def test_what_an_earlier_run_fetched_counts_for_no_speed() -> None:
    assert rate(Work(started=10.0, first=900, said=10.0), 1000, 20.0) == 10.0
    assert rate(Work(started=10.0, first=0, said=10.0), 0, 10.0) == 0.0


def test_amounts() -> None:
    assert amounts(1500, None, "bytes", 0.0) == "1.5 kB"
    assert amounts(1200, 4800, "tokens", 100.0) == "1,200 of 4,800 tokens, 100 tokens/s, 36 s left"
    assert amounts(3, 9, "steps", 0.1) == "3 of 9 steps, 1 min 00 s left"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (98_362_432, "98.4 MB"),
        (999_600, "1.0 MB"),
        (4.2e9, "4.2 GB"),
        (5e12, "5.0 TB"),
    ],
)
def test_sizes(count: float, text: str) -> None:
    assert units.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (59.4, "59 s"), (65, "1 min 05 s"), (3600, "1 h 00 min"), (7500, "2 h 05 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text
