"""Guesses as a tree, and what is learned from the ones that were tested."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.core.corpus import Corpus
from localspec.core.draft import ROOT, Ids
from localspec.core.foretold import Foretold, Place
from localspec.core.trust import LONGEST, Guess, Support, Trust


def ids(tokens: list[int]) -> Ids:
    return np.array(tokens, dtype=np.int32)


def places(*continuations: list[int], lengths: tuple[int, ...] = ()) -> list[Place]:
    """Places of one text, each followed by one of `continuations`."""
    found = []
    for at, tokens in enumerate(continuations):
        found.append(Place(Corpus(ids([0, *tokens])), lengths[at] if lengths else 5, 1))
    return found


def test_siblings_are_what_followed_in_the_order_of_the_matches() -> None:
    tree = Foretold(Trust())
    first = tree.expand(ROOT, places([7, 1], [8, 2], [7, 3], [9], lengths=(5, 4, 3, 2)), 3)
    guesses = [tree.nodes[node].guess for node in first]
    assert guesses == [Guess(7, 5, Support.CONTESTED), Guess(8, 4, Support.SECOND), Guess(9, 2, Support.LATER)]
    below = tree.expand(first[0], tree.nodes[first[0]].places, 3)
    assert [tree.nodes[node].guess for node in below] == [Guess(1, 6, Support.CONTESTED), Guess(3, 4, Support.SECOND)]
    assert tree.expand(below[0], tree.nodes[below[0]].places, 3) == [], "the text ends there"


def test_chances_of_siblings_sum_to_at_most_one_and_joints_are_products() -> None:
    tree, trust = Foretold(Trust()), Trust()
    first = tree.expand(ROOT, places([7, 1], [8, 2], [9, 3]), 3)
    chances = [tree.nodes[node].chance for node in first]
    assert chances[0] == trust.probability(tree.nodes[first[0]].guess)
    assert chances[1] == pytest.approx((1 - chances[0]) * trust.probability(tree.nodes[first[1]].guess))
    assert sum(chances) < 1.0
    (below,) = tree.expand(first[1], tree.nodes[first[1]].places, 3)
    assert tree.nodes[below].joint == pytest.approx(chances[1] * tree.nodes[below].chance)
    assert tree.nodes[below].depth == 2


def test_a_draft_is_a_part_of_the_tree() -> None:
    tree = Foretold(Trust())
    first = tree.expand(ROOT, places([7, 1], [8, 2]), 3)
    (below,) = tree.expand(first[1], tree.nodes[first[1]].places, 3)
    draft = tree.draft([first[1], below])
    assert draft.tokens.tolist() == [8, 2]
    assert draft.parents.tolist() == [-1, 0]
    assert draft.laws is None
    assert draft.confidences == (tree.nodes[first[1]].chance, tree.nodes[below].chance)
    assert len(tree.draft([])) == 0


class Noted(Trust):
    def __init__(self) -> None:
        super().__init__()
        self.learned: list[tuple[int, bool]] = []

    def learn(self, guess: Guess, *, right: bool) -> None:
        self.learned.append((guess.token, right))


def test_elders_and_the_one_that_came_are_put_to_the_test_and_then_its_children() -> None:
    trust = Noted()
    tree = Foretold(trust)
    first = tree.expand(ROOT, places([7, 1], [8, 2], [9, 3]), 3)
    for node in first:
        tree.expand(node, tree.nodes[node].places, 3)
    tree.learn(ids([8, 5, 2]))
    assert trust.learned == [(7, False), (8, True), (2, False)]


def test_a_longer_match_with_more_support_is_trusted_more() -> None:
    trust = Trust()
    for support in Support:
        row = [trust.probability(Guess(0, length, support)) for length in range(1, 40)]
        assert row == sorted(row)
    for length in (1, 2, 3, 5, 8):
        chances = [trust.probability(Guess(0, length, support)) for support in Support]
        contested, single, agreed, second, later = chances
        assert contested < single < agreed
        assert later < second


def test_rates_follow_the_outcomes_of_their_own_kind() -> None:
    trust, others = Trust(), Trust()
    guess = Guess(1, 3, Support.SINGLE)
    for _ in range(200):
        trust.learn(guess, right=False)
    assert trust.probability(guess) < 0.05
    for support in Support:
        for length in range(1, LONGEST):
            if (support, length) != (guess.support, guess.length):
                other = Guess(1, length, support)
                assert trust.probability(other) == others.probability(other)
