"""Rests: rounds without a draft that a controller hears of as one, with nothing lost and nothing out of order."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from localspec.core.draft import EMPTY, Draft, Ids
from localspec.loop.control import FixedLength, RoundReport
from localspec.loop.generation import Generation, Limits
from tests.loop.answers import Setting
from tests.loop.scripted import Scripted

PROMPT = [3, 1, 4, 1, 5]


@dataclass(frozen=True)
class Resting(FixedLength):
    """Always the same limit and the same rest; notes what it is asked and told."""

    limits: list[int] = field(default_factory=list)
    told: list[RoundReport] = field(default_factory=list)

    def limit(self, room: int) -> int:
        self.limits.append(room)
        return super().limit(room)

    def observe(self, report: RoundReport) -> None:
        self.told.append(report)


def start(setting: Setting, controller: Resting, drafter: Scripted, count: int) -> Generation:
    return setting.start(
        PROMPT, drafter=drafter, controller=controller, limits=Limits(max_tokens=count, ignore_end=True)
    )


def silent(tokens: Ids, limit: int) -> Draft:
    return EMPTY


@pytest.mark.parametrize("rest", [0, 1, 3, 7, 100])
@pytest.mark.parametrize("most", [0, 4])
def test_every_round_is_told_once(toy: Setting, rest: int, most: int) -> None:
    controller = Resting(most, rest=rest)
    generation = start(toy, controller, Scripted(silent), 20)
    list(generation)
    assert generation.answer is not None
    assert sum(report.rounds for report in controller.told) == generation.answer.stats.verifier_passes == 20
    assert all(report.verify_s > 0.0 for report in controller.told)
    assert len(controller.limits) == -(-20 // (1 + rest))


def test_a_parked_drafter_is_not_asked_in_a_rest_and_a_lookup_is(toy: Setting) -> None:
    parked, looking = Scripted(silent), Scripted(silent)
    list(start(toy, Resting(0, rest=100), parked, 20))
    list(start(toy, Resting(4, rest=100), looking, 20))
    assert parked.limits == []
    assert looking.limits == [*[4] * 16, 3, 2, 1]  # the last token needs no draft


def test_a_draft_ends_the_rest_and_is_told_after_it(toy: Setting) -> None:
    plain = toy.answer(PROMPT, N=0, limits=Limits(max_tokens=20, ignore_end=True)).tokens
    whole = [*PROMPT, *plain]

    def late(tokens: Ids, limit: int) -> Draft:
        at = len(tokens)
        return Draft.chain(whole[at : at + limit]) if at == len(PROMPT) + 6 else EMPTY

    controller = Resting(4, rest=100)
    generation = start(toy, controller, Scripted(late), 20)
    list(generation)
    assert generation.answer is not None
    assert generation.answer.tokens == plain
    shape = [(report.rounds, report.drafted, report.accepted) for report in controller.told]
    assert shape == [(1, 0, 0), (5, 0, 0), (1, 4, 4), (1, 0, 0), (8, 0, 0)]


def test_an_answer_that_is_given_up_tells_what_it_has(toy: Setting) -> None:
    controller = Resting(0, rest=100)
    generation = start(toy, controller, Scripted(silent), 20)
    pieces = iter(generation)
    for _ in range(6):
        next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert generation.answer is not None
    assert sum(report.rounds for report in controller.told) == generation.answer.stats.verifier_passes
    generation.conclude()
    assert sum(report.rounds for report in controller.told) == generation.answer.stats.verifier_passes
