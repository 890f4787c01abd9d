"""Lists and tables that fit the terminal without breaking words. Knows no command."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.cli.streams import is_terminal, out

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

GAP = 2
NARROWEST = 20


@dataclass(frozen=True)
class Column:
    """right: numbers; wraps: its cells may take several lines; spare: the highest is left out first, 0 never."""

    head: str
    right: bool = False
    wraps: bool = False
    spare: int = 0


def hanging(console: Console, label: str, body: Text, *, indent: int) -> None:
    """`body` behind `label`, further lines indented; a word that is too long is left to the terminal."""
    from rich.text import Text

    width = max(console.width - max(len(label), indent), NARROWEST)
    for number, line in enumerate(body.divide(breaks(body.plain, width))):
        line.rstrip()
        console.print(Text.assemble(" " * indent if number else label, line), soft_wrap=True)


def breaks(text: str, width: int) -> list[int]:
    """Where lines of so many cells begin, the first one apart: at words only."""
    from rich.cells import cell_len

    found, column = [], 0
    for word in re.finditer(r"\S+\s*", text):
        if column and column + cell_len(word[0].rstrip()) > width:
            found.append(word.start())
            column = 0
        column += cell_len(word[0])
    return found


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, elsewhere: str) -> None:
    """A table on a terminal, without the columns that it has no room for: these stand `elsewhere`.

    In a pipe lines of fields with tabs between them, headed likewise.
    """
    if not is_terminal(sys.stdout):
        for row in ([column.head for column in columns], *rows):
            sys.stdout.write("\t".join(row).rstrip() + "\n")
        return
    from rich.table import Table
    from rich.text import Text

    console = out()
    kept = fitting(columns, rows, console.width)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in kept:
        justify = "right" if column.right else "left"
        table.add_column(column.head, justify=justify, overflow="fold", no_wrap=not column.wraps)  # type: ignore[arg-type]
    places = [columns.index(column) for column in kept]
    for row in rows:
        table.add_row(*(Text(row[place]) for place in places))
    console.print(table)
    gone = [column.head for column in columns if column not in kept]
    if gone:
        console.print(f"No room for: {', '.join(gone)} ({elsewhere}).", style="dim", markup=False)


def fitting(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[Column]:
    """The columns that fit beside each other; those that cannot be spared stay, and break if nothing else helps."""
    kept = list(columns)
    while sum(_narrowest(columns.index(column), column, rows) + GAP for column in kept) - GAP > width:
        last = max(kept, key=lambda column: column.spare)
        if not last.spare:
            break
        kept.remove(last)
    return kept


def _narrowest(place: int, column: Column, rows: Sequence[Sequence[str]]) -> int:
    """Cells that a column needs so that no word breaks."""
    from rich.cells import cell_len

    cells = [column.head, *(row[place] for row in rows)]
    words = [word for cell in cells for word in cell.split()] if column.wraps else cells
    return max(map(cell_len, words), default=0)
