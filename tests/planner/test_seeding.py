"""Controllers that start from a profile: a right one pays within the first hundred tokens, a wrong one costs little."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from localspec.loop.control import RoundReport
from localspec.planner.controller import PROOF, AutoLength
from localspec.planner.costs import PassCosts
from localspec.planner.profile import Attempt, Claim, Profile
from localspec.planner.treecontrol import AutoTree
from tests.planner import treesimulation as trees
from tests.planner.simulation import SHAPES, Machine, Text, fixed_speed, play, text

SPREADS = (None, 2.0)
LEARNED_IN = 1500  # tokens of the sessions before


def words(rate: float, spread: float | None, *, seed: int = 7) -> Text:
    return text([rate] * (LEARNED_IN + 20), spread=spread, seed=seed)


def learned(shape: str, draft: float, rate: float, spread: float | None) -> Profile:
    """What a session on this machine and text leaves behind."""
    controller = AutoLength()
    play(controller, Machine(SHAPES[shape], draft, catch_up=0.1), words(rate, spread), tokens=LEARNED_IN, answer=250)
    profile = controller.learned()
    assert profile is not None
    return profile


@pytest.mark.parametrize("shape", SHAPES)
def test_a_right_profile_is_better_than_none_in_the_first_hundred_tokens(shape: str) -> None:
    gains = {}
    for draft in (0.0, 0.05, 0.3):
        machine = Machine(SHAPES[shape], draft, catch_up=0.1)
        for rate in (0.0, 0.3, 0.6, 0.9):
            for spread in SPREADS:
                profile = learned(shape, draft, rate, spread)
                speeds = [
                    (
                        play(AutoLength(profile), machine, words(rate, spread, seed=seed), tokens=100, seed=seed).speed,
                        play(AutoLength(), machine, words(rate, spread, seed=seed), tokens=100, seed=seed).speed,
                    )
                    for seed in range(4)
                ]
                gains[draft, rate, spread] = float(np.mean([seeded / fresh for seeded, fresh in speeds]))

    assert np.mean(list(gains.values())) > 1.0, gains
    assert min(gains.values()) > 0.93, gains


def claimed(times: dict[int, float], draft_s: float, rate: float, rows: int) -> Profile:
    """What a session would have left behind in which drafts of `rows` - 1 tokens were accepted with this rate."""
    emitted = sum(rate**depth for depth in range(rows))
    return Profile(tuple(times.items()), draft_s, (rate,) * 8, Attempt(((rows, 1.0),), rows - 1.0, emitted))


WRONG = {
    "too good": claimed({1: 0.02, 2: 0.0202, 4: 0.0206, 16: 0.023}, 0.001, 0.95, 16),
    "of a faster machine": claimed({1: 0.002, 2: 0.00202, 16: 0.0023}, 0.0001, 0.9, 8),
    "of a slower machine": claimed({1: 0.2, 2: 0.202, 16: 0.23}, 0.01, 0.9, 8),
    "too good in everything": replace(
        claimed({1: 0.02, 2: 0.0202, 4: 0.0206, 16: 0.023}, 0.001, 0.95, 16),
        claims=tuple(Claim(sure, 12.0, 12.0) for sure in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)),
        promises=tuple(Claim(sure, 30.0, 12.0) for sure in (0.0, 0.04, 0.12, 0.3, 0.6)),
        catch_up_s=0.0,
        purse=8.0,
    ),
    "too bad": claimed({1: 0.02, 2: 0.038, 16: 0.3}, 0.02, 0.02, 2),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_wrong_profile_costs_little(shape: str, wrong: str) -> None:
    """Two percent; one that is wrong in everything costs what an answer may lose, which is half a percent more."""
    ratios = {}
    for draft in (0.0, 0.05, 0.3, 1.0):
        machine = Machine(SHAPES[shape], draft)
        for rate in (0.0, 0.3, 0.6, 0.9):
            for spread in SPREADS:
                run = play(AutoLength(WRONG[wrong]), machine, words(rate, spread), tokens=1000)
                ratios[draft, rate, spread] = run.speed / fixed_speed(0, machine, words(rate, spread), tokens=1000)

    assert min(ratios.values()) >= (0.975 if wrong == "too good in everything" else 0.98), ratios


STEEP = {1: 0.0089, 2: 0.0185, 3: 0.0288, 4: 0.0280, 8: 0.0451, 16: 0.0712}


def test_a_free_drafter_goes_far_enough_to_see_what_long_drafts_bring() -> None:
    """A right profile silenced prompt lookup: here two tokens pay for nothing, three and more do.

    The purse could not bear the pass over four tokens that would have shown the profile to be right, so drafts were
    held to two, which never pay; on real texts nothing was ever drafted. It is drafted as soon as the answer can bear
    to lose the pass over four tokens.
    """
    controller = AutoLength(Profile(tuple(STEEP.items()), 0.0, (0.9,) * 8, Attempt(((1, 1.0),), 1.0, 1.0)), lookup=True)
    drafts = []
    for _ in range(120):
        limit, count = controller.limit(30), 0
        while count < limit and controller.pays(count + 1, 0.93):
            count += 1
        drafts.append(count)
        times = sorted(STEEP)
        took = float(np.interp(1 + count, times, [STEEP[at] for at in times]))
        controller.observe(
            RoundReport(
                drafted=count,
                tested=count,
                accepted=count,
                refused=False,
                draft_s=0.0,
                verify_s=took,
                confidences=(0.93,) * count,
            )
        )
    first = next(at for at, count in enumerate(drafts) if count)
    assert first < 100
    assert 3 <= drafts[first] <= PROOF


@pytest.mark.parametrize("shape", ["flat", "stepped", "Q4_0", "F32"])
def test_trees_start_from_a_profile_as_well(shape: str) -> None:
    """A right one is worth something in the first hundred tokens on the whole, a wrong one costs two percent."""
    machine = trees.Machine(trees.SHAPES[shape], trees.growing_draft(0.05, trees.SHAPES[shape]))
    plain = trees.plain_speed(machine)
    gains = []
    for rate in (0.3, 0.6, 0.9):
        before = AutoTree()
        trees.play(before, machine, trees.words([rate] * 1080, seed=7), tokens=1000)
        profile = before.learned()
        for seed in range(3):
            text = trees.words([rate] * 1080, seed=seed)
            seeded = trees.play(AutoTree(profile), machine, text, tokens=100).speed
            gains.append(seeded / trees.play(AutoTree(), machine, text, tokens=100).speed)
            for name, wrong in WRONG.items():
                least = 0.975 if name == "too good in everything" else 0.98
                assert trees.play(AutoTree(wrong), machine, text, tokens=1000).speed >= least * plain, name
    assert np.mean(gains) > 1.0, gains


def test_what_was_heard_of_gives_way_to_what_is_measured() -> None:
    costs = PassCosts(8, [(1, 0.010), (4, 0.012), (8, 0.014)])
    assert costs.expected[4] == pytest.approx(1.2)
    assert costs.widest == 3
    costs.observe(1, 0.020)  # everything takes twice as long today
    assert not costs.is_known, "perhaps it was only late"
    costs.observe(1, 0.020)
    costs.observe(4, 0.024)
    assert costs.widest == 8
    assert costs.expected[8] == pytest.approx(1.4)
    assert not costs.is_hearsay


def test_what_was_heard_of_is_forgotten_when_two_passes_contradict_it() -> None:
    costs = PassCosts(8, [(1, 0.010), (4, 0.012), (8, 0.014)])
    costs.observe(1, 0.010)
    costs.observe(4, 0.030)
    assert costs.expected[8] == pytest.approx(1.4), "once may be an accident"
    costs.observe(4, 0.030)
    assert costs.expected[8] > 4.0
    assert costs.widest == 4
