"""The sorted text against a search that looks at every place."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.corpus import LONGEST, SEPARATOR, Corpus
from localspec.core.draft import Ids
from localspec.core.ngrams import Match


def ids(tokens: list[int]) -> Ids:
    return np.array(tokens, dtype=np.int32)


def agreement(text: list[int], end: int, tail: list[int], longest: int) -> int:
    length = 0
    while length < min(longest, end + 1, len(tail)) and text[end - length] == tail[-1 - length]:
        length += 1
    return length


@given(
    text=st.lists(st.integers(-1, 3), max_size=60),
    tail=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    count=st.integers(1, 5),
    least=st.integers(1, 3),
    longest=st.integers(3, 12),
)
def test_matches_are_the_longest_of_a_search_through_the_whole_text(
    text: list[int], tail: list[int], count: int, least: int, longest: int
) -> None:
    found = Corpus(ids(text)).matches(tail, count, least=least, longest=longest)
    followed = [end for end in range(len(text) - 1) if text[end + 1] != SEPARATOR]
    lengths = sorted((agreement(text, end, tail, longest) for end in followed), reverse=True)
    assert [match.length for match in found] == [length for length in lengths if length >= least][:count]
    assert len({match.after for match in found}) == len(found)
    assert all(agreement(text, match.after - 1, tail, longest) == match.length for match in found)


def test_long_pasts_decide_up_to_the_limit() -> None:
    """Many places end alike; the one whose past agrees for longest comes first, wherever it stands."""
    rng = np.random.default_rng(3)
    phrases = [[*rng.integers(10, 99, 20).tolist(), 1, 2, 3, 100 + number] for number in range(50)]
    corpus = Corpus(ids([token for phrase in phrases for token in phrase]))
    for number in (0, 17, 49):
        (match,) = corpus.matches(phrases[number][:-1], 1, least=1, longest=LONGEST)
        assert corpus[match.after] == 100 + number
        assert match.length >= 23


def test_nothing_is_read_across_a_separator() -> None:
    corpus = Corpus(ids([1, 2, SEPARATOR, 1, 2, 3]))
    assert corpus.matches([1, 2], 4, least=1, longest=9) == [Match(2, 5)]
    assert Corpus(ids([7, SEPARATOR, 8])).matches([7], 4, least=1, longest=9) == []


def test_a_text_that_repeats_itself_is_sorted_too() -> None:
    corpus = Corpus(ids([5] * 200))
    assert corpus.matches([5, 5, 5], 3, least=1, longest=9)[0].length == 3
    assert len(corpus.matches([5] * 50, 500, least=LONGEST, longest=99)) == 200 - LONGEST


def test_no_text_and_no_tail() -> None:
    assert Corpus(ids([])).matches([1], 3, least=1, longest=9) == []
    assert Corpus(ids([1, 1])).matches([], 3, least=1, longest=9) == []
    assert len(Corpus(ids([]))) == 0
