"""Promise 1 for trees, by exact enumeration: every way of growing one emits the verifier's law, compared at 1e-12.

The code that runs is the real one: `plan`, `fixed`, `dynamic`, the rejection rule, the controller. What is planted
wrong on purpose is noticed. Counted on a real context it is in tests/test_tree_counts.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from localspec.core import ranks as core_ranks
from localspec.core.draft import Draft, Ids
from localspec.core.growth import Growth, Sibling, dynamic, fixed
from localspec.core.law import Law
from localspec.core.picks import heaviest
from localspec.core.ranks import Ranks, plan
from localspec.core.rejection import Rejection
from localspec.core.shapes import Shape
from localspec.loop.control import RoundReport
from localspec.planner.treecontrol import AutoTree
from tests.core.branches import outcomes
from tests.core.models import Model, Path, random_model, sequence_law
from tests.core.speculation import (
    Siblings,
    emitted_law,
    independent,
    play,
    top,
    top_then_drawn,
    without_replacement,
)

EXACT = 1e-12


def distance(law: npt.NDArray[np.float64], verifier: Model, *, size: int) -> float:
    """Total variation between what was emitted and what the verifier alone would."""
    return 0.5 * float(np.abs(law - sequence_law(verifier, size=size, length=law.ndim)).sum())


# -- three levels of up to four siblings, level by level --------------------------------------------------------------


def ladder(
    verifier: Model, drafter: Model, *, size: int, widths: Sequence[int], siblings: Siblings
) -> npt.NDArray[np.float64]:
    """`emitted_law`, multiplied out level by level, so that wide and deep trees can be summed at all.

    What happens below an accepted node depends on nothing but the path there: siblings, verdicts and draws of different
    nodes are independent. `test_levels_multiply` holds this against the enumeration of whole trees.
    """

    @cache
    def level(text: Path) -> dict[tuple[bool, int], float]:
        def one(rng: Any) -> tuple[bool, int]:
            rule = Rejection(rng)
            drawn = siblings(rule, drafter(text), widths[len(text)])
            tokens = np.array([token for token, _ in drawn], dtype=np.int32)
            draft = Draft(tokens, np.full(len(drawn), -1, dtype=np.int32), tuple(law for _, law in drawn))
            verdict = rule.accept(draft, lambda row: Law.one_hot(0) if row else verifier(text), 0)
            return (True, int(tokens[verdict.path[0]])) if verdict.path else (False, verdict.next_token)

        return outcomes(one)

    def below(text: Path) -> npt.NDArray[np.float64]:
        left = len(widths) + 1 - len(text)
        if left == 1:
            return verifier(text).dense(size)
        law = np.zeros((size,) * left)
        for (accepted, token), prob in level(text).items():
            path = (*text, token)
            law[token] += prob * (
                below(path) if accepted else sequence_law(verifier, size=size, length=left - 1, start=path)
            )
        return law

    return below(())


@pytest.mark.parametrize("way", [top, independent, without_replacement])
def test_levels_multiply(way: Siblings) -> None:
    verifier, drafter = random_model(30, size=3), random_model(31, size=3, zeros=0.2)
    law = ladder(verifier, drafter, size=3, widths=(2, 2), siblings=way)
    np.testing.assert_allclose(law, emitted_law(verifier, drafter, size=3, widths=(2, 2), siblings=way), atol=EXACT)


@pytest.mark.parametrize("way", [top, independent, without_replacement, top_then_drawn])
@pytest.mark.parametrize("widths", [(4, 4, 4), (4, 2, 2), (3, 3, 3), (1, 4, 2)], ids=str)
def test_deep_and_wide_trees(widths: Sequence[int], way: Siblings) -> None:
    """B44: up to depth 3 and four siblings, picked, drawn independently, drawn without replacement, and mixed."""
    size = 4
    for verifier, drafter in (
        (random_model(32, size=size), random_model(33, size=size)),
        (random_model(34, size=size, zeros=0.3), random_model(35, size=size, zeros=0.3)),
        (random_model(36, size=size, spread=5.0), random_model(37, size=size, spread=0.2)),
    ):
        law = ladder(verifier, drafter, size=size, widths=widths, siblings=way)
        assert distance(law, verifier, size=size) < EXACT


def test_the_ladder_notices_picks_that_are_reported_as_drawn() -> None:
    def liar(rule: Rejection, law: Law, count: int) -> list[tuple[int, Law | None]]:
        return [(token, law) for token, _ in top(rule, law, count)]

    verifier, drafter = random_model(32, size=4), random_model(33, size=4)
    law = ladder(verifier, drafter, size=4, widths=(4, 2, 2), siblings=liar)
    assert distance(law, verifier, size=4) > 0.05


# -- trees as they are really grown -----------------------------------------------------------------------------------


@dataclass
class Table:
    """`core.growth.Source` over a table model; rows are the texts that lead to them."""

    model: Model
    start: Path
    draw: Callable[[Law, int], list[Sibling]]
    nodes: int = 100
    leaves: int = 100

    def siblings(self, row: Path, count: int, depth: int) -> list[Sibling]:
        return self.draw(self.model(row), count)

    def layer(self, tokens: Ids, parents: Ids, path: Callable[[int], Ids]) -> list[Path]:
        return [(*self.start, *(int(token) for token in path(at))) for at in range(len(tokens))]


def drawing(rule: Rejection) -> Callable[[Law, int], list[Sibling]]:
    """Siblings as the draft model takes them above temperature 0; their laws are reported."""
    return lambda law, count: [Sibling(token, law_, law.prob(token)) for token, law_ in rule.guesses(law, 0, count)]


def picking(law: Law, count: int) -> list[Sibling]:
    return [Sibling(token, None, prob) for token, prob in heaviest(law, count)]


def never(token: int) -> bool:
    return False


def every(depth: int, joints: Sequence[float]) -> int:
    return len(joints)


def rounds_law(
    one_round: Callable[[Any, Path], Path], verifier: Model, *, size: int, length: int, rounds: int
) -> npt.NDArray[np.float64]:
    """The law of `length` tokens: up to so many rounds, then plain decoding. A round extends the text it is given."""

    def several(rng: Any) -> Path:
        text: Path = ()
        for _ in range(rounds):
            if len(text) < length:
                text = one_round(rng, text)
        return text[:length]

    law = np.zeros((size,) * length)
    for text, prob in outcomes(several).items():
        law[text] += prob * sequence_law(verifier, size=size, length=length - len(text), start=text)
    return law


def after(model: Model, start: Path) -> Model:
    return lambda path: model((*start, *path))


@pytest.mark.parametrize(
    "shape",
    [
        Shape.of([[0], [1], [0, 0]]),
        Shape.of([[0], [0, 0], [0, 1], [0, 0, 0]]),
        Shape.parse("2,1"),
        Shape.parse("3,2,1").within(nodes=4, leaves=2),
        Shape.parse("2,2").within(nodes=3, leaves=9),
    ],
    ids=lambda shape: " ".join(map(str, shape.places)),
)
def test_irregular_shapes_filled_with_draws(shape: Shape) -> None:
    """All nodes are drawn before the first is judged, by the function that does it for the draft model."""
    verifier, drafter = random_model(40, size=3), random_model(41, size=3)

    def one_round(rng: Any, text: Path) -> Path:
        rule = Rejection(rng)
        grown = fixed(shape, Table(drafter, text, drawing(rule)), text, is_end=never)
        return play(rule, grown.draft, verifier)[0]

    law = rounds_law(one_round, verifier, size=3, length=shape.depth + 1, rounds=1)
    assert distance(law, verifier, size=3) < EXACT


@pytest.mark.parametrize("is_end", [lambda token: token == 0, lambda token: token != 0], ids=["one end", "two ends"])
def test_draws_below_an_end_token_are_not_missed(is_end: Callable[[int], bool]) -> None:
    """The tree is thinner below what ends the text, a choice made by the token's value: everything below it goes."""
    verifier, drafter = random_model(42, size=3), random_model(43, size=3)

    def one_round(rng: Any, text: Path) -> Path:
        rule = Rejection(rng)
        grown = fixed(Shape.parse("2,2"), Table(drafter, text, drawing(rule)), text, is_end=is_end)
        return play(rule, grown.draft, verifier)[0]

    law = rounds_law(one_round, verifier, size=3, length=3, rounds=1)
    assert distance(law, verifier, size=3) < EXACT


