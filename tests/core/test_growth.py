"""Growing trees on a scripted source: which nodes are drafted, in which order they are evaluated, what is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.draft import ROOT, Draft, Ids
from localspec.core.growth import Grown, Growth, Node, Sibling, best, dynamic, fixed
from localspec.core.law import Law
from localspec.core.shapes import Shape

END = 9
Text = tuple[int, ...]


def is_end(token: int) -> bool:
    return token == END


@dataclass
class Script:
    """Rows are texts; `law(text)` lists tokens with their probabilities. Keeps what was asked for.

    A row expires with the next layer, as a llama.cpp view does.
    """

    law: Callable[[Text], Sequence[tuple[int, float]]]
    nodes: int = 100
    leaves: int = 100
    drawn: bool = False
    texts: list[Text] = field(default_factory=list)
    layers: list[list[Text]] = field(default_factory=list)
    asked: list[tuple[Text, int, int]] = field(default_factory=list)
    valid: list[Text] = field(default_factory=lambda: [()])

    def siblings(self, row: Text, count: int, depth: int) -> list[Sibling]:
        assert row in self.valid, "a row was read after the next layer"
        self.asked.append((row, count, depth))
        law = Law.of(np.ones(10)) if self.drawn else None
        return [Sibling(token, law, prob) for token, prob in self.law(row)[:count]]

    def layer(self, tokens: Ids, parents: Ids, path: Callable[[int], Ids]) -> list[Text]:
        above = [self.texts[parent] if parent != ROOT else () for parent in parents.tolist()]
        new = [(*text, token) for text, token in zip(above, tokens.tolist(), strict=True)]
        assert [tuple(path(at).tolist()) for at in range(len(new))] == new
        self.texts += new
        self.layers.append(new)
        self.valid = new
        return new

    @property
    def evaluated(self) -> int:
        return len(self.texts)

    def paths(self) -> int:
        """Leaves of what was evaluated."""
        return len(set(self.texts)) - len({text[:-1] for text in self.texts} - {()})


def table(rows: dict[Text, list[tuple[int, float]]]) -> Callable[[Text], Sequence[tuple[int, float]]]:
    return lambda text: rows.get(text, [])


def constant(*probs: float) -> Callable[[Text], Sequence[tuple[int, float]]]:
    """The same law everywhere: token = rank."""
    return lambda text: list(enumerate(probs))


def texts(grown: Grown) -> list[Text]:
    draft = grown.draft
    return [tuple(draft.tokens[list(draft.path(node))].tolist()) for node in range(len(draft))]


def every(depth: int, joints: Sequence[float]) -> int:
    return len(joints)


def grow(
    script: Script,
    growth: Growth,
    *,
    widen: Callable[[int, Sequence[float]], int] = every,
    choose: Callable[[Sequence[float]], int] = len,
) -> Grown:
    return dynamic(growth, script, (), widen=widen, choose=choose, is_end=is_end)


# -- a shape fixed beforehand -----------------------------------------------------------------------------------------


def test_a_fixed_shape_is_filled_rank_by_rank() -> None:
    script = Script(constant(0.5, 0.3, 0.2))
    grown = fixed(Shape.parse("3,2"), script, (), is_end=is_end)
    assert set(texts(grown)) == {(a,) for a in range(3)} | {(a, b) for a in range(3) for b in range(2)}
    assert grown.draft.parents.tolist() == [-1, -1, -1, 0, 0, 1, 1, 2, 2]
    assert grown.draft.confidences == (0.5, 0.3, 0.2, 0.5, 0.3, 0.5, 0.3, 0.5, 0.3)
    assert grown.draft.laws is None  # deterministic picks all of them
    assert script.layers == [[(0,), (1,), (2,)]]  # one pass per depth, and the last depth is not evaluated
    assert script.asked == [((), 3, 1), ((0,), 2, 2), ((1,), 2, 2), ((2,), 2, 2)]


def test_only_inner_places_are_evaluated() -> None:
    script = Script(constant(0.5, 0.3, 0.2))
    grown = fixed(Shape.of([[0], [0, 0], [0, 0, 0], [1], [2], [0, 1]]), script, (), is_end=is_end)
    assert script.layers == [[(0,)], [(0, 0)]]
    assert dict(zip(texts(grown), grown.numbers, strict=True)) == {
        (0,): 0,
        (1,): -1,
        (2,): -1,
        (0, 0): 1,
        (0, 1): -1,
        (0, 0, 0): -1,
    }


def test_numbers_tell_what_of_a_path_the_source_has_seen() -> None:
    grown = fixed(Shape.parse("2,2,1"), Script(constant(0.6, 0.4)), (), is_end=is_end)
    at = {text: node for node, text in enumerate(texts(grown))}
    path = [at[1,], at[1, 0], at[1, 0, 0]]
    assert grown.evaluated(path) == [1, 4]  # layers: (0) (1), then (0,0) (0,1) (1,0) (1,1)
    assert grown.evaluated(path[:1]) == [1]
    assert grown.evaluated([]) == []
    assert grown.draft.path(path[-1]) == tuple(path)


def test_nothing_hangs_below_an_end_token() -> None:
    """A draft ends with the text: its token is no parent, and the others go on."""
    script = Script(table({(): [(END, 0.6), (1, 0.4)], (1,): [(2, 0.7), (END, 0.3)], (1, 2): [(3, 1.0)]}))
    grown = fixed(Shape.parse("2,2,1"), script, (), is_end=is_end)
    assert texts(grown) == [(END,), (1,), (1, 2), (1, END), (1, 2, 3)]
    assert script.layers == [[(1,)], [(1, 2)]]


def test_a_law_with_few_tokens_leaves_places_empty() -> None:
    script = Script(table({(): [(1, 1.0)], (1,): [(2, 1.0)]}))
    grown = fixed(Shape.parse("3,3,3"), script, (), is_end=is_end)
    assert texts(grown) == [(1,), (1, 2)]


def test_an_empty_shape_is_an_empty_draft() -> None:
    script = Script(constant(1.0))
    assert len(fixed(Shape(()), script, (), is_end=is_end).draft) == 0
    assert script.layers == []


def test_laws_travel_with_drawn_siblings() -> None:
    grown = fixed(Shape.parse("2,1"), Script(constant(0.6, 0.4), drawn=True), (), is_end=is_end)
    assert grown.draft.laws is not None
    assert all(law is not None for law in grown.draft.laws)


# -- as far as it is likely -------------------------------------------------------------------------------------------

# Joint probabilities: 1: .6, 2: .3, 3: .1; 1-1: .54, 1-2: .06; 2-1: .27; 3-1: .1; 1-1-1: .27, 1-1-2: .27
ROWS: dict[Text, list[tuple[int, float]]] = {
    (): [(1, 0.6), (2, 0.3), (3, 0.1)],
    (1,): [(1, 0.9), (2, 0.1)],
    (2,): [(1, 0.9), (2, 0.05)],
    (3,): [(1, 1.0)],
    (1, 1): [(1, 0.5), (2, 0.5)],
    (2, 1): [(1, 0.2)],
}


def test_the_best_nodes_by_joint_probability_are_kept() -> None:
    grown = grow(Script(table(ROWS)), Growth(nodes=5, depth=3, width=3, frontier=2))
    assert set(texts(grown)) == {(1,), (1, 1), (2,), (2, 1), (1, 1, 1)}
    assert grown.draft.confidences is not None
    assert dict(zip(texts(grown), grown.draft.confidences, strict=True))[2, 1] == 0.9


def test_the_frontier_are_the_likeliest_of_their_layer() -> None:
    script = Script(table(ROWS))
    grow(script, Growth(nodes=9, depth=3, width=3, frontier=2))
    assert script.layers == [[(1,), (2,)], [(1, 1), (2, 1)]]
    script = Script(table(ROWS))
    grow(script, Growth(nodes=9, depth=4, width=2, frontier=1))
    assert script.layers == [[(1,)], [(1, 1)], [(1, 1, 1)]]
    assert all(count == 2 for _, count, _ in script.asked)


def test_depth_is_counted_in_layers_of_nodes() -> None:
    script = Script(constant(0.9))
    grown = grow(script, Growth(nodes=9, depth=3, width=1, frontier=1))
    assert texts(grown) == [(0,), (0, 0), (0, 0, 0)]
    assert len(script.layers) == 2
    assert len(grow(Script(constant(0.9)), Growth(nodes=9, depth=1)).draft) == 1


def test_widen_says_how_many_of_the_frontier_are_expanded() -> None:
    asked = []

    def widen(depth: int, joints: Sequence[float]) -> int:
        asked.append((depth, *joints))
        return (2, 1, 0)[depth - 2]

    script = Script(table(ROWS))
    grown = grow(script, Growth(nodes=20, depth=5, width=3, frontier=2), widen=widen)
    assert np.array(asked) == pytest.approx(np.array([[2, 0.6, 0.3], [3, 0.54, 0.27], [4, 0.27, 0.27]]))
    assert script.layers == [[(1,), (2,)], [(1, 1)]]
    assert grown.draft.depths.max() == 3


def test_choose_sees_joints_best_first_and_cuts_the_rest() -> None:
    seen: list[float] = []

    def choose(joints: Sequence[float]) -> int:
        seen.extend(joints)
        return 3

    grown = grow(Script(table(ROWS)), Growth(nodes=20, depth=2, width=3, frontier=3), choose=choose)
    assert seen == pytest.approx([0.6, 0.54, 0.3, 0.27, 0.1, 0.1, 0.06, 0.015])
    assert texts(grown) == [(1,), (2,), (1, 1)]
    assert len(grow(Script(table(ROWS)), Growth(nodes=20), choose=lambda joints: 0).draft) == 0


def test_an_end_token_is_drafted_but_not_expanded() -> None:
    script = Script(table({(): [(END, 0.9), (1, 0.1)], (END,): [(1, 1.0)], (1,): [(END, 1.0)]}))
    grown = grow(script, Growth(nodes=9, depth=4))
    assert texts(grown) == [(END,), (1,), (1, END)]
    assert script.layers == [[(1,)]]


def test_ties_go_to_parents_and_to_those_that_came_first() -> None:
    """A child of probability 1 is as likely as its parent; a tree without the parent would not stand."""
    certain = Script(lambda text: [(0, 1.0)])
    assert texts(grow(certain, Growth(nodes=3, depth=9))) == [(0,), (0, 0), (0, 0, 0)]
    even = grow(Script(constant(0.5, 0.5)), Growth(nodes=4, depth=2, width=2, frontier=4))
    assert texts(even) == [(0,), (1,), (0, 0), (0, 1)]
    one = grow(Script(constant(0.5, 0.5)), Growth(nodes=4, depth=3, width=2, frontier=1))
    assert texts(one) == [(0,), (1,), (0, 0), (0, 1)]


def test_a_probability_of_zero_is_a_token_like_any_other() -> None:
    """Whoever drafts may be sure and wrong: nothing here divides by what it says."""
    grown = grow(Script(constant(1.0, 0.0)), Growth(nodes=5, depth=2, width=2, frontier=2))
    assert set(texts(grown)) == {(0,), (0, 0), (1,), (0, 1), (1, 0)}


def test_a_source_with_little_room_grows_a_smaller_tree() -> None:
    """Twelve layers of four nodes do not fit sixteen sequences: asking for them switched the drafter off."""
    script = Script(lambda text: [(rank, 0.24 + 0.001 * rank) for rank in range(4)], nodes=20, leaves=16)
    grown = grow(script, Growth(nodes=32, depth=12, width=4, frontier=4, leaves=16))
    assert script.evaluated <= 20
    assert script.paths() <= 16
    assert grown.draft.depths.max() >= 5


@st.composite
def laws(draw: st.DrawFn) -> Callable[[Text], Sequence[tuple[int, float]]]:
    """Any law of up to four tokens after every text, a function of the text."""
    seed, size = draw(st.integers(0, 2**32)), draw(st.integers(1, 4))

    def law(text: Text) -> list[tuple[int, float]]:
        rng = np.random.default_rng([seed, *text])
        probs = np.sort(rng.dirichlet(np.full(size, 0.5)))[::-1]
        tokens = rng.permutation(10)[:size]
        return list(zip(tokens.tolist(), probs.tolist(), strict=True))

    return law


growths = st.builds(
    Growth,
    nodes=st.integers(0, 40),
    depth=st.integers(1, 6),
    width=st.integers(1, 4),
    frontier=st.integers(1, 5),
    leaves=st.integers(1, 20),
)


def exhaustive(law: Callable[[Text], Sequence[tuple[int, float]]], growth: Growth) -> dict[Text, float]:
    """Joint probabilities of all texts that a full expansion would look at."""
    found: dict[Text, float] = {}
    layer: dict[Text, float] = {(): 1.0}
    for _ in range(growth.depth):
        below = {
            (*text, token): joint * prob
            for text, joint in layer.items()
            if not text or not is_end(text[-1])
            for token, prob in law(text)[: growth.width]
        }
        found |= below
        layer = below
    return found


@given(laws(), growths, st.integers(1, 30), st.integers(1, 12))
def test_whatever_grows_fits_and_stands(
    law: Callable[[Text], Sequence[tuple[int, float]]], growth: Growth, nodes: int, leaves: int
) -> None:
    script = Script(law, nodes=nodes, leaves=leaves)
    grown = grow(script, growth)
    draft = grown.draft
    assert len(draft) <= growth.nodes
    assert draft.leaves <= growth.leaves
    assert script.evaluated <= nodes
    assert script.paths() <= leaves
    assert all(len(layer) <= growth.frontier for layer in script.layers)
    assert all(parent < node for node, parent in enumerate(draft.parents.tolist()))
    assert len(set(texts(grown))) == len(draft)  # siblings differ
    for text, number in zip(texts(grown), grown.numbers, strict=True):
        assert number == -1 or script.texts[number] == text


@given(laws(), st.integers(1, 30), st.integers(1, 3))
def test_with_room_the_kept_nodes_are_the_likeliest_there_are(
    law: Callable[[Text], Sequence[tuple[int, float]]], nodes: int, depth: int
) -> None:
    """EAGLE-2's claim, for a frontier that leaves nothing out: no node outside is likelier than one inside."""
    growth = Growth(nodes=nodes, depth=depth, width=4, frontier=64, leaves=1000)
    grown = grow(Script(law, nodes=1000, leaves=1000), growth)
    joints = exhaustive(law, growth)
    kept = set(texts(grown))
    assert len(kept) == min(nodes, len(joints))
    inside = sorted(joints[text] for text in kept)
    assert inside == pytest.approx(sorted(joints.values())[-len(kept) :])


