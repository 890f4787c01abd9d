"""The reduced vocabulary: what is said is kept, and where nothing was said the ids decide."""

from __future__ import annotations

import numpy as np

from localspec.services.train.vocabulary import choose


def test_what_is_said_most_is_kept() -> None:
    expected = np.zeros(1000)
    expected[[7, 400, 999]] = (50.0, 60.0, 70.0)
    assert choose(expected, 3).ids.tolist() == [7, 400, 999]


def test_of_tokens_never_said_the_earlier_merges_are_kept() -> None:
    expected = np.zeros(1000)
    expected[900] = 100.0
    assert choose(expected, 5).ids.tolist() == [0, 1, 2, 3, 900]
    assert choose(np.zeros(1000), 3).ids.tolist() == [0, 1, 2]


def test_a_single_rare_word_does_not_outweigh_an_early_merge() -> None:
    """A token said once in a large text tells less than its place among the merges."""
    expected = np.full(50_000, 0.0)
    expected[:100] = 10_000.0
    expected[45_000] = 0.2
    assert 45_000 not in choose(expected, 5_000).ids
    expected[45_000] = 20.0
    assert 45_000 in choose(expected, 5_000).ids


def test_the_vocabulary_of_the_head_to_go_on_from_stays() -> None:
    chosen = choose(np.arange(1000, dtype=np.float64), 20, always=range(10))
    assert chosen.ids.tolist() == [*range(10), *range(990, 1000)]
    assert chosen.coverage(np.array([5, 995, 500, 501])) == 0.5
