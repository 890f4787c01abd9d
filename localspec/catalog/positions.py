"""Where in a TOML text a key stands, for messages that name the line.

`tomllib` gives values without positions, so the text is read a second time, only for its headers and keys. Knows
nothing about models; for what it cannot place (a key inside an inline table) it answers with the nearest parent.
"""

from __future__ import annotations

import re

Key = tuple[str, ...]

_PART = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]\]?")
_ENTRY = re.compile(rf"\s*({_DOTTED})\s*=(.*)")
_QUOTES = ('"""', "'''")


class Positions:
    """Line numbers, from 1, of the tables and keys of a TOML text."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Key, int] = {}
        table: Key = ()
        inside = ""  # the quotes of a multi-line string that is still open
        for number, line in enumerate(text.splitlines(), start=1):
            if inside:
                inside = "" if inside in line else inside
                continue
            if header := _HEADER.match(line):
                table = _key(header[1])
                self._note(table, number)
            elif entry := _ENTRY.match(line):
                self._note(table + _key(entry[1]), number)
                inside = next((quotes for quotes in _QUOTES if entry[2].count(quotes) == 1), "")

    def line(self, *key: str) -> int:
        """The line of `key`, or of its nearest parent that has one."""
        for length in range(len(key), 0, -1):
            if key[:length] in self._lines:
                return self._lines[key[:length]]
        return 1

    def _note(self, key: Key, number: int) -> None:
        for length in range(1, len(key) + 1):
            self._lines.setdefault(key[:length], number)


def _key(dotted: str) -> Key:
    return tuple(_plain(part) for part in re.findall(_PART, dotted))


def _plain(part: str) -> str:
    if part[0] == '"':
        return re.sub(r"\\(.)", r"\1", part[1:-1])
    return part[1:-1] if part[0] == "'" else part