@given(laws(), st.integers(1, 8))
def test_one_leaf_is_a_chain(law: Callable[[Text], Sequence[tuple[int, float]]], nodes: int) -> None:
    """Where the verifier has one sequence: the likeliest child of the likeliest, as far as it goes."""
    draft = grow(Script(law), Growth(nodes=nodes, depth=6, leaves=1)).draft
    assert draft.is_chain


def test_within_only_ever_takes_room_away() -> None:
    growth = Growth(nodes=32, depth=6, width=3, frontier=2, leaves=16)
    assert growth.within(nodes=64, leaves=64) == growth
    assert growth.within(nodes=5, leaves=2) == Growth(nodes=5, depth=6, width=3, frontier=2, leaves=2)


def test_best_leaves_out_what_has_lost_its_parent() -> None:
    """The third leaf would be one too many, so its child cannot stay either, however likely."""
    nodes = [Node(at, parent, None, 1.0, joint, depth) for at, (parent, joint, depth) in enumerate(CROWD)]
    assert best(nodes, Growth(nodes=9, leaves=2), len) == [0, 1, 4]


CROWD = [(ROOT, 0.5, 1), (ROOT, 0.3, 1), (ROOT, 0.2, 1), (2, 0.19, 2), (1, 0.1, 2)]


def test_a_grown_draft_is_an_ordinary_draft() -> None:
    draft = grow(Script(table(ROWS)), Growth(nodes=6, depth=3, width=2, frontier=2)).draft
    assert isinstance(draft, Draft)
    assert draft.tokens.dtype == draft.parents.dtype == np.int32
    assert draft.ending_at(is_end) is draft
