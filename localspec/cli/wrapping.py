"""Running text on a terminal, broken between words at its edge while it is written. Knows no answers.

A word is written as it comes; one that begins near the edge waits until it is seen to fit or goes to the next line.
Code blocks, words of more than `LONG` cells and writing without spaces stay as they are: there the terminal breaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby
from typing import IO

from localspec.cli.streams import columns

LONG = 24
"""Cells of the longest word that is kept whole: what begins further from the edge need not wait."""
TAB = 8
FENCES = ("```", "~~~")
_PARTS = re.compile(r"\n|[ \t]|[^ \t\n]+")


class Wrapped:
    """Text on `stream`, which is a terminal; the cursor is in its first column."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._column = 0
        self._line = ""  # how the line of the text began: a fence?
        self._fenced = False
        self._inside = False  # a word has begun
        self._due = False  # a blank did not fit any more: the next word begins a line
        self._held: list[str] = []
        self._held_cells = 0

    def write(self, text: str, paint: Callable[[str], str] = str) -> None:
        """Write `text`, each part through `paint`, which may add what takes no cells. The width is asked anew."""
        width = columns(self._stream)
        self._column = min(self._column, width)
        for part in _PARTS.findall(text):
            if part == "\n":
                self._end_line()
            elif part in " \t":
                self._blank(part, width)
            else:
                self._word(part, paint, width)
        self._stream.flush()

    def settle(self) -> None:
        """Write what still waits: nothing follows."""
        self._stream.write("".join(self._held))
        self._column += self._held_cells
        self._held, self._held_cells = [], 0
        self._stream.flush()

    def _end_line(self) -> None:
        self.settle()
        self._stream.write("\n")
        if self._line.lstrip().startswith(FENCES):
            self._fenced = not self._fenced
        self._column, self._line, self._inside, self._due = 0, "", False, False

    def _blank(self, blank: str, width: int) -> None:
        self.settle()
        self._inside = False
        cells = TAB - self._column % TAB if blank == "\t" else 1
        self._line += blank if len(self._line) < LONG else ""
        if self._fenced or self._column + cells <= width:
            self._stream.write(blank)
            self._column += cells
        else:
            self._due = True

    def _word(self, part: str, paint: Callable[[str], str], width: int) -> None:
        self._line += part if len(self._line) < LONG else ""
        for wide, letters in groupby(part, _is_wide):
            text = "".join(letters)
            begins, self._inside = not self._inside, not wide  # wide letters may be parted anywhere
            if self._due:
                self._break()
            near = not self._fenced and self._column > 0 and width - self._column < LONG
            waits = not wide and (bool(self._held) or (begins and near))
            if wide:
                self.settle()
            self._held.append(paint(text))
            self._held_cells += _cells(text)
            if waits and self._column + self._held_cells <= width:
                continue
            if waits:
                self._break()
            self.settle()
            if self._column > width:
                self._column = (self._column - 1) % width + 1

    def _break(self) -> None:
        self._stream.write("\n")
        self._column, self._due = 0, False


def _is_wide(letter: str) -> bool:
    return not letter.isascii() and _cells(letter) > 1


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
