"""Records docs/chat.svg, the picture in the README: `python -m docs.record`, on a machine that does nothing else.

A real conversation: the program runs in a pseudo-terminal, the lines of SESSION are typed when it asks for one, and
what its screen then shows is drawn by rich. Nothing is retouched. Needs a Unix system and the default pair.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import pty
import re
import select
import struct
import sys
import termios
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.style import Style
from rich.text import Text

# Rich's picture asks a font server for its letters; any fixed-width font will do.
from rich._export_format import CONSOLE_SVG_FORMAT  # isort: skip

PICTURE = Path(__file__).parent / "chat.svg"
COLUMNS, ROWS = 92, 200
SESSION = (
    "/show drafts",
    "Repeat this text word for word: The sea covers most of the earth. It is home to fish, whales and corals, it "
    "carries ships and weather, and it remembers the heat of summer until winter. Whoever lives by the sea learns to "
    "read the sky, to trust the tide, and to keep a dry pair of socks.",
    "Write it once more.",
    "/quit",
)
READY = b"\x1b[?2004h"
"""Bracketed paste goes on: a line is awaited."""
PATIENCE_S = 300.0
_TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b[=>]|([\r\n\b])|([^\x1b\r\n\b]+)", re.DOTALL)

Cell = tuple[str, Style]


class Screen:
    """What a terminal would show of a stream of bytes: as much of the language as line editors and rich speak."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.lines: list[list[Cell]] = [[]]
        self.row = self.column = 0
        self._decoder = AnsiDecoder()
        self._rest = ""

    def feed(self, text: str) -> None:
        """Take note of what was written; half a sequence waits for its end."""
        text, at = self._rest + text, 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                break
            numbers, command, control, letters = found.groups()
            if command:
                self._obey(numbers, command, found[0])
            elif control:
                self._control(control)
            elif letters:
                for letter in letters:
                    self._put(letter)
            at = found.end()
        self._rest = text[at:]

    def _put(self, letter: str) -> None:
        if self.column == self.columns:
            self._control("\n")
            self.column = 0
        line = self.lines[self.row]
        line.extend([(" ", Style.null())] * (self.column + 1 - len(line)))
        line[self.column] = (letter, self._decoder.style)
        self.column += 1

    def _control(self, letter: str) -> None:
        if letter == "\r":
            self.column = 0
        elif letter == "\b":
            self.column = max(0, self.column - 1)
        else:
            self.row += 1
            self.lines.extend([] for _ in range(self.row + 1 - len(self.lines)))

    def _obey(self, numbers: str, command: str, sequence: str) -> None:
        count = int(numbers) if numbers.isdigit() else 1
        if command == "m":
            self._decoder.decode_line(sequence)
        elif command == "A":
            self.row = max(0, self.row - count)
        elif command == "B":
            for _ in range(count):
                self._control("\n")
        elif command == "C":
            self.column = min(self.columns - 1, self.column + count)
        elif command == "D":
            self.column = max(0, self.column - count)
        elif command in "JK":
            del self.lines[self.row][self.column :]
            if command == "J":
                del self.lines[self.row + 1 :]

    def texts(self) -> list[Text]:
        """The lines, colours included; empty ones at the end are left out."""
        drawn = [
            Text.assemble(
                *(("".join(letter for letter, _ in run), style) for style, run in groupby(line, itemgetter(1)))
            )
            for line in self.lines
        ]
        while drawn and not drawn[-1].plain.strip():
            drawn.pop()
        return drawn


def converse(command: list[str], session: tuple[str, ...]) -> Screen:
    """Run `command` in a terminal and type a line of `session` whenever it is ready for one."""
    program, terminal = pty.fork()
    if program == 0:
        os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen, left = Screen(COLUMNS), list(session)
    while select.select([terminal], [], [], PATIENCE_S)[0]:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # Linux says so when the program has ended
            break
        if not data:
            break
        screen.feed(data.decode("utf-8", "replace"))
        if b"\x1b[6n" in data:
            os.write(terminal, f"\x1b[{screen.row + 1};{screen.column + 1}R".encode())
        if READY in data and left:
            os.write(terminal, f"{left.pop(0)}\r".encode())
    os.waitpid(program, 0)
    return screen


def draw(screen: Screen, title: str) -> str:
    """The screen as an SVG picture."""
    console = Console(
        width=screen.columns, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    for line in screen.texts():
        console.print(line, soft_wrap=True)
    fonts = re.compile(r"@font-face \{\{.*?\}\}", re.DOTALL)
    return console.export_svg(title=title, code_format=fonts.sub("", CONSOLE_SVG_FORMAT))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.record", description=__doc__)
    parser.add_argument("arguments", nargs="*", default=["chat", "--temperature", "0"], help="of localspec")
    asked = parser.parse_args()
    screen = converse([sys.executable, "-m", "localspec", *asked.arguments], SESSION)
    PICTURE.write_text(draw(screen, f"localspec {' '.join(asked.arguments)}"), encoding="utf-8")
    sys.stdout.write("\n".join(line.plain for line in screen.texts()) + f"\n\n{PICTURE}\n")


if __name__ == "__main__":
    main()
