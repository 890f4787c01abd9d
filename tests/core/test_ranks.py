"""Rates by rank, and the trees planned from them before a token is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.draft import Draft, Verdict
from localspec.core.growth import Growth
from localspec.core.ranks import LEAST, PRIOR, WEIGHT, Ranks, plan
from localspec.core.shapes import Place, Shape

WIDE = Growth(nodes=20, depth=4, width=3, leaves=100)


def every(depth: int, joints: Sequence[float]) -> int:
    return len(joints)


class Told(Ranks):
    """Ranks with these rates."""

    def __init__(self, *rates: float) -> None:
        super().__init__()
        self._rates = rates

    def rate(self, rank: int) -> float:
        return self._rates[min(rank, len(self._rates) - 1)]


def joint(ranks: Ranks, place: Place) -> float:
    """Chance that the whole path down to `place` is taken."""
    chances = ranks.chances(max(place) + 1)
    return float(np.prod([chances[rank] for rank in place]))


# -- what was taken ---------------------------------------------------------------------------------------------------


def verdict(*path: int) -> Verdict:
    return Verdict(path, 0, "residual", 0)


TREE = Draft(np.zeros(6, dtype=np.int32), np.array([-1, -1, -1, 1, 1, 3], dtype=np.int32))


def counted(*verdicts: Verdict) -> dict[int, float]:
    ranks = Ranks()
    for one in verdicts:
        ranks.learn(TREE, one)
    return {rank: ranks.rate(rank) - PRIOR[rank] for rank in range(4)}


def test_at_first_the_prior_speaks() -> None:
    assert [Ranks().rate(rank) for rank in range(len(PRIOR))] == pytest.approx(PRIOR)
    assert Ranks().rate(50) == pytest.approx(PRIOR[-1])


def test_a_refused_tree_counts_against_every_first_sibling() -> None:
    change = counted(verdict())
    assert change[0] < 0
    assert change[1] < 0
    assert change[2] < 0
    assert change[3] == pytest.approx(0)


def test_elders_of_the_taken_one_count_as_refused_and_the_younger_not_at_all() -> None:
    """Node 1 is the second of three; below it node 3 is the first of two, and below that node 5 is refused."""
    ranks = Ranks()
    ranks.learn(TREE, verdict(1, 3))
    memory = 0.99
    # rank 0: refused at the root, taken below, refused again below that
    taken = ((PRIOR[0] * WEIGHT * memory) * memory + 1) * memory
    tested = ((WEIGHT * memory + 1) * memory + 1) * memory + 1
    assert ranks.rate(0) == pytest.approx(taken / tested)
    assert ranks.rate(1) == pytest.approx((PRIOR[1] * WEIGHT * memory + 1) / (WEIGHT * memory + 1))
    assert ranks.rate(2) == pytest.approx(PRIOR[2])


def test_a_path_that_ends_at_a_leaf_tests_nothing_more() -> None:
    both = counted(verdict(0))
    assert both[0] > 0
    assert both[1] == pytest.approx(0)


def test_rates_follow_what_happens() -> None:
    ranks, rng = Ranks(), np.random.default_rng(1)
    draft = Draft(np.zeros(2, dtype=np.int32), np.array([-1, -1], dtype=np.int32))
    for _ in range(2000):
        first, second = rng.random() < 0.3, rng.random() < 0.8
        ranks.learn(draft, verdict(*([0] if first else [1] if second else [])))
    assert ranks.rate(0) == pytest.approx(0.3, abs=0.1)
    assert ranks.rate(1) == pytest.approx(0.8, abs=0.1)


def test_no_rate_is_ever_sure() -> None:
    """A sure rate would plan an endless chain, or never look at a rank again."""
    ranks = Ranks()
    for _ in range(3000):
        ranks.learn(TREE, verdict(0))
    assert ranks.rate(0) == 1.0 - LEAST
    for _ in range(3000):
        ranks.learn(TREE, verdict())
    assert ranks.rate(0) == LEAST


@given(st.integers(0, 12))
def test_chances_of_siblings_are_a_law(count: int) -> None:
    chances = Ranks().chances(count)
    assert len(chances) == count
    assert all(0.0 < chance < 1.0 for chance in chances)
    assert sum(chances) < 1.0
    assert chances[:1] == [pytest.approx(PRIOR[0])][:count]
    if count > 1:
        assert chances[1] == pytest.approx((1 - PRIOR[0]) * PRIOR[1])


# -- what is planned --------------------------------------------------------------------------------------------------


def test_a_plan_takes_the_places_with_the_best_chances() -> None:
    """Compared with all places there are, sorted."""
    ranks = Told(0.6, 0.5, 0.4)
    shape = plan(ranks, WIDE, widen=every, choose=len)
    possible = [place for depth in range(1, 5) for place in product(range(3), repeat=depth)]
    expected = sorted((joint(ranks, place) for place in possible), reverse=True)[:20]
    assert [joint(ranks, place) for place in shape.places] == pytest.approx(expected)


def test_a_sure_drafter_gets_a_chain_and_an_unsure_one_a_bush() -> None:
    chain = plan(Told(0.95, 0.2), Growth(nodes=6, depth=6, width=4), widen=every, choose=len)
    assert chain.places == tuple((0,) * depth for depth in range(1, 7))
    bush = plan(Told(0.25, 0.3, 0.4), Growth(nodes=3, depth=6, width=4), widen=every, choose=len)
    assert set(bush.places) == {(0,), (1,), (2,)}


def test_widen_is_asked_for_every_parent_until_it_says_no() -> None:
    asked: dict[int, list[list[float]]] = {2: [], 3: []}

    def widen(depth: int, joints: Sequence[float]) -> int:
        asked[depth].append(list(joints))
        return min(len(joints), 2) if depth == 2 else 0

    shape = plan(Told(0.6, 0.5), WIDE, widen=widen, choose=len)
    assert [len(joints) for joints in asked[2]] == [1, 2, 3]
    assert asked[2][-1] == pytest.approx([0.6, 0.2, 0.1])
    assert asked[3] == [pytest.approx([0.36])]
    assert shape.depth == 2
    assert set(shape.widths) == {(), (0,), (1,)}


def test_choose_sees_the_chances_and_cuts_the_rest() -> None:
    seen: list[float] = []

    def choose(joints: Sequence[float]) -> int:
        seen.extend(joints)
        return 4

    shape = plan(Told(0.6, 0.5), WIDE, widen=every, choose=choose)
    assert len(shape) == 4
    assert seen[:2] == pytest.approx([0.6, 0.36])
    assert seen == sorted(seen, reverse=True)
    assert len(plan(Ranks(), WIDE, widen=every, choose=lambda joints: 0)) == 0


def test_the_first_depth_needs_nobodys_leave() -> None:
    """Its row is there whatever is decided: only `choose` may leave it out."""
    shape = plan(Ranks(), WIDE, widen=lambda depth, joints: 0, choose=len)
    assert shape.places == ((0,), (1,), (2,))


@given(
    st.lists(st.floats(LEAST, 1 - LEAST), min_size=1, max_size=8),
    st.builds(
        Growth,
        nodes=st.integers(0, 24),
        depth=st.integers(1, 5),
        width=st.integers(1, 5),
        leaves=st.integers(1, 10),
    ),
    st.integers(0, 24),
    st.integers(1, 5),
)
def test_any_plan_stands_and_fits(rates: list[float], growth: Growth, chosen: int, deepest: int) -> None:
    """Also where a younger sibling is likelier than its elder, which a learned rate may well claim."""
    shape = plan(
        Told(*rates),
        growth,
        widen=lambda depth, joints: len(joints) if depth <= deepest else 0,
        choose=lambda joints: min(chosen, len(joints)),
    )
    assert set(Shape.of(shape.places).places) == set(shape.places)
    assert len(shape) <= min(growth.nodes, chosen)
    assert shape.leaves <= growth.leaves
    assert shape.depth <= min(growth.depth, deepest)
    assert max((place[-1] for place in shape.places), default=0) < growth.width
