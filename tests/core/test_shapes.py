"""Shapes: what can be asked for, and what is left of one when room is short."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.shapes import MOST, Place, Shape
from localspec.errors import UsageError


def is_closed(shape: Shape) -> bool:
    """True when every place comes after its parent and its elder sibling."""
    before: set[Place] = {()}
    for place in shape.places:
        elder = (*place[:-1], place[-1] - 1)
        if place in before or place[:-1] not in before or (place[-1] and elder not in before):
            return False
        before.add(place)
    return True


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Any shape of up to 24 places: each new place is the next child of a place that is there."""
    places: list[Place] = []
    widths: dict[Place, int] = {}
    for _ in range(draw(st.integers(1, 24))):
        parent = draw(st.sampled_from([(), *places]))
        widths[parent] = widths.get(parent, 0) + 1
        places.append((*parent, widths[parent] - 1))
    return Shape.of(draw(st.permutations(places)))


def test_a_branching_has_all_its_places() -> None:
    shape = Shape.parse(" 4, 2,2")
    assert len(shape) == 4 + 8 + 16
    assert set(shape.places) == {
        *product(range(4)),
        *product(range(4), range(2)),
        *product(range(4), range(2), range(2)),
    }
    assert (shape.depth, shape.leaves) == (3, 16)
    assert shape.widths[()] == 4
    assert shape.widths[(3,)] == shape.widths[(2, 1)] == 2
    assert is_closed(shape)


def test_a_chain_is_the_thin_shape() -> None:
    shape = Shape.branching([1, 1, 1])
    assert shape.places == ((0,), (0, 0), (0, 0, 0))
    assert (shape.depth, shape.leaves) == (3, 1)


def test_the_empty_shape() -> None:
    """What a plan comes to when nothing pays."""
    shape = Shape(())
    assert (len(shape), shape.depth, shape.leaves, shape.widths) == (0, 0, 0, {})
    assert shape.within(nodes=3, leaves=1) == shape


def test_an_irregular_shape_keeps_likely_places_first() -> None:
    """Medusa's trees: the eldest child of the eldest child before the third sibling's child."""
    shape = Shape.of([[1, 0], [0], [2], [0, 0, 0], [1], [0, 1], [0, 0]])
    assert shape.places == ((0,), (0, 0), (1,), (0, 0, 0), (0, 1), (1, 0), (2,))
    assert (shape.depth, shape.leaves) == (3, 4)
    assert Shape.of([[0], [0], (0,)]).places == ((0,),)


@pytest.mark.parametrize("text", ["", ",", "0", "4,0,2", "-1", "2,x", "2;2", "2,,2", "1.5", "²", "65,64", "9" * 400])
def test_branchings_that_cannot_be_drafted(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Shape.parse(text)
    assert "4,2,2" in caught.value.hint


def test_a_list_of_no_widths_is_no_branching() -> None:
    with pytest.raises(UsageError):
        Shape.branching([])


@pytest.mark.parametrize(
    ("places", "told"),
    [
        ([[0], [0, 0, 0]], "[0, 0]"),
        ([[0], [2]], "[1]"),
        ([[1]], "[0]"),
        ([[0], [0, 1]], "[0, 0]"),
        ([[-1]], "[-1]"),
        ([[0], []], "[]"),
    ],
)
def test_a_place_without_its_parent_or_elder_is_named(places: list[list[int]], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        Shape.of(places)
    assert told in str(caught.value)
    assert "ancestor" in caught.value.hint


def test_more_places_than_any_draft_can_hold() -> None:
    """B92's kind: a slip of the finger is a sentence, not a machine out of memory."""
    with pytest.raises(UsageError, match=str(MOST + 1)) as caught:
        Shape.of([rank] for rank in range(MOST + 1))
    assert str(MOST) in caught.value.hint
    assert len(Shape.of([rank] for rank in range(MOST))) == MOST


@given(shapes())
def test_any_order_of_the_places_is_the_same_shape(shape: Shape) -> None:
    assert is_closed(shape)
    assert Shape.of(reversed(shape.places)) == shape
    assert sum(shape.widths.values()) == len(shape)
    assert shape.depth == max(len(place) for place in shape.places)


@given(shapes(), st.integers(0, 26), st.integers(1, 26))
def test_within_keeps_a_tree_that_fits(shape: Shape, nodes: int, leaves: int) -> None:
    part = shape.within(nodes=nodes, leaves=leaves)
    assert set(part.places) <= set(shape.places)
    assert is_closed(part)
    assert len(part) <= nodes
    assert part.leaves <= leaves
    if len(shape) <= nodes and shape.leaves <= leaves:
        assert part == shape
    elif nodes:
        assert (0,) in part.places


@given(shapes(), st.integers(1, 26))
def test_with_paths_to_spare_exactly_the_room_is_used(shape: Shape, nodes: int) -> None:
    part = shape.within(nodes=nodes, leaves=26)
    assert part.places == shape.places[:nodes]


@given(shapes())
def test_one_path_is_the_eldest_line(shape: Shape) -> None:
    """On a verifier with room for one more sequence a tree thins out to its likeliest chain."""
    part = shape.within(nodes=26, leaves=1)
    line: Place = (0,)
    while line in shape.places:
        assert line in part.places
        line = (*line, 0)
    assert len(part) == len(line) - 1
