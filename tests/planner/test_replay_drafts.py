"""`--N auto` and `cascade` over recorded drafts of a real draft model and a real head: never slower, and near the best.

What each bar is below is printed by `python -m tests.planner.replay_drafts`; raise them when it gets better.
"""

from __future__ import annotations

import statistics

import pytest

from localspec.loop.control import FixedLength
from tests.planner.replay import TEMPERATURES
from tests.planner.replay_drafts import (
    CURVES,
    LENGTHS,
    PRICES,
    SEEDS,
    Played,
    Session,
    best_fixed,
    by_category,
    fixed,
    orders,
    processes,
    recordings,
    together,
)

WAYS = (*PRICES, "ngram", "ngram,model", "ngram,eagle3")


def plays(curve: str, way: str, temperature: str) -> list[Played]:
    of = "model" if way == "ngram" else ""  # any: the texts are the same
    return [played for order in orders(curve, way, temperature, of=of) for played in order]


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("way", WAYS)
def test_never_slower_than_plain(way: str, curve: str, temperature: str) -> None:
    """B69: neither a kind of text nor a single answer, the first one of a session among them."""
    found = plays(curve, way, temperature)
    assert min(by_category(found).values()) >= 0.97
    assert min(played.speed for played in found) >= 0.945
    assert sum(played.speed < 0.97 for played in found) <= 0.08 * len(found)


@pytest.mark.parametrize("drafter", PRICES)
def test_near_the_best_fixed_length_of_each_kind_of_text(drafter: str) -> None:
    """Against the best of all lengths in hindsight, which nobody knows beforehand."""
    ratios = []
    for curve in CURVES:
        for temperature in TEMPERATURES:
            speeds = by_category(plays(curve, drafter, temperature))
            best = best_fixed(curve, drafter, temperature)
            ratios += [speeds[name] / best[name] for name in speeds]
    assert statistics.median(ratios) >= 0.96
    assert min(ratios) >= 0.92


# curve, dear drafter -> of all kinds of text and temperatures, least and median of `cascade` / the better of the two
TOGETHER = {
    ("F32", "model"): (0.94, 0.985),
    ("F32, dear", "model"): (0.95, 0.985),
    ("flat", "model"): (0.9, 0.965),  # what a lookup drafted the model has to read, at 0.1 passes a token
    ("F32", "eagle3"): (0.955, 0.99),
    ("F32, dear", "eagle3"): (0.96, 0.99),
    ("flat", "eagle3"): (0.98, 1.04),
}


@pytest.mark.parametrize(("curve", "drafter"), TOGETHER)
def test_two_drafters_against_the_better_of_them_alone(curve: str, drafter: str) -> None:
    """B66: hardly worse, and better where each of them is good at something."""
    ratios = []
    for temperature in TEMPERATURES:
        both, lookup, alone = (
            by_category(plays(curve, way, temperature)) for way in (f"ngram,{drafter}", "ngram", drafter)
        )
        ratios += [both[name] / max(lookup[name], alone[name]) for name in both]
    least, median = TOGETHER[curve, drafter]
    assert min(ratios) >= least
    assert statistics.median(ratios) >= median


# drafter -> of single processes, least speed against plain at T=0
PROCESSES = {"model": 1.06, "eagle3": 1.05}


@pytest.mark.parametrize("drafter", PROCESSES)
def test_a_command_of_its_own_goes_on_where_the_last_one_ended(drafter: str) -> None:
    """`localspec run` is a process for every answer: with times and rates alone they ran at 1.05x and 1.04x."""
    played = [one for seed in SEEDS for one in [*processes("F32", drafter, "T=0", seed=seed)][1:]]
    assert together(played) >= PROCESSES[drafter]
    assert sum(one.speed < 0.97 for one in played) <= 0.04 * len(played)


@pytest.mark.parametrize("drafter", PRICES)
@pytest.mark.parametrize("N", LENGTHS)
def test_a_fixed_length_costs_what_the_arithmetic_says(N: int, drafter: str) -> None:
    """The replay itself, with the loop's proposer and rests, against eight lines that add up."""
    session = Session("F32", drafter, seed=0, controller=FixedLength(N))
    for recording in recordings(drafter, "T=0")[::4]:
        expected = fixed("F32", drafter, recording, N)
        assert session.play(recording).cost == pytest.approx(expected.cost, rel=1e-9)


def test_on_a_machine_bound_by_memory_all_of_them_win() -> None:
    """Where four rows cost hardly more than one, as on a GPU."""
    assert together(plays("flat", "model", "T=0")) > 1.25
    assert together(plays("flat", "eagle3", "T=0")) > 1.2
