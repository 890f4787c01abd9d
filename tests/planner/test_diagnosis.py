"""Pairs that cannot work well are told, once, with the likely cause; and drafting rests."""

from __future__ import annotations

import pytest

from localspec.loop.control import RoundReport
from localspec.planner.controller import AutoLength
from localspec.planner.diagnosis import TESTS, Diagnosis, Facts, WatchedLength
from tests.planner.simulation import SHAPES, Machine, play, text


def refused(diagnosis: Diagnosis, *, accepted: int = 0, rounds: int = TESTS) -> list[str]:
    for at in range(rounds):
        diagnosis.tested(1, int(at < accepted))
    return diagnosis.warnings()


def test_less_than_one_in_twenty_of_64_tested_tokens() -> None:
    assert refused(Diagnosis(), rounds=TESTS - 1) == []
    assert refused(Diagnosis(), accepted=4) == []
    diagnosis = Diagnosis()
    (line,) = refused(diagnosis, accepted=3)
    assert line.startswith("Only 3 of 64 tested draft tokens were accepted")
    assert "another family" in line
    assert refused(diagnosis) == [], "once"


def test_a_stretch_counts_not_the_whole_life_of_a_pair() -> None:
    diagnosis = Diagnosis()
    assert refused(diagnosis, accepted=40) == []
    assert len(refused(diagnosis)) == 1


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        (Facts(), "the draft is too large"),
        (Facts(experts=(8, 128)), "uses 8 of 128 experts"),
        (Facts(apart="the draft is on the CPU and the verifier on the GPU", experts=(8, 128)), "on the CPU"),
    ],
)
def test_a_draft_as_dear_as_the_verifier_and_why(facts: Facts, cause: str) -> None:
    diagnosis = Diagnosis(facts)
    diagnosis.priced(0.8)
    assert diagnosis.warnings() == []
    for _ in range(3):
        diagnosis.priced(1.2)
    (line,) = diagnosis.warnings()
    assert line.startswith("A draft token costs 1.20 of a plain verifier pass")
    assert cause in line
    assert "\n" not in line


def test_one_of_several_drafters_is_named() -> None:
    (line,) = refused(Diagnosis(Facts(drafter="ngram", lookup=True)))
    assert line.startswith("ngram: Only 0 of 64")
    assert "lookup" in line


@pytest.mark.parametrize(("shape", "draft", "rate"), [("gentle", 0.02, 0.01), ("F32", 1.0, 0.9)])
def test_the_controller_speaks_up_and_parks(shape: str, draft: float, rate: float) -> None:
    controller = AutoLength(diagnosis=Diagnosis(Facts(experts=(2, 64))))
    run = play(controller, Machine(SHAPES[shape], draft), text([rate] * 6020, seed=1), tokens=6000)
    (line,) = controller.warnings()
    assert ("of 64 experts" in line) == (draft == 1.0)
    assert run.mean_length(3000, 6000) < 0.1


def test_a_fixed_length_is_kept_but_not_without_a_word() -> None:
    controller = WatchedLength(3)
    said = []
    for _ in range(TESTS):
        assert controller.limit(10) == 3
        controller.observe(RoundReport(3, 1, 0, True, draft_s=0.06, verify_s=0.021))
        said.append(len(controller.warnings()))
    assert [at for at, count in enumerate(said) if count] == [TESTS - 1]


def test_a_fixed_length_that_works_says_nothing() -> None:
    controller = WatchedLength(3)
    for _ in range(200):
        controller.observe(RoundReport(3, 3, 2, True, draft_s=0.006, verify_s=0.021))
    assert controller.warnings() == []
