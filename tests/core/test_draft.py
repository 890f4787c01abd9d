"""Drafts as trees: shape, paths, and what may be cut away."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.core.draft import EMPTY, ROOT, Draft
from localspec.core.law import Law

#        pending
#        0      1
#       2 3     4
#       5
PARENTS = np.array([-1, -1, 0, 0, 1, 2], dtype=np.int32)
TREE = Draft(np.arange(10, 16, dtype=np.int32), PARENTS, tuple(Law.one_hot(token) for token in range(10, 16)))


def test_a_chain_is_a_thin_tree() -> None:
    chain = Draft.chain([7, 8, 9])
    assert chain.is_chain
    assert chain.parents.tolist() == [ROOT, 0, 1]
    assert chain.depths.tolist() == [1, 2, 3]
    assert chain.path(2) == (0, 1, 2)
    assert chain.children == {ROOT: (0,), 0: (1,), 1: (2,)}
    assert chain.law(1) is None


def test_an_empty_draft() -> None:
    assert len(EMPTY) == 0
    assert EMPTY.is_chain
    assert EMPTY.children == {}
    assert EMPTY.depths.tolist() == []
    assert EMPTY.ending_at(lambda token: True) is EMPTY


def test_a_tree() -> None:
    assert not TREE.is_chain
    assert TREE.depths.tolist() == [1, 1, 2, 2, 2, 3]
    assert TREE.children == {ROOT: (0, 1), 0: (2, 3), 1: (4,), 2: (5,)}
    assert TREE.path(5) == (0, 2, 5)
    assert TREE.path(ROOT) == ()


@pytest.mark.parametrize(
    ("ends", "kept"),
    [
        (set(), [10, 11, 12, 13, 14, 15]),
        ({10}, [10, 11, 14]),
        ({12, 11}, [10, 11, 12, 13]),
        ({15}, [10, 11, 12, 13, 14, 15]),
    ],
)
def test_nothing_hangs_below_an_end_token(ends: set[int], kept: list[int]) -> None:
    cut = TREE.ending_at(ends.__contains__)
    assert cut.tokens.tolist() == kept
    for node, token in enumerate(kept):
        old = TREE.tokens.tolist().index(token)
        assert [cut.tokens[i] for i in cut.path(node)] == [TREE.tokens[i] for i in TREE.path(old)]
        assert cut.law(node) is TREE.law(old)


def test_an_end_token_inside_a_chain() -> None:
    assert Draft.chain([5, 2, 5]).ending_at(lambda token: token == 2).tokens.tolist() == [5, 2]
    whole = Draft.chain([5, 5, 2])
    assert whole.ending_at(lambda token: token == 2) is whole