@pytest.mark.parametrize("growth", [Growth(12, 3, 4, 4, 9), Growth(6, 3, 3, 2, 3), Growth(5, 2, 4, 1, 4)], ids=str)
@pytest.mark.parametrize("choose", [len, lambda joints: sum(joint > 0.08 for joint in joints)], ids=["all", "likely"])
def test_dynamic_trees_of_picks(growth: Growth, choose: Callable[[Sequence[float]], int]) -> None:
    """EAGLE-2's growth: chosen, expanded and pruned by value, which picks may be; three levels, four siblings."""
    for seed in range(3):
        verifier, drafter = random_model(50 + seed, size=5), random_model(60 + seed, size=5, zeros=0.1 * seed)
        grown = dynamic(growth, Table(drafter, (), picking), (), widen=every, choose=choose, is_end=never)
        assert len(grown.draft) > 2
        law = rounds_law(
            lambda rng, text: play(Rejection(rng), grown.draft, verifier)[0],  # noqa: B023
            verifier,
            size=5,
            length=growth.depth + 1,
            rounds=1,
        )
        assert distance(law, verifier, size=5) < EXACT


def test_a_dynamic_tree_of_draws_is_caught() -> None:
    """The planted error: drawn nodes expanded and pruned by what they are, then judged as if all had been kept."""
    verifier, drafter = random_model(70, size=3), random_model(71, size=3)

    def law(kept: int) -> npt.NDArray[np.float64]:
        def one_round(rng: Any, text: Path) -> Path:
            rule = Rejection(rng)
            grown = dynamic(
                Growth(nodes=kept, depth=1, width=2),
                Table(drafter, text, drawing(rule)),
                text,
                widen=every,
                choose=len,
                is_end=never,
            )
            return play(rule, grown.draft, verifier)[0]

        return rounds_law(one_round, verifier, size=3, length=2, rounds=1)

    assert distance(law(2), verifier, size=3) < EXACT  # nothing is left out: siblings in the order they were drawn in
    assert distance(law(1), verifier, size=3) > 0.01  # the likelier of two draws is kept


