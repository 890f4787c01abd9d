"""Medusa's own ways: places by rates or by rows, shapes, chains, reduced vocabularies, what is learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from localspec.core.draft import Draft, Ids, Verdict
from localspec.core.growth import Growth, Node
from localspec.core.rejection import Rejection
from localspec.core.sampling import Sampling
from localspec.core.shapes import Shape
from localspec.drafters.medusa import Medusa, Options, Rates, default_places
from localspec.engine.toy import ToyContext
from localspec.errors import UsageError
from tests.drafters.settings import Lender, budget, toy

TEXT = np.array([5, 6, 7], dtype=np.int32)


class Said:
    """`engine.base.Guesser` that says what it is told: for each head the ids, likeliest first."""

    def __init__(
        self, *guesses: Sequence[int], sure: float = 2.0, ids: Ids | None = None, tree: Sequence[Sequence[int]] = ()
    ) -> None:
        self.heads = len(guesses)
        self.ids = ids
        self.tree = tuple(tuple(place) for place in tree)
        self.silent = False
        self._rows = []
        for tokens in guesses:
            row = np.zeros(27, dtype=np.float32)
            row[list(tokens)] = sure * np.arange(len(tokens), 0, -1)
            self._rows.append(row)

    def guess(self, tokens: Ids) -> list[Any] | None:
        return None if self.silent else self._rows

    def close(self) -> None:
        return None


def medusa(head: Said, **options: Any) -> Medusa:
    lender = Lender(toy().vocab, lambda: ToyContext(toy()), head=lambda kind: head)
    drafter = Medusa(Options(**options), lender)
    drafter.begin(TEXT, sampling=Sampling(), rule=Rejection(np.random.default_rng(0)), cancelled=lambda: False)
    return drafter


def shown(draft: Draft) -> list[list[int]]:
    """The path of each node."""
    return [draft.tokens[list(draft.path(node))].tolist() for node in range(len(draft))]


THREE = Said([1, 2, 3], [4, 5, 6], [7, 8, 9])


def test_a_chain_is_the_first_guess_of_each_head() -> None:
    assert medusa(THREE).propose(TEXT, budget(8)).tokens.tolist() == [1, 4, 7]
    assert medusa(THREE).propose(TEXT, budget(2)).tokens.tolist() == [1, 4]


def test_nothing_follows_an_end() -> None:
    """0 ends the toy's text."""
    assert medusa(Said([1], [0], [7])).propose(TEXT, budget(8)).tokens.tolist() == [1, 0]
    draft = medusa(Said([0, 1], [4])).propose(TEXT, budget(8, tree=Shape.parse("2,1")))
    assert shown(draft) == [[0], [1], [1, 4]]


def test_a_shape_is_filled_place_by_place() -> None:
    draft = medusa(THREE).propose(TEXT, budget(16, tree=Shape.of([[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]])))
    assert sorted(shown(draft)) == [[1], [1, 4], [1, 4, 7], [1, 5], [2], [2, 4]]
    assert draft.laws is None
    assert draft.confidences is not None


def test_deeper_than_there_are_heads_there_is_nothing() -> None:
    draft = medusa(Said([1, 2], [4, 5])).propose(TEXT, budget(16, tree=Shape.parse("1,1,1,1")))
    assert shown(draft) == [[1], [1, 4]]


def test_static_places_are_those_of_the_file_or_the_default() -> None:
    """Whatever the rows say: only what they say at each place."""
    named = Said([1, 2, 3], [4, 5], tree=[[0], [2], [1], [2, 1], [2, 0]])
    draft = medusa(named).propose(TEXT, budget(8, tree=Growth(nodes=8)))
    assert sorted(shown(draft)) == [[1], [2], [3], [3, 4], [3, 5]]
    default = medusa(THREE).propose(TEXT, budget(4, tree=Growth(nodes=4)))
    guesses = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    places = default_places(3)[:4]
    assert sorted(shown(default)) == sorted([guesses[at][rank] for at, rank in enumerate(place)] for place in places)


def test_confident_places_are_those_of_the_rows() -> None:
    """A head that wavers gets width where a sure one gets depth."""
    wavering = medusa(Said([1, 2, 3], [4, 5, 6], sure=0.01), choices="confident")
    sure = medusa(Said([1, 2, 3], [4, 5, 6], sure=30.0), choices="confident")
    grown = budget(3, tree=Growth(nodes=3))
    assert sorted(shown(wavering.propose(TEXT, grown))) == [[1], [2], [3]]
    assert sorted(shown(sure.propose(TEXT, grown)))[:2] == [[1], [1, 4]]


def test_only_what_pays_is_drafted() -> None:
    def choosy(joints: Sequence[float]) -> int:
        return sum(joint > 0.2 for joint in joints)

    allowed = budget(32, tree=Growth(nodes=32))._replace(choose=choosy)
    draft = medusa(THREE).propose(TEXT, allowed)
    assert sorted(shown(draft)) == [[1]]


def test_a_reduced_vocabulary_is_translated() -> None:
    ids = np.arange(27, dtype=np.int32)[::-1].copy()
    assert medusa(Said([1], [4], ids=ids)).propose(TEXT, budget(8)).tokens.tolist() == [25, 22]
    draft = medusa(Said([1, 2], ids=ids)).propose(TEXT, budget(8, tree=Shape.parse("2")))
    assert draft.tokens.tolist() == [25, 24]


def test_without_the_verifiers_row_it_is_silent() -> None:
    head = Said([1])
    head.silent = True
    assert len(medusa(head).propose(TEXT, budget(8))) == 0


def test_places_are_learned() -> None:
    """Where the first guess is always wrong and the second right, the second's children come first at last."""
    drafter = medusa(THREE)
    context = ToyContext(toy())
    allowed = budget(6, tree=Growth(nodes=6))
    before = shown(drafter.propose(TEXT, allowed))
    for _ in range(80):
        draft = drafter.propose(TEXT, allowed)
        node = next(at for at, token in enumerate(draft.tokens) if token == 2 and draft.parents[at] < 0)
        context.prefill(TEXT[:-1], logits=False)
        drafter.observe(context.evaluate(7, draft), Verdict((node,), 3, "residual", 2))
        context.rewind(2)
    after = shown(drafter.propose(TEXT, allowed))
    assert [2, 4] in after
    assert [2, 4] not in before or [1, 4, 7] not in after


def test_rates_start_from_a_belief_and_follow_what_happens() -> None:
    rates = Rates()
    assert rates.rate(1, 0) > rates.rate(1, 1) > rates.rate(1, 7) > 0
    assert rates.rate(1, 0) > rates.rate(2, 0) > rates.rate(3, 0)
    believed = rates.rate(1, 1)
    node = Node(1, -1, None, 0.5, 0.5, 1, (1,))
    for _ in range(50):
        rates.learn([node], [0])
    assert rates.rate(1, 1) > 0.7 > believed
    for _ in range(200):
        rates.learn([node], [])
    assert rates.rate(1, 1) < believed


@pytest.mark.parametrize("heads", [1, 2, 5])
def test_the_default_tree_is_a_tree(heads: int) -> None:
    places = default_places(heads)
    assert Shape.of(places).depth <= heads
    assert len(set(places)) == len(places) == (8 if heads == 1 else 40)
    assert places[0] == (0,)


def test_a_wrong_option_is_told() -> None:
    with pytest.raises(UsageError, match="option choices is 'wild'"):
        Options(choices="wild")  # type: ignore[arg-type]
