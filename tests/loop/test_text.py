"""From bytes to text that may be shown: every way to cut the bytes gives the same text, and stops never leak."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.loop.text import TextStream

LETTERS = ["é", "語", "🐱", "👩‍👩‍👧‍👦", "مرحبا", "a語🐱b", "e\u0301"]


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """Every way to cut `data` into pieces, for short data."""
    for borders in itertools.product([False, True], repeat=len(data) - 1):
        pieces, start = [], 0
        for at, border in enumerate(borders, start=1):
            if border:
                pieces.append(data[start:at])
                start = at
        yield [*pieces, data[start:]]


def streamed(parts: Sequence[bytes], stops: Sequence[str] = ()) -> tuple[list[str], TextStream]:
    stream = TextStream(stops)
    shown: list[str] = []
    for part in parts:
        shown += [piece.text for piece in stream.push(part, drafted=False)]
        if stream.stopped:
            return shown, stream
    return shown + [piece.text for piece in stream.finish()], stream


@pytest.mark.parametrize("text", [letter for letter in LETTERS if len(letter.encode()) <= 12])
def test_every_cut_gives_the_same_text(text: str) -> None:
    """B18."""
    for parts in cuts(text.encode()):
        shown, _ = streamed(parts)
        assert "".join(shown) == text
        assert all("\ufffd" not in piece for piece in shown)


@pytest.mark.parametrize("text", LETTERS)
def test_each_letter_comes_as_soon_as_it_is_complete(text: str) -> None:
    """B18."""
    stream = TextStream()
    shown = ""
    for count in range(1, len(text.encode()) + 1):
        byte = text.encode()[count - 1 : count]
        shown += "".join(piece.text for piece in stream.push(byte, drafted=False))
        assert shown == text.encode()[:count].decode("utf-8", "ignore")


@given(st.binary(max_size=40), st.lists(st.integers(0, 40), max_size=6))
def test_any_bytes_become_what_decoding_them_at_once_gives(data: bytes, borders: list[int]) -> None:
    places = [0, *sorted(min(border, len(data)) for border in borders), len(data)]
    shown, _ = streamed([data[a:b] for a, b in itertools.pairwise(places)])
    assert "".join(shown) == data.decode("utf-8", "replace")


SHORT = st.text("ab語", max_size=8)


@given(SHORT, st.lists(st.text("ab語", min_size=1, max_size=3), max_size=3), st.data())
def test_a_stop_shows_exactly_the_text_before_it(text: str, stops: list[str], data: st.DataObject) -> None:
    """B14: whatever the stops, the text and the cuts."""
    raw = text.encode()
    count = data.draw(st.integers(0, 5))
    borders = sorted(data.draw(st.lists(st.integers(0, len(raw)), min_size=count, max_size=count)))
    shown, stream = streamed([raw[a:b] for a, b in itertools.pairwise([0, *borders, len(raw)])], stops)
    found = [text.find(stop) for stop in stops if stop in text]
    assert stream.stopped == bool(found)
    if not found:
        assert "".join(shown) == text
        return
    before = "".join(shown)
    assert text.startswith(before)
    assert not any(stop in before for stop in stops)
    assert any(text[len(before) :].startswith(stop) for stop in stops)


@given(SHORT, st.text("ab語", min_size=1, max_size=3))
def test_the_tokens_that_stay_spell_a_beginning_of_what_was_shown(text: str, stop: str) -> None:
    """B16: byte tokens, one stop."""
    parts = [bytes([byte]) for byte in text.encode()]
    shown, stream = streamed(parts, [stop])
    if stream.stopped:
        assert b"".join(parts[: stream.kept_tokens]).decode() == "".join(shown) == text[: text.find(stop)]


def test_text_is_not_held_back_longer_than_it_could_become_a_stop() -> None:
    stream = TextStream(["STOP"])
    given_out = ["".join(piece.text for piece in stream.push(part, drafted=False)) for part in (b"a", b"S", b"T", b"x")]
    assert given_out == ["a", "", "", "STx"]


def test_a_stop_that_starts_anew_inside_itself() -> None:
    """The second `aa` of `aaab` begins before the first is given up."""
    shown, stream = streamed([b"a", b"a", b"a", b"b"], ["aab"])
    assert stream.stopped
    assert "".join(shown) == "a"
    assert stream.kept_tokens == 1


def test_pieces_keep_their_origin_through_holding() -> None:
    stream = TextStream(["STOP"])
    stream.push(b"S", drafted=True)
    pieces = stream.push(b"Tx", drafted=False)
    assert [(piece.text, piece.drafted) for piece in pieces] == [("S", True), ("Tx", False)]


def test_an_empty_stop_string_means_nothing() -> None:
    shown, stream = streamed([b"abc"], [""])
    assert shown == ["abc"]
    assert not stream.stopped