# -- plans that learn -------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates that one verdict turns over, so that plans depend on the text within two rounds."""
    monkeypatch.setattr(core_ranks, "WEIGHT", 0.2)
    monkeypatch.setattr(core_ranks, "PRIOR", (0.5, 0.5))


@pytest.mark.usefixtures("quick")
def test_plans_from_past_verdicts() -> None:
    """The shape of a round depends on what was accepted before, as strongly as it can: the law is untouched."""
    verifier, drafter = random_model(80, size=2), random_model(81, size=2)
    growth, shapes = Growth(nodes=3, depth=2, width=2, leaves=3), set[tuple[Path, ...]]()

    def several(rng: Any) -> Path:
        ranks, rule, text = Ranks(), Rejection(rng), Path()
        while len(text) < 4:
            shape = plan(ranks, growth, widen=every, choose=lambda joints: sum(joint > 0.2 for joint in joints))
            shapes.add(shape.places)
            grown = fixed(shape, Table(drafter, text, drawing(rule)), text, is_end=never)
            block, verdict = play(rule, grown.draft, after(verifier, text))
            ranks.learn(grown.draft, verdict)
            text = (*text, *block)
        return text[:4]

    law = np.zeros((2,) * 4)
    for text, prob in outcomes(several).items():
        law[text] += prob
    assert len(shapes) >= 4
    assert distance(law, verifier, size=2) < EXACT


@pytest.mark.usefixtures("quick")
def test_the_controllers_trees() -> None:
    """`--tree auto` above temperature 0, on a machine whose times betray the tokens that were emitted."""
    verifier, drafter = random_model(82, size=2), random_model(83, size=2)
    growth, sizes = Growth(nodes=3, depth=2, width=2, leaves=3), set[int]()

    def several(rng: Any) -> Path:
        ranks, rule, controller, text = Ranks(), Rejection(rng), AutoTree(), Path()
        for _ in range(2):
            controller.observe(report(0, 0, 0.02))
        while len(text) < 3:
            draft, room = Draft.chain(()), controller.limit(3)
            if room:
                shape = plan(
                    ranks, growth.within(nodes=room, leaves=3), widen=controller.widen, choose=controller.choose
                )
                draft = fixed(shape, Table(drafter, text, drawing(rule)), text, is_end=never).draft
            sizes.add(len(draft))
            block, verdict = play(rule, draft, after(verifier, text))
            ranks.learn(draft, verdict)
            seconds = 0.02 * (1.0 + 2.0 * block[-1] * len(draft))
            controller.observe(report(len(draft), len(verdict.path), seconds))
            text = (*text, *block)
        return text[:3]

    law = np.zeros((2,) * 3)
    for text, prob in outcomes(several).items():
        law[text] += prob
    assert len(sizes) >= 2
    assert distance(law, verifier, size=2) < EXACT


def report(drafted: int, accepted: int, seconds: float) -> RoundReport:
    return RoundReport(
        drafted=drafted,
        tested=drafted,
        accepted=accepted,
        refused=accepted < drafted,
        draft_s=0.001 * drafted,
        verify_s=seconds,
    )
