"""The index of n-grams against a search that looks at the whole text."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.draft import Ids
from localspec.core.ngrams import Match, NgramIndex

TEXTS = st.lists(st.integers(0, 3), max_size=40)
BIG = 2**31 - 1


def ids(tokens: list[int]) -> Ids:
    return np.array(tokens, dtype=np.int32)


def searched(text: list[int], *, sizes: range, count: int, longest: int) -> list[Match]:
    """What `matches` owes, by looking everywhere."""
    ends: list[int] = []
    for size in reversed(sizes):
        here = [
            end
            for end in range(len(text) - 2, size - 2, -1)
            if size <= len(text) and text[end - size + 1 : end + 1] == text[-size:]
        ]
        ends += [end for end in here[:count] if end not in ends]
    found = []
    for end in ends[:count]:
        agree = [text[end - back] == text[len(text) - 1 - back] for back in range(min(longest, end + 1))]
        found.append(Match((*agree, False).index(False), end + 1))
    return sorted(found, key=lambda match: -match.length)


@given(text=TEXTS, low=st.integers(1, 3), more=st.integers(0, 3), count=st.integers(1, 5), longest=st.integers(6, 12))
def test_matches_are_those_of_a_search_through_the_whole_text(
    text: list[int], low: int, more: int, count: int, longest: int
) -> None:
    index = NgramIndex(low, low + more)
    index.follow(ids(text))
    assert index.matches(count, longest=longest) == searched(text, sizes=index.sizes, count=count, longest=longest)


@given(texts=st.lists(TEXTS, min_size=1, max_size=6), keep=st.lists(st.integers(0, 40), min_size=6, max_size=6))
def test_following_any_sequence_of_texts_equals_building_afresh(texts: list[list[int]], keep: list[int]) -> None:
    """B68: after undo, retry or another conversation nothing of the older text stays, nothing kept is lost."""
    index, text = NgramIndex(1, 4), list[int]()
    for tail, kept in zip(texts, keep, strict=False):
        text = text[:kept] + tail
        index.follow(ids(text))
        afresh = NgramIndex(1, 4)
        afresh.follow(ids(text))
        assert vars(index) == vars(afresh)


def test_follow_returns_the_length_of_the_common_prefix() -> None:
    index = NgramIndex(1, 2)
    assert index.follow(ids([1, 2, 3])) == 0
    assert index.follow(ids([1, 2, 3, 4])) == 3
    assert index.follow(ids([1, 2, 9])) == 2
    assert index.follow(ids([1])) == 1
    assert index.follow(ids([])) == 0
    assert len(index) == 0
    assert index.matches(3, longest=9) == []


def test_the_longest_match_comes_first_and_the_most_recent_among_equals() -> None:
    #                   0  1  2  3  4  5  6  7  8  9  10 11 12
    index = NgramIndex(1, 3)
    index.follow(ids([1, 2, 3, 7, 2, 3, 8, 9, 3, 5, 1, 2, 3]))
    assert index.matches(4, longest=9) == [Match(3, 3), Match(2, 6), Match(1, 9)]
    assert index.matches(1, longest=9) == [Match(3, 3)]
    index.follow(ids([4, 6, 4, 7, 4]))
    assert index.matches(2, longest=9) == [Match(1, 3), Match(1, 1)]


def test_agreement_is_counted_beyond_the_largest_size_and_up_to_the_limit() -> None:
    text = [*range(20), *range(20)]
    index = NgramIndex(1, 2)
    index.follow(ids(text))
    assert index.matches(1, longest=50) == [Match(20, 20)]
    assert index.matches(1, longest=7) == [Match(7, 20)]


def test_large_ids_do_not_run_into_each_other() -> None:
    index = NgramIndex(2, 2)
    index.follow(ids([0, BIG, BIG, 0, BIG, BIG - 1, 0, BIG]))
    assert index.matches(4, longest=2) == [Match(2, 5), Match(2, 2)]


def test_a_view_of_a_longer_array_may_be_followed() -> None:
    whole = ids([5, 6, 5, 6, 5])
    index = NgramIndex(1, 2)
    for length in range(1, len(whole) + 1):
        index.follow(whole[:length])
    whole[:] = 0  # the index keeps a copy
    assert index.text.tolist() == [5, 6, 5, 6, 5]


@given(text=TEXTS.filter(len), known=st.integers(0, 20), size=st.integers(1, 4))
def test_whether_an_end_recurs_is_known_without_following(text: list[int], known: int, size: int) -> None:
    index = NgramIndex(1, 4)
    index.follow(ids(text[: min(known, len(text) - 1)]))
    followed = index.text.tolist()
    grams = [tuple(text[at : at + size]) for at in range(len(text) - size + 1)]
    assert index.recurs(ids(text), size) == (grams[-1:] != [] and grams[-1] in grams[:-1])
    assert index.text.tolist() == followed
