"""Where running text is broken on a terminal, whatever pieces it comes in."""

from __future__ import annotations

import io
import random

import pytest

from localspec.cli import wrapping
from localspec.cli.wrapping import Wrapped
from tests.cli.programs import Screen, piped

TALE = "The quick brown fox jumps over the lazy dog, again and again and again."


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    found = Terminal()
    monkeypatch.setattr(wrapping, "columns", lambda stream: found.columns)
    return found


class Terminal(io.StringIO):
    columns = 20

    def shows(self, *pieces: str) -> list[str]:
        """The lines after these pieces."""
        page = Wrapped(self)
        for piece in pieces:
            page.write(piece)
        page.settle()
        return self.getvalue().split("\n")


def test_lines_break_between_words(terminal: Terminal) -> None:
    lines = [line.rstrip() for line in terminal.shows(TALE)]
    assert lines == ["The quick brown fox", "jumps over the lazy", "dog, again and again", "and again."]


@pytest.mark.parametrize("width", [5, 10, 20, 40, 80, 200])
def test_the_pieces_do_not_matter_and_no_letter_is_lost(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(wrapping, "columns", lambda stream: width)
    text = " ".join([TALE, "", "a-word-of-more-than-twenty-four-cells", TALE, "\n\n- 你好世界 naïve"] * 3)
    pieces = [text[start : start + 3] for start in range(0, len(text), 3)]
    assert Terminal().shows(*pieces) == Terminal().shows(*text)
    shown = Terminal().shows(*pieces)
    assert "\n".join(shown).split() == text.split()
    widest = max(map(len, TALE.split()))
    assert all(len(line.rstrip()) <= width or width < widest for line in Terminal().shows(TALE))


def test_a_word_far_from_the_edge_is_written_at_once(terminal: Terminal) -> None:
    terminal.columns = 80
    page = Wrapped(terminal)
    page.write("one tw")
    assert terminal.getvalue() == "one tw"


def test_a_word_near_the_edge_waits_until_it_is_seen_to_fit(terminal: Terminal) -> None:
    page = Wrapped(terminal)
    page.write("seventeen letters")
    assert terminal.getvalue() == "seventeen "
    page.write(" ab")
    assert terminal.getvalue() == "seventeen letters "
    page.write("c")
    assert terminal.getvalue() == "seventeen letters \nabc"


def test_code_and_long_words_are_left_to_the_terminal(terminal: Terminal) -> None:
    code = "```python\nprint('a long line of', 'several words')\n```"
    assert terminal.shows(f"Look:\n{code}\nthat is all of it, my friend")[1:4] == code.split("\n")
    address = "https://example.org/a/long/path"
    assert Terminal().shows(f"see {address} there")[0].startswith(f"see \n{address}"[:4])


def test_code_ends_where_it_ends(terminal: Terminal) -> None:
    assert terminal.shows("  ```\n  a b\n  ```\n" + TALE)[3].rstrip() == "The quick brown fox"


def test_wide_letters_take_two_cells(terminal: Terminal) -> None:
    assert terminal.shows("你好世界你好 three words") == ["你好世界你好 three ", "words"]


def test_a_blank_at_the_edge_begins_no_line(terminal: Terminal) -> None:
    assert terminal.shows("twenty letters it is and", " more") == ["twenty letters it is", "and more"]


def test_a_terminal_that_is_resized_meanwhile(terminal: Terminal) -> None:
    page = Wrapped(terminal)
    page.write("one two three four ")
    terminal.columns = 40
    page.write("five six seven eight nine ten")
    page.settle()
    assert terminal.getvalue() == "one two three four five six seven eight \nnine ten"


def test_any_pieces_at_random(terminal: Terminal) -> None:
    rng = random.Random(1)
    words = "".join(rng.choice(["a", "bcd", " ", " ", "\n", "\t", "é", "好", "🐈"]) for _ in range(2000))
    cut = sorted(rng.sample(range(len(words)), 300))
    pieces = [words[start:end] for start, end in zip([0, *cut], [*cut, len(words)], strict=True)]
    assert terminal.shows(*pieces) == Terminal().shows(*words)
    assert "".join(terminal.getvalue().split()) == "".join(words.split())


def test_an_answer_on_a_terminal_breaks_between_words_and_in_a_pipe_not_at_all() -> None:
    screen = Screen(["run", "hi"], scripts=[{"text": TALE * 3}], columns=40)
    assert screen.end() == 0
    lines = screen.plain.split("\n")
    assert lines[0].rstrip() == "The quick brown fox jumps over the lazy"
    assert piped(["run", "hi"], scripts=[{"text": TALE * 3}]).stdout.decode() == TALE * 3 + "\n"
